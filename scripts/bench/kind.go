package main

import (
	"context"
	"fmt"
	"time"
)

// kind is a kind of pod: the networks it has an interface on. Its ADDs are made one
// after another, as by Multus.
type kind struct {
	name      string
	protected bool // by overlap protection
	networks  []Object
}

func kinds() []kind {
	var four []Object
	for i := range 4 {
		four = append(four, Object{"range": fmt.Sprintf("10.%d.0.0/24", 21+i)})
	}
	return []kind{
		{"overlap protection on", true, []Object{{"range": "10.20.0.0/24"}}},
		{"overlap protection off", false, []Object{{"range": "10.20.0.0/24", "enable_overlapping_ranges": false}}},
		{"dual-stack", true, []Object{{"ipRanges": []Object{{"range": "10.20.0.0/24"}, {"range": "fd00:20::/64"}}}}},
		{"four networks", true, four},
	}
}

// lane makes pods of one kind on one node of a site.
type lane struct {
	bench   *bench
	site    *site
	kind    kind
	node    node
	configs []string // one of each network
}

func (b *bench) newLane(s *site, k kind) (lane, error) {
	l := lane{bench: b, site: s, kind: k, node: s.nodes(1)[0]}
	for i, ipam := range k.networks {
		config, err := s.network(fmt.Sprint("net-", i+1), ipam)
		if err != nil {
			return l, err
		}
		l.configs = append(l.configs, config)
	}
	return l, nil
}

// all makes one call for each interface of a pod.
func (l lane) all(ctx context.Context, verb, pod string) []outcome {
	var outcomes []outcome
	for i, config := range l.configs {
		outcomes = append(outcomes, l.bench.run(ctx, l.site.call(verb, l.node, pod, fmt.Sprint("net", i+1), config)))
	}
	return outcomes
}

func (l lane) add(ctx context.Context, pod string) []outcome { return l.all(ctx, "ADD", pod) }
func (l lane) del(ctx context.Context, pod string) []outcome { return l.all(ctx, "DEL", pod) }

// total is how long calls took that were made one after another.
func total(outcomes []outcome) time.Duration {
	var sum time.Duration
	for _, o := range outcomes {
		sum += o.took
	}
	return sum
}

func failed(outcomes []outcome) error {
	for _, o := range outcomes {
		if o.err != nil {
			return o.err
		}
	}
	return nil
}

// visit makes a pod come and go while others stay, and answers how long each took.
// An error is a problem of the plugin.
func (l lane) visit(ctx context.Context, pod string, staying []outcome) (add, del time.Duration, err error) {
	added := l.add(ctx, pod)
	if _, err := granted(append(added[:len(added):len(added)], staying...)); err != nil {
		return 0, 0, err
	}
	deleted := l.del(ctx, pod)
	return total(added), total(deleted), failed(deleted)
}

// floor is the program request as often as the kind has networks.
func (l lane) floor(ctx context.Context) (time.Duration, error) {
	var sum time.Duration
	for range l.configs {
		took, err := l.bench.floor.request(ctx)
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum, nil
}
