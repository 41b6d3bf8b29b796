package reclaim

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// promised is the time within which a full pool has to serve again after
	// Kubernetes has marked a node.
	promised = 60 * time.Second

	// crowd is how many addresses a pool of these tests has.
	crowd = 6
)

// hall is a pool that is full of one node's pods, and the node they move to.
type hall struct {
	*world
	namespace string
	net       network
	from, to  machine
	pods      []*pod
}

// newHall fills a pool with pods that have run for an hour and are asked to end.
func (w *world) newHall(number int, grace int) *hall {
	w.Helper()
	h := &hall{world: w, namespace: w.cp.Namespace(w.TB)}
	h.net = w.network(h.namespace, fmt.Sprintf("hall-%d", number), fmt.Sprintf("10.101.%d.0/29", number))
	h.from, h.to = w.node(fmt.Sprintf("old-%d", number)), w.node(fmt.Sprintf("new-%d", number))
	for i := range crowd {
		p := w.pod(h.namespace, fmt.Sprintf("web-%d", i), h.from.name)
		p.runs(w.mustAdd(h.from, p, h.net))
		h.pods = append(h.pods, p)
	}
	w.makeOld(h.net)
	for _, p := range h.pods {
		p.terminates(grace)
	}
	return h
}

// serves starts as many new pods, which try again and again as a kubelet has them
// do, and answers how long it took until all had an address.
func (h *hall) serves(t testing.TB, since time.Time) {
	t.Helper()
	var group sync.WaitGroup
	given, failures := make([]netip.Addr, crowd), make([]error, crowd)
	w := h.in(t)
	for i := range crowd {
		p := w.pod(h.namespace, fmt.Sprintf("next-%d", i), h.to.name)
		group.Go(func() {
			for time.Since(since) < promised {
				if given[i], failures[i] = h.to.add(p, h.net); failures[i] == nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			t.Fatalf("not within %s: %v", promised, err)
		}
	}
	slices.SortFunc(given, netip.Addr.Compare)
	if len(slices.Compact(given)) != crowd {
		t.Errorf("given out were %v", given)
	}
	t.Logf("%d new pods in a full pool of as many after %s", crowd, time.Since(since).Round(10*time.Millisecond))
}

// full makes sure that there is nothing to have before.
func (h *hall) full() *hall {
	h.Helper()
	p := h.pod(h.namespace, "early", h.to.name)
	if a, err := h.to.add(p, h.net); err == nil {
		h.Fatalf("there was room for %s before the node was lost", a)
	}
	p.vanishes()
	return h
}

// gone ends the test if a DEL never comes and the pods go all the same.
func (h *hall) gone() {
	h.Helper()
	for _, p := range h.pods {
		p.vanishes()
	}
}

// A node is lost, its pods never say goodbye, and the pool is full: others have to
// get their addresses soon, whatever the schedule and with the usual grace time.
func TestFullPoolServesAgainWhenANodeIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start("--schedule", rarely).passes()
	for i, mark := range []struct {
		name string
		mark func(*hall)
	}{
		{"unreachable for longer than the grace", func(h *hall) { h.lose(h.from.name, longAgo()) }},
		{"deleted", func(h *hall) { h.dropNode(h.from.name) }},
		{"out of service", func(h *hall) { h.setTaints(h.from.name, taint(outOfService, time.Now())) }},
		{"pods deleted by force", func(h *hall) { h.gone() }},
	} {
		t.Run(mark.name, func(t *testing.T) {
			grace := 3600
			if i == 0 {
				grace = 1
			}
			h := w.in(t).newHall(i, grace).full()
			marked := time.Now()
			mark.mark(h)
			h.serves(t, marked)
		})
	}
	if t.Failed() || testing.Verbose() {
		t.Log(c.log.String())
	}
	for _, text := range w.contradictions(w.namespace) {
		t.Error(text)
	}
}

func TestFullPoolServesAgainAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start("--schedule", rarely).passes()
	t.Run("of clean-up", func(t *testing.T) {
		h := w.in(t).newHall(0, 3600).full()
		c.kill()
		h.gone()
		began := time.Now()
		c = w.start("--schedule", rarely)
		h.serves(t, began)
	})
	t.Run("of the API server", func(t *testing.T) {
		h := w.in(t).newHall(1, 3600).full()
		w.proxy.Down() // clean-up does not see the pods go
		h.gone()
		w.cp.KillAPIServer()
		if err := w.proxy.Up(); err != nil {
			t.Fatal(err)
		}
		if err := w.cp.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		h.serves(t, time.Now())
	})
	for _, text := range w.contradictions(w.namespace) {
		t.Error(text)
	}
	if t.Failed() {
		t.Log(c.log.String())
	}
}
