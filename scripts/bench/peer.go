package main

import (
	"context"
	"fmt"
)

// tally is what came of calls of one kind.
type tally struct {
	took   sample // of those that succeeded
	faults []error
}

func (t *tally) record(outcomes ...outcome) {
	for _, o := range outcomes {
		if o.err != nil {
			t.faults = append(t.faults, o.err)
		} else {
			t.took = append(t.took, o.took)
		}
	}
}

// rival is one of the two plugins that are compared.
type rival struct {
	plugin          string
	lane            lane
	start, add, del tally
}

// measurePeer runs the two plugins in turn.
func measurePeer(ctx context.Context, b *bench) (table, error) {
	t := table{
		Title: "Beside the other plugin",
		Note: "Both in turn, with the same configuration. Ours / peer: below 1 is better for times, above 1 for rates. " +
			"Faults are calls that failed and addresses that were given out twice.",
		Columns: []string{"figure", "ours", "peer", "ours / peer", "faults of ours", "faults of the peer"},
	}
	if err := b.compareSingle(ctx, &t); err != nil {
		return t, err
	}
	if err := b.compareFlood(ctx, &t, 1); err != nil {
		return t, err
	}
	return t, b.compareFlood(ctx, &t, b.plan.nodes)
}

// alternate calls f n times with each of 0 and 1, so that neither always goes first:
// 0 1 1 0 0 1 1 0 and so on.
func alternate(n int, f func(who int)) {
	for i := range 2 * n {
		f((i + 1) / 2 % 2)
	}
}

// rivals are ours and the peer, each at a site of its own.
func (b *bench) rivals(ctx context.Context) (both [2]*rival, err error) {
	for i, plugin := range []string{b.programs.ours, b.programs.peer} {
		s, err := b.newSite(ctx, "peer", nil)
		if err != nil {
			return both, err
		}
		s.plugin = plugin
		l, err := b.newLane(s, kinds()[0])
		if err != nil {
			return both, err
		}
		both[i] = &rival{plugin: plugin, lane: l}
	}
	return both, nil
}

// compareSingle compares starts, and calls one at a time.
func (b *bench) compareSingle(ctx context.Context, t *table) error {
	both, err := b.rivals(ctx)
	if err != nil {
		return err
	}
	alternate(b.plan.starts, func(who int) {
		r := both[who]
		r.start.record(b.run(ctx, r.lane.site.call("VERSION", r.lane.node, "none", "net1", r.lane.configs[0])))
	})
	visit := 0
	alternate(b.plan.peerADDs+1, func(who int) {
		r, pod := both[who], fmt.Sprint("pod-", visit)
		add, del := r.lane.add(ctx, pod), r.lane.del(ctx, pod)
		if visit >= 2 { // each one's first makes its pool
			r.add.record(add...)
			r.del.record(del...)
		}
		visit++
	})
	addTimes(t, "VERSION, median", both[0].start, both[1].start)
	addTimes(t, "one ADD, median", both[0].add, both[1].add)
	addTimes(t, "one DEL, median", both[0].del, both[1].del)
	for _, ours := range []tally{both[0].start, both[0].add, both[0].del} {
		b.blame(ours)
	}
	return nil
}

// blame makes our own first fault a problem.
func (b *bench) blame(ours tally) {
	if len(ours.faults) > 0 {
		b.problem(fmt.Sprintf("peer: %d faults of ours, the first", len(ours.faults)), ours.faults[0])
	}
}

func addTimes(t *table, label string, ours, peer tally) {
	t.add(label, milliseconds(ours.took.median()), milliseconds(peer.took.median()),
		over(ours.took.median(), peer.took.median()), count(len(ours.faults)), count(len(peer.faults)))
}

// rush is what came of ADDs that were made many at once.
type rush struct {
	crowd
	faults []error
}

// compareFlood compares many ADDs at once, twice each.
func (b *bench) compareFlood(ctx context.Context, t *table, nodes int) error {
	plugins := []string{b.programs.ours, b.programs.peer}
	var rushes [2]rush
	var failure error
	alternate(2, func(who int) {
		if failure == nil {
			failure = b.rush(ctx, plugins[who], nodes, &rushes[who])
		}
	})
	if failure != nil {
		return failure
	}
	ours, peer := rushes[0], rushes[1]
	label := fmt.Sprintf("%d ADDs, %d at once on %s, ", b.plan.burst, b.plan.most(), plural(nodes, "node"))
	t.add(label+"rate", perSecond(ours.rate()), perSecond(peer.rate()), ratio(ours.rate()/peer.rate()),
		count(len(ours.faults)), count(len(peer.faults)))
	t.add(label+"p50", milliseconds(ours.took.median()), milliseconds(peer.took.median()), over(ours.took.median(), peer.took.median()), none, none)
	t.add(label+"p99", milliseconds(ours.took.p99()), milliseconds(peer.took.p99()), over(ours.took.p99(), peer.took.p99()), none, none)
	return nil
}

// rush makes the ADDs of one plugin at a fresh site and adds to what came of those
// before. The peer's site is left as it is: its DELs may take long, and nobody needs
// them.
func (b *bench) rush(ctx context.Context, plugin string, nodes int, to *rush) error {
	s, err := b.newSite(ctx, "peer", nil)
	if err != nil {
		return err
	}
	s.plugin = plugin
	f, err := b.newFlood(s, nodes, b.plan.most(), Object{"range": floodRange})
	if err != nil {
		return err
	}
	adds, c := b.add(ctx, f)
	c.took = succeeded(adds)
	to.crowd = to.and(c)
	_, faults := grant(adds)
	to.faults = append(to.faults, faults...)
	if plugin == b.programs.ours {
		b.checkFlood(ctx, f, adds)
	}
	return nil
}

func succeeded(outcomes []outcome) sample {
	var t tally
	t.record(outcomes...)
	return t.took
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
