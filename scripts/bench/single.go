package main

import (
	"context"
	"fmt"
)

// visits are how long pods took to come and go one at a time, in turn with the
// floor.
type visits struct{ add, del, floor sample }

// measureSingle makes one call at a time.
func measureSingle(ctx context.Context, b *bench) (table, error) {
	t := table{
		Title: "One at a time",
		Note: fmt.Sprintf("%d calls of each kind, in turn with a program that makes one GET and one CREATE (the floor). "+
			"Four networks are four calls one after another, and the floor's program four times.", b.plan.singles),
		Columns: timeColumns(),
	}
	for _, k := range kinds() {
		v, err := b.visits(ctx, k)
		if err != nil {
			return t, err
		}
		addTimesOver(&t, "ADD, "+k.name, v.add, v.floor)
		addTimesOver(&t, "DEL, "+k.name, v.del, v.floor)
	}
	return t, nil
}

func timeColumns() []string {
	return []string{"call", "median", "floor's median", "median / floor", "p99", "floor's p99", "p99 / floor"}
}

// addTimesOver adds a row for timeColumns.
func addTimesOver(t *table, label string, took, floor sample) {
	t.add(label,
		milliseconds(took.median()), milliseconds(floor.median()), over(took.median(), floor.median()),
		milliseconds(took.p99()), milliseconds(floor.p99()), over(took.p99(), floor.p99()))
}

// visits has pods of a kind come and go while one stays.
func (b *bench) visits(ctx context.Context, k kind) (visits, error) {
	var v visits
	s, err := b.newSite(ctx, "single", nil)
	if err != nil {
		return v, err
	}
	l, err := b.newLane(s, k)
	if err != nil {
		return v, err
	}
	staying := l.add(ctx, "staying")
	for i := range b.plan.singles {
		floor, err := l.floor(ctx)
		if err != nil {
			return v, err
		}
		add, del, err := l.visit(ctx, fmt.Sprint("pod-", i), staying)
		if err != nil {
			b.problem(k.name, err)
			break
		}
		v.add, v.del, v.floor = append(v.add, add), append(v.del, del), append(v.floor, floor)
	}
	b.checkAndClear(ctx, l, staying)
	return v, nil
}

// checkAndClear makes sure that a site holds what the pods that stay were given,
// and nothing once they are gone.
func (b *bench) checkAndClear(ctx context.Context, l lane, staying []outcome) {
	held, err := granted(staying)
	if err == nil {
		err = l.site.check(ctx, held, l.kind.protected)
	}
	if err == nil {
		err = failed(l.del(ctx, "staying"))
	}
	if err == nil {
		err = b.settled(ctx, l.site, []node{l.node}, l.configs[0], nil, l.kind.protected)
	}
	if err != nil {
		b.problem(l.kind.name, err)
	}
}
