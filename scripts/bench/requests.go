package main

import (
	"context"
	"fmt"
)

// measureRequests counts what single calls ask of the API server.
func measureRequests(ctx context.Context, b *bench) (table, error) {
	t := table{
		Title: "Requests and bytes of one call",
		Note: fmt.Sprintf("The mean of %d calls, one at a time. Bytes are those on the wire, with TLS and its handshake. "+
			"Four networks are four calls.", b.plan.counted),
		Columns: []string{"call", "requests", "sent", "received", "bytes / floor"},
	}
	p, err := newProxy(b.apiServer(nil))
	if err != nil {
		return t, err
	}
	defer p.close()
	floor, err := b.floorTraffic(ctx, p)
	if err != nil {
		return t, err
	}
	floor.addTo(&t, "the floor: GET and CREATE", b.plan.counted, floor)
	for _, k := range kinds() {
		add, del, err := b.traffic(ctx, p, k)
		if err != nil {
			return t, err
		}
		add.addTo(&t, "ADD, "+k.name, b.plan.counted, floor)
		del.addTo(&t, "DEL, "+k.name, b.plan.counted, floor)
	}
	return t, nil
}

// floorTraffic is that of the floor's program.
func (b *bench) floorTraffic(ctx context.Context, p *proxy) (all traffic, err error) {
	f, err := b.newFloor(ctx, p)
	if err != nil {
		return all, err
	}
	all = p.during(func() { _, err = f.requests(ctx, b.plan.counted, 1) })
	return all, err
}

// traffic is that of pods of a kind that come and go while one stays.
func (b *bench) traffic(ctx context.Context, p *proxy, k kind) (add, del traffic, err error) {
	s, err := b.newSite(ctx, "requests", p)
	if err != nil {
		return add, del, err
	}
	l, err := b.newLane(s, k)
	if err != nil {
		return add, del, err
	}
	staying := l.add(ctx, "staying")
	for i := range b.plan.counted {
		pod := fmt.Sprint("pod-", i)
		var added, deleted []outcome
		add = add.and(p.during(func() { added = l.add(ctx, pod) }))
		del = del.and(p.during(func() { deleted = l.del(ctx, pod) }))
		if err := failed(append(added, deleted...)); err != nil {
			b.problem(k.name, err)
			break
		}
	}
	b.checkAndClear(ctx, l, staying)
	return add, del, nil
}

// addTo adds a row for one of n calls.
func (t traffic) addTo(to *table, label string, n int, floor traffic) {
	each := func(sum int64) float64 { return float64(sum) / float64(n) }
	to.add(label, decimal(each(t.requests)), kibibytes(each(t.sent)), kibibytes(each(t.received)),
		ratio(float64(t.sent+t.received)/float64(floor.sent+floor.received)))
}
