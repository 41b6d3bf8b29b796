package main

import (
	"context"
	"fmt"
)

// part is one thing that is measured, and checked afterwards.
type part struct {
	name, about string
	measure     func(context.Context, *bench) (table, error)
}

// parts are all of them in the order of the report.
func parts() []part {
	return []part{
		{"start", "start-up", measureStart},
		{"single", "one call at a time", measureSingle},
		{"burst", "many at once on one node", measureBurst},
		{"nodes", "many at once on many nodes", measureNodes},
		{"etcd", "many at once on etcd", measureEtcd},
		{"records", "pools that hold records already", measureRecords},
		{"requests", "requests and bytes", measureRequests},
		{"peer", "the other plugin", measurePeer},
	}
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// measureStart runs VERSION, which does nothing, in turn with the empty program.
func measureStart(ctx context.Context, b *bench) (table, error) {
	s, err := b.newSite(ctx, "start", nil)
	if err != nil {
		return table{}, err
	}
	config, err := s.network("net-a", Object{"range": "10.10.0.0/24"})
	if err != nil {
		return table{}, err
	}
	var ours, empty sample
	version := s.call("VERSION", s.nodes(1)[0], "none", "net1", config)
	for range b.plan.starts {
		floor, err := b.floor.start(ctx)
		if err != nil {
			return table{}, err
		}
		o := b.run(ctx, version)
		if o.err != nil {
			b.problem("start", o.err)
			break
		}
		empty, ours = append(empty, floor), append(ours, o.took)
	}
	t := table{
		Title:   "Start-up",
		Note:    fmt.Sprintf("A whole process with CNI_COMMAND=VERSION, %d times, in turn with an empty Go program (the floor).", b.plan.starts),
		Columns: timeColumns(),
	}
	addTimesOver(&t, "VERSION", ours, empty)
	return t, nil
}
