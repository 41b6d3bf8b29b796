package commands

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func poolOf(network, node, cidr string, held int) *ipam.Pool {
	p := &ipam.Pool{ID: ipam.PoolID{Network: network, Node: node, Range: netip.MustParsePrefix(cidr)}, Records: map[netip.Addr]ipam.Record{}}
	a := p.ID.Range.Addr()
	for range held {
		a = a.Next()
		p.Records[a] = ipam.Record{ContainerID: "c"}
	}
	return p
}

func TestPoolMetrics(t *testing.T) {
	m := newMetrics()
	f := newReconcileFigures(m)
	f.pools(map[string]*ipam.Snapshot{
		"old": {Pools: []*ipam.Pool{poolOf("", "", "10.9.0.0/24", 1)}},
	}, noRanges)
	f.pools(map[string]*ipam.Snapshot{
		"kube-system": {Pools: []*ipam.Pool{
			poolOf("", "", "10.0.0.0/29", 4), poolOf("net", "", "fd00::/64", 2), poolOf("", "", "10.1.0.0/31", 1),
			poolOf("net", "node-1", "10.2.0.0/26", 3), poolOf("net", "node-2", "10.2.0.64/26", 5), poolOf("", "node-1", "10.3.0.0/26", 1),
		}},
		"other": {Pools: []*ipam.Pool{poolOf("", "", "10.0.0.0/29", 0)}},
		"empty": {},
	}, noRanges)
	e := scrape(t, m)
	for labels, want := range map[string][3]float64{ // size, used, free
		`{namespace="kube-system",pool="10.0.0.0-29"}`:        {6, 4, 2},
		`{namespace="other",pool="10.0.0.0-29"}`:              {6, 0, 6},
		`{namespace="kube-system",pool="10.1.0.0-31"}`:        {2, 1, 1},
		`{namespace="kube-system",pool="net-fd00---64"}`:      {1<<64 - 2, 2, 1<<64 - 4},
		`{namespace="kube-system",pool="node slices of net"}`: {127, 8, 119},
		`{namespace="kube-system",pool="node slices"}`:        {63, 1, 62},
	} {
		e.want(t, map[string]float64{
			"whereabouts_pool_addresses" + labels: want[0], "whereabouts_pool_used_addresses" + labels: want[1],
			"whereabouts_pool_free_addresses" + labels: want[2],
		})
	}
	for series := range e.values {
		if strings.Contains(series, "old") {
			t.Errorf("%s is gone and still shown", series)
		}
	}
}

func noRanges(ipam.PoolID) []ipam.Range { return nil }

// What is excluded is not free, or a pool would never be full.
func TestPoolMetricsCountAsTheStatusDoes(t *testing.T) {
	r, _, err := ipam.ParseRange(ipam.RangeSpec{Range: "10.0.0.0/24", Start: "10.0.0.1", End: "10.0.0.10", Exclude: []string{"10.0.0.5-10.0.0.10"}})
	if err != nil {
		t.Fatal(err)
	}
	m := newMetrics()
	newReconcileFigures(m).pools(map[string]*ipam.Snapshot{"ns": {Pools: []*ipam.Pool{poolOf("", "", "10.0.0.0/24", 4)}}},
		func(ipam.PoolID) []ipam.Range { return []ipam.Range{r} })
	const labels = `{namespace="ns",pool="10.0.0.0-24"}`
	scrape(t, m).want(t, map[string]float64{
		"whereabouts_pool_addresses" + labels: 10, "whereabouts_pool_used_addresses" + labels: 4, "whereabouts_pool_free_addresses" + labels: 0,
	})
}

func TestManyPoolsAreFewSeries(t *testing.T) {
	m := newMetrics()
	snapshot := &ipam.Snapshot{}
	for i := range maxPoolSeries + 500 {
		snapshot.Pools = append(snapshot.Pools, poolOf(fmt.Sprintf("net%05d", i), "", "10.0.0.0/29", 1))
	}
	newReconcileFigures(m).pools(map[string]*ipam.Snapshot{"ns": snapshot}, noRanges)
	e := scrape(t, m)
	series := 0
	for name := range e.values {
		if strings.HasPrefix(name, "whereabouts_pool_used_addresses{") {
			series++
		}
	}
	if series != maxPoolSeries+1 {
		t.Errorf("%d series", series)
	}
	e.want(t, map[string]float64{`whereabouts_pool_used_addresses{namespace="ns",pool="others"}`: 500})
}

func TestPassMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		passes := []report{
			{Records: 10, Freed: 2, Completed: 1, Waiting: 3, Unreadable: 4, Duplicates: 5},
			{Records: 8, Failed: 1, Unreadable: 1},
			{Records: 8, Freed: 1},
		}
		f.clean = func(context.Context, string) report {
			time.Sleep(2 * time.Second)
			return passes[len(f.looks())-1]
		}
		f.running(f.reconciler(never), func() {
			time.Sleep(10 * time.Second)
			ended := float64(f.began.Add(2 * time.Second).Unix())
			scrape(t, f.metrics).want(t, map[string]float64{
				"whereabouts_reconcile_orphans_freed_total":                           2,
				"whereabouts_reconcile_half_records_completed_total":                  1,
				"whereabouts_reconcile_orphans_waiting":                               3,
				"whereabouts_reconcile_unreadable_entries":                            4,
				"whereabouts_reconcile_duplicate_addresses":                           5,
				"whereabouts_reconcile_records":                                       10,
				"whereabouts_reconcile_failures_total":                                0,
				"whereabouts_reconcile_last_success_timestamp_seconds":                ended,
				`whereabouts_reconcile_passes_total{reason="start",result="success"}`: 1,
				"whereabouts_reconcile_pass_duration_seconds_sum":                     2,
			})
			f.change()
			time.Sleep(10 * time.Second)
			scrape(t, f.metrics).want(t, map[string]float64{
				"whereabouts_reconcile_failures_total":                                 1,
				"whereabouts_reconcile_orphans_waiting":                                0,
				"whereabouts_reconcile_unreadable_entries":                             1,
				"whereabouts_reconcile_last_success_timestamp_seconds":                 ended,
				`whereabouts_reconcile_passes_total{reason="change",result="failure"}`: 1,
			})
			time.Sleep(time.Minute)
		})
		e := scrape(t, f.metrics)
		e.want(t, map[string]float64{
			"whereabouts_reconcile_orphans_freed_total":                         3,
			"whereabouts_reconcile_pass_duration_seconds_count":                 3,
			`whereabouts_reconcile_passes_total{reason="due",result="success"}`: 1,
		})
		for _, name := range e.order {
			if !strings.HasPrefix(name, "whereabouts_") || len(e.help[name]) < 20 {
				t.Errorf("%s has help %q", name, e.help[name])
			}
			if isCounter := e.types[name] == "counter"; isCounter != strings.HasSuffix(name, "_total") {
				t.Errorf("%s is a %s", name, e.types[name])
			}
		}
		if !slices.IsSorted(e.order) {
			t.Errorf("order: %v", e.order)
		}
	})
}
