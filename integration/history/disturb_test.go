package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// disturb ends and starts the servers, in turn and in a random order, and lets the
// rate of faults rise and fall meanwhile. It leaves them running.
func (w *world) disturb(ctx context.Context) {
	rng := rand.New(rand.NewPCG(w.seed, 2000))
	rates := []int64{0, 10, 30, 60} // of 1000 requests
	outages := w.store.outages()
	for {
		for _, i := range rng.Perm(len(outages)) {
			for _, n := range w.nodes {
				n.faults.rate.Store(rates[rng.IntN(len(rates))])
			}
			if !w.quiet(ctx, 50+rng.IntN(100)) {
				return
			}
			o := outages[i]
			w.stats.happened(o.Name, 1)
			w.ledger.note("", o.Name, "")
			if err := o.Happen(ctx, rng); err != nil {
				w.ledger.find(fmt.Sprintf("%s: %v", o.Name, err))
				return
			}
		}
	}
}

// quiet waits until so many calls have ended, so that a slow machine sees no more
// outages for each call than a fast one. It is not patient: calls may wait for an end
// of the faults.
func (w *world) quiet(ctx context.Context, calls int) bool {
	const patience, look = 10 * time.Second, 100 * time.Millisecond
	for until, end := w.stats.total()+calls, time.Now().Add(patience); w.stats.total() < until && time.Now().Before(end); {
		if !sleep(ctx, look) {
			return false
		}
	}
	return ctx.Err() == nil
}

// within is a random time.
func within(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(most)))
}

// partition cuts nodes off from the datastore, one at a time, so long that DELs are
// queued. It leaves them connected.
func (w *world) partition(ctx context.Context) {
	rng := rand.New(rand.NewPCG(w.seed, 3000))
	for w.quiet(ctx, 20+rng.IntN(200)) {
		n := w.nodes[rng.IntN(len(w.nodes))]
		w.stats.happened("nodes cut off", 1)
		w.ledger.note("", n.name+" is cut off", "")
		n.cutOff()
		sleep(ctx, within(rng, 8*time.Second))
		if err := n.connect(); err != nil {
			w.ledger.find(fmt.Sprintf("the proxies of %s: %v", n.name, err))
			return
		}
		w.ledger.note("", n.name+" is connected again", "")
	}
}

// collect has garbage collected, on one node for one network at a time, where there
// are pods.
func (w *world) collect(ctx context.Context) {
	worker := w.worker(4000)
	for sleep(ctx, within(worker.rng, time.Second)) {
		for s := range w.register.snapshot() {
			at := s.pod.attachments[worker.rng.IntN(len(s.pod.attachments))]
			worker.gc(ctx, s.pod.node, at.network)
			break
		}
	}
}

// gc makes all records of the node and network look old, and lets those of the
// containers be collected that the runtime does not know.
func (w *worker) gc(ctx context.Context, n *node, net *network) {
	forgotten := w.attachedTo(n, net, false)
	aged := w.store.age(ctx, n, net)
	for container, at := range aged {
		w.ledger.note(container, "the record of "+at.String()+" is made old", "")
	}
	valid := []Object{}
	for container, ifName := range w.attachedTo(n, net, true) {
		valid = append(valid, Object{"containerID": container, "ifname": ifName})
	}
	w.stats.begin()
	p, err := n.start(call{verb: "GC", network: net, config: Object{"cni.dev/valid-attachments": valid}})
	if err != nil {
		w.ledger.find(fmt.Sprintf("GC on %s: %v", n.name, err))
		return
	}
	if fate, after := w.fate("GC"); fate == killed {
		defer p.killAfter(after).Stop()
	}
	a := p.wait()
	w.stats.end("GC", a)
	w.ledger.note("", fmt.Sprintf("GC on %s of %s: %s", n.name, net.name, a), a.stderr)
	if !a.ok() && !a.killed && !expected(a) {
		w.ledger.find(fmt.Sprintf("GC on %s of %s fails in a way that nothing explains: %s\n%s", n.name, net.name, a, a.stderr))
	}
	if !a.ok() {
		return
	}
	for container := range forgotten {
		if at, was := aged[container]; was {
			w.isCollected(ctx, container, at)
		}
	}
}

// attachedTo lists the containers of a node with an interface in the network: those
// that the runtime knows, or those that it has forgotten.
func (w *world) attachedTo(n *node, net *network, alive bool) map[string]string {
	found := map[string]string{}
	for s, known := range w.register.snapshot() {
		for _, at := range s.pod.attachments {
			if s.pod.node == n && at.network == net && known == alive {
				found[s.container] = at.ifName
			}
		}
	}
	return found
}

// isCollected makes sure that a forgotten container has lost its record.
func (w *world) isCollected(ctx context.Context, container string, at place) {
	if w.store.holder(ctx, at) == container {
		w.ledger.find(fmt.Sprintf("garbage collection left %s with %s, which is forgotten", container, at), at)
	}
}
