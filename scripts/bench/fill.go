package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// filledRange has room for more than a pool can hold (an object is at most 1.5 MiB).
const (
	filledRange = "10.40.0.0/16"
	mostRecords = 50_000
)

// fill records n addresses at a site as if pods on another node had them: the lowest
// that are handed out.
func (s *site) fill(ctx context.Context, n int) (holders, error) {
	base := netip.MustParsePrefix(filledRange).Addr()
	held, allocations := holders{}, Object{}
	var addresses []netip.Addr
	for offset := 1; len(addresses) < n; offset++ {
		base = base.Next()
		if base.As4()[3] == 0 {
			continue // not handed out
		}
		container := fmt.Sprint("filled-", offset, "-sandbox")
		allocations[strconv.Itoa(offset)] = Object{
			"id": container, "podref": fmt.Sprint("bench/filled-", offset), "ifname": "net1", "gen": "0a0b0c0d",
		}
		held[base] = container
		addresses = append(addresses, base)
	}
	if n == 0 {
		return held, nil
	}
	if err := s.createPool(ctx, "10.40.0.0-16", filledRange, allocations); err != nil {
		return nil, err
	}
	errs := make([]error, n)
	atOnce(n, 16, func(i int) { errs[i] = s.reserve(ctx, addresses[i], held[addresses[i]]) })
	return held, firstOf(errs)
}

func (s *site) reserve(ctx context.Context, a netip.Addr, container string) error {
	return s.createReservation(ctx, reservationName(a), Object{
		"podref": "bench/filled", "ifname": "net1", "containerid": container, "node": "node-9", "network": "net-1",
		"range": filledRange, "since": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
	})
}

// filled is a pool that holds records already, and what calls took there.
type filled struct {
	lane     lane
	held     holders
	add, del sample
}

func (b *bench) newFilled(ctx context.Context, records int) (*filled, error) {
	s, err := b.newSite(ctx, "records", nil)
	if err != nil {
		return nil, err
	}
	held, err := s.fill(ctx, records)
	if err != nil {
		return nil, fmt.Errorf("filling a pool with %d records: %w", records, err)
	}
	l, err := b.newLane(s, kind{fmt.Sprint(records, " records"), true, []Object{{"range": filledRange}}})
	return &filled{lane: l, held: held}, err
}

// measureRecords has a pod come and go in each of the pools in turn.
func measureRecords(ctx context.Context, b *bench) (table, error) {
	t := table{
		Title:   "Pools that hold records already",
		Note:    fmt.Sprintf("%d calls to each pool, in turn. The floor is one GET and one CREATE.", b.plan.perPool),
		Columns: []string{"records", "ADD, median", "ADD / first row", "ADD / floor", "DEL, median", "DEL / first row", "DEL / floor"},
	}
	var all []*filled
	for _, records := range b.plan.records {
		f, err := b.newFilled(ctx, records)
		if err != nil {
			return t, err
		}
		all = append(all, f)
	}
	floor, err := b.visitFilled(ctx, all)
	if err != nil {
		return t, err
	}
	for i, f := range all {
		if err := b.settled(ctx, f.lane.site, []node{f.lane.node}, f.lane.configs[0], f.held, true); err != nil {
			b.problem(f.lane.kind.name, err)
		}
		add, del := f.add.median(), f.del.median()
		t.add(
			strconv.Itoa(b.plan.records[i]),
			milliseconds(add), over(add, all[0].add.median()), over(add, floor.median()),
			milliseconds(del), over(del, all[0].del.median()), over(del, floor.median()),
		)
	}
	return t, nil
}

// visitFilled answers what the floor took in between. The first round, which makes
// the empty pool, does not count.
func (b *bench) visitFilled(ctx context.Context, all []*filled) (sample, error) {
	var floors sample
	for round := range b.plan.perPool + 1 {
		floor, err := b.floor.request(ctx)
		if err != nil {
			return nil, err
		}
		floors = append(floors, floor)
		for _, f := range all {
			add, del, err := f.lane.visit(ctx, fmt.Sprint("pod-", round), nil)
			if err != nil {
				b.problem(f.lane.kind.name, err)
				return floors, nil
			}
			if round > 0 {
				f.add, f.del = append(f.add, add), append(f.del, del)
			}
		}
	}
	return floors, nil
}
