package commands

import (
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// maxPoolSeries bounds the series of pools, whatever a cluster has: those beyond
// are one together.
const maxPoolSeries = 1000

// reconcileFigures are the metrics of the clean-up.
type reconcileFigures struct {
	size, used, free gaugeFamily

	freed, completed, failed        counterFamily
	waiting, unreadable, duplicates gaugeFamily
	records                         gaugeFamily

	passes   counterFamily
	duration histogramFamily
	success  gaugeFamily
}

func newReconcileFigures(m *metrics) *reconcileFigures {
	const perPool = " The slices of a network that are cut by node count as one pool."
	return &reconcileFigures{
		size: m.gauge("whereabouts_pool_addresses", "Usable addresses of the pool's range, from the first to the last that its definitions name; what they exclude is not subtracted."+perPool, "namespace", "pool"),
		used: m.gauge("whereabouts_pool_used_addresses", "Addresses of the pool that are recorded as held."+perPool, "namespace", "pool"),
		free: m.gauge("whereabouts_pool_free_addresses", "Addresses of the pool that nobody holds and no definition excludes; at zero no pod starts that needs one."+perPool, "namespace", "pool"),

		freed:      m.counter("whereabouts_reconcile_orphans_freed_total", "Addresses freed because nobody held them any more. Many mean that releases by the nodes get lost: nodes that fail, or a datastore that cannot be reached."),
		completed:  m.counter("whereabouts_reconcile_half_records_completed_total", "Records of live pods of which one half was missing, and that were made whole. Some mean that a process was killed between two writes, or that an older version deleted a reservation by mistake."),
		failed:     m.counter("whereabouts_reconcile_failures_total", "Addresses that should have been freed, or records completed, and could not. The log has the reasons; they are tried again."),
		waiting:    m.gauge("whereabouts_reconcile_orphans_waiting", "Addresses that seem to be held by nobody and will be freed if that is still so after the grace time."),
		unreadable: m.gauge("whereabouts_reconcile_unreadable_entries", "Stored entries and pools that cannot be understood and are left as they are. An entry may block an address, and a pool all of its pods, until a person corrects it: ip-control check names them."),
		duplicates: m.gauge("whereabouts_reconcile_duplicate_addresses", "Addresses that two pools of one network record. Two pods may use the same one; where overlap protection is off that may be meant."),
		records:    m.gauge("whereabouts_reconcile_records", "Records that the last pass looked at."),

		passes:   m.counter("whereabouts_reconcile_passes_total", "Passes over all records, by what caused them and how they ended; those that failed could not read the cluster or could not free something.", "reason", "result"),
		duration: m.histogram("whereabouts_reconcile_pass_duration_seconds", "How long passes took.", []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300}),
		success:  m.gauge("whereabouts_reconcile_last_success_timestamp_seconds", "When the last pass ended that did not fail, in seconds since 1970; zero before the first one."),
	}
}

// passed takes down one pass.
func (f *reconcileFigures) passed(reason passReason, o outcome, took time.Duration, now time.Time) {
	result := "success"
	if o.failed() {
		result = "failure"
	}
	f.passes.add(1, string(reason), result)
	f.duration.observe(took.Seconds())
	f.freed.add(float64(o.Freed))
	f.completed.add(float64(o.Completed))
	f.failed.add(float64(o.Failed))
	if o.read {
		f.waiting.set(float64(o.Waiting))
		f.unreadable.set(float64(o.Unreadable))
		f.duplicates.set(float64(o.Duplicates))
		f.records.set(float64(o.Records))
	}
	if !o.failed() {
		f.success.set(float64(now.UnixMilli()) / 1000)
	}
}

// poolFigures are those of one series.
type poolFigures struct{ size, used, free float64 }

func (p poolFigures) and(o poolFigures) poolFigures {
	return poolFigures{p.size + o.size, p.used + o.used, p.free + o.free}
}

type poolLabels struct{ namespace, pool string }

// pools takes down how full pools are, counted as their status is. ranges are those of
// the definitions that name a pool.
func (f *reconcileFigures) pools(snapshots map[string]*ipam.Snapshot, ranges func(ipam.PoolID) []ipam.Range) {
	all := map[poolLabels]poolFigures{}
	for namespace, snapshot := range snapshots {
		for _, p := range snapshot.Pools {
			labels := poolLabels{namespace, poolLabel(p.ID)}
			u := ipam.UsageOf(p, ranges(p.ID)...)
			all[labels] = all[labels].and(poolFigures{float(u.Total), float64(u.Used), float(u.Free)})
		}
	}
	all = fold(all)
	for gauge, value := range map[gaugeFamily]func(poolFigures) float64{
		f.size: func(p poolFigures) float64 { return p.size },
		f.used: func(p poolFigures) float64 { return p.used },
		f.free: func(p poolFigures) float64 { return p.free },
	} {
		gauge.replace(func(set func(float64, ...string)) {
			for labels, figures := range all {
				set(value(figures), labels.namespace, labels.pool)
			}
		})
	}
}

// poolLabel is the name of the pool's object; the slices of a network share one, or
// there would be as many series as nodes.
func poolLabel(id ipam.PoolID) string {
	if id.Node == "" {
		return kube.PoolName(id)
	}
	if id.Network == "" {
		return "node slices"
	}
	return "node slices of " + id.Network
}

// float is exact enough for IPv6.
func float(n *big.Int) float64 {
	f, _ := new(big.Float).SetInt(n).Float64()
	return f
}

// fold puts together what is more than maxPoolSeries, of each namespace, in the order
// of names.
func fold(all map[poolLabels]poolFigures) map[poolLabels]poolFigures {
	if len(all) <= maxPoolSeries {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), poolLabels.compare)
	folded := map[poolLabels]poolFigures{}
	for i, labels := range names {
		figures := all[labels]
		if i >= maxPoolSeries {
			labels.pool = "others"
		}
		folded[labels] = folded[labels].and(figures)
	}
	return folded
}

func (l poolLabels) compare(o poolLabels) int {
	return slices.Compare([]string{l.namespace, l.pool}, []string{o.namespace, o.pool})
}
