package main

import (
	"context"
	"fmt"
)

// flood is many ADDs of pods with one interface.
type flood struct {
	site   *site
	config string
	nodes  []node // pods are spread over them in turn
	pods   int
	atOnce int
}

// add makes the ADDs.
func (b *bench) add(ctx context.Context, f flood) ([]outcome, crowd) {
	return b.all(ctx, f, "ADD", f.atOnce)
}

// del makes the DELs of the same pods.
func (b *bench) del(ctx context.Context, f flood) []outcome {
	outcomes, _ := b.all(ctx, f, "DEL", b.plan.most())
	return outcomes
}

func (b *bench) all(ctx context.Context, f flood, verb string, workers int) ([]outcome, crowd) {
	outcomes := make([]outcome, f.pods)
	wall := atOnce(f.pods, workers, func(i int) {
		c := f.site.call(verb, f.nodes[i%len(f.nodes)], fmt.Sprint("pod-", i), "net1", f.config)
		outcomes[i] = b.run(ctx, c)
	})
	return outcomes, crowd{took: durations(outcomes), wall: wall}
}

const (
	floodRange = "10.30.0.0/16"
	floodSlice = "/24"
)

// newFlood prepares ADDs of all pods of the plan.
func (b *bench) newFlood(s *site, nodes, atOnce int, ipam Object) (flood, error) {
	config, err := s.network("net-a", ipam)
	return flood{site: s, config: config, nodes: s.nodes(nodes), pods: b.plan.burst, atOnce: atOnce}, err
}

// wave is what a flood is made of.
type wave struct {
	nodes, atOnce int
	sliced        bool // each node has a slice of the range
	etcd          bool // the records are in etcd
}

// newLoggedFlood has the plugin write a log, which tells its batches.
func (b *bench) newLoggedFlood(ctx context.Context, w wave, via *proxy) (flood, error) {
	newSite := b.newSite
	if w.etcd {
		newSite = b.newEtcdSite
	}
	s, err := newSite(ctx, "burst", via)
	if err != nil {
		return flood{}, err
	}
	ipam := Object{"range": floodRange, "log_file": s.path("log"), "log_level": "verbose"}
	if w.sliced {
		ipam["node_slice_size"] = floodSlice
		if err := s.createSlices(ctx, w.nodes); err != nil {
			return flood{}, err
		}
	}
	return b.newFlood(s, w.nodes, w.atOnce, ipam)
}

// floodFigures are what a flood took.
type floodFigures struct {
	ours, floor crowd
	batches     int     // 0 for unknown
	requests    float64 // for each ADD
}

// flood measures ADDs in the middle of as many runs of the floor's program, and then
// counts requests in a second pass.
func (b *bench) flood(ctx context.Context, w wave) (floodFigures, error) {
	var figures floodFigures
	half := b.plan.burst / 2
	before, err := b.floor.requests(ctx, half, w.atOnce)
	if err != nil {
		return figures, err
	}
	f, err := b.newLoggedFlood(ctx, w, nil)
	if err != nil {
		return figures, err
	}
	adds, ours := b.add(ctx, f)
	after, err := b.floor.requests(ctx, half, w.atOnce)
	if err != nil {
		return figures, err
	}
	figures.ours, figures.floor = ours, before.and(after)
	sizes, err := batchesIn(f.site.path("log"))
	if err == nil && sum(sizes) < f.pods {
		err = fmt.Errorf("the plugin's log tells of %d calls in batches, want %d", sum(sizes), f.pods)
	}
	if err != nil {
		b.report.Notes = append(b.report.Notes, fmt.Sprintf("%s: the number of batches is unknown: %v", f.label(), err))
		sizes = nil
	}
	figures.batches = len(sizes)
	b.checkFlood(ctx, f, adds)
	figures.requests, err = b.floodRequests(ctx, w)
	return figures, err
}

func (f flood) label() string {
	return fmt.Sprintf("%d at once on %s", f.atOnce, plural(len(f.nodes), "node"))
}

// floodRequests counts the requests of each ADD of a flood.
func (b *bench) floodRequests(ctx context.Context, w wave) (float64, error) {
	server, ca := b.apiServer(nil)
	if w.etcd {
		server, ca = b.cp.Etcd.Endpoints(), nil
	}
	p, err := newProxy(server, ca)
	if err != nil {
		return 0, err
	}
	defer p.close()
	f, err := b.newLoggedFlood(ctx, w, p)
	if err != nil {
		return 0, err
	}
	var adds []outcome
	counted := p.during(func() { adds, _ = b.add(ctx, f) })
	b.checkFlood(ctx, f, adds)
	return float64(counted.requests) / float64(f.pods), nil
}

// checkFlood makes sure that all ADDs succeeded with different addresses, that just
// these are recorded, and that nothing is once they are released.
func (b *bench) checkFlood(ctx context.Context, f flood, adds []outcome) {
	held, err := granted(adds)
	if err == nil {
		err = f.site.check(ctx, held, true)
	}
	if err == nil {
		err = failed(b.del(ctx, f))
	}
	if err == nil {
		err = b.settled(ctx, f.site, f.nodes, f.config, nil, true)
	}
	if err != nil {
		b.problem(f.label(), err)
	}
}

func measureBurst(ctx context.Context, b *bench) (table, error) {
	t := floodTable(fmt.Sprintf("%d ADDs on one node", b.plan.burst),
		"The floor is the program with one GET and one CREATE, as many at once: its rate, p50 and p99.")
	for _, n := range b.plan.atOnce {
		figures, err := b.flood(ctx, wave{nodes: 1, atOnce: n})
		if err != nil {
			return t, err
		}
		figures.addTo(&t, fmt.Sprintf("%d at once", n))
	}
	return t, nil
}

func measureNodes(ctx context.Context, b *bench) (table, error) {
	t := floodTable(fmt.Sprintf("%d ADDs on %d nodes", b.plan.burst, b.plan.nodes),
		"The nodes are names and directories of one machine. With slices each of them has a "+floodSlice+
			" of the range for itself; without, all write to one pool. The floor is as above.")
	for _, sliced := range []bool{false, true} {
		figures, err := b.flood(ctx, wave{nodes: b.plan.nodes, atOnce: b.plan.most(), sliced: sliced})
		if err != nil {
			return t, err
		}
		label := fmt.Sprintf("%d at once", b.plan.most())
		if sliced {
			label += ", with slices"
		}
		figures.addTo(&t, label)
	}
	return t, nil
}

// measureEtcd makes the same floods with the records in etcd.
func measureEtcd(ctx context.Context, b *bench) (table, error) {
	t := floodTable(fmt.Sprintf("%d ADDs with the datastore etcd", b.plan.burst),
		"The records are in an etcd of one member, which is the API server's, too. The floor is as above: it is the API server's.")
	add := func(nodes, atOnce int) error {
		figures, err := b.flood(ctx, wave{nodes: nodes, atOnce: atOnce, etcd: true})
		if err == nil {
			figures.addTo(&t, fmt.Sprintf("%d at once on %s", atOnce, plural(nodes, "host")))
		}
		return err
	}
	for _, n := range b.plan.atOnce {
		if err := add(1, n); err != nil {
			return t, err
		}
	}
	return t, add(b.plan.nodes, b.plan.most())
}

func floodTable(title, note string) table {
	return table{Title: title, Note: note, Columns: []string{
		"calls", "rate", "rate / floor", "p50", "p50 / floor", "p99", "p99 / floor", "batches", "requests per ADD",
	}}
}

func (f floodFigures) addTo(t *table, label string) {
	t.add(
		label,
		perSecond(f.ours.rate()), ratio(f.ours.rate()/f.floor.rate()),
		milliseconds(f.ours.took.median()), over(f.ours.took.median(), f.floor.took.median()),
		milliseconds(f.ours.took.p99()), over(f.ours.took.p99(), f.floor.took.p99()),
		some(f.batches), decimal(f.requests),
	)
}
