package commands

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	reasonExhausted = "IPPoolExhausted"
	reasonHeld      = "RequestedIPHeld"

	// waitingInterval lies between two looks at pods that do not start.
	waitingInterval = 10 * time.Second

	// tellWaitingAgain is how often one pod is told the same.
	tellWaitingAgain = 5 * time.Minute

	// exhaustedInterval lies between two events about one pool, so that a thousand
	// pods that wait for it are no flood. What the plugin says reaches each of them
	// by the runtime all the same.
	exhaustedInterval = time.Minute
)

// waitingTeller posts events on pods that wait for an address: the pool has none left,
// or another pod holds the one that was asked for. The plugin cannot: its credentials
// lie on every node and reach nothing but its own resources.
type waitingTeller struct {
	stored  stored
	waiting func() []kube.Waiting
	ranges  func(ipam.PoolID) []ipam.Range
	events  reclaim.Recorder
	now     func() time.Time
	log     *slog.Logger

	last   time.Time
	period time.Time            // a multiple of tellWaitingAgain, the same for all processes
	told   map[string]bool      // in this period
	full   map[string]time.Time // when somebody was last told of a pool, by name
}

// due is when the next look is; a nil teller never looks.
func (w *waitingTeller) due() time.Time {
	if w == nil {
		return time.Time{}
	}
	return w.last.Add(waitingInterval)
}

// tell looks at all waiting pods, if it is time to.
func (w *waitingTeller) tell(ctx context.Context) {
	if w == nil || w.now().Before(w.due()) {
		return
	}
	w.last = w.now()
	if period := w.last.Truncate(tellWaitingAgain); !period.Equal(w.period) || w.told == nil {
		w.period, w.told, w.full = period, map[string]bool{}, map[string]time.Time{}
	}
	waiting := w.waiting()
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	snapshots, err := w.stored.Snapshots(ctx, false)
	if err != nil {
		w.log.Debug("pods that wait cannot be told why", "error", err)
	}
	// All processes go through them in one order, so that they tell the same ones.
	slices.SortFunc(waiting, func(a, b kube.Waiting) int {
		return cmp.Or(cmp.Compare(a.Pod.UID, b.Pod.UID), cmp.Compare(a.Network, b.Network))
	})
	for _, snapshot := range snapshots {
		for _, pool := range slices.Concat(snapshot.Pools, unwritten(snapshot, waiting)) {
			w.compare(snapshot, pool, slices.DeleteFunc(slices.Clone(waiting), func(p kube.Waiting) bool { return !p.From(pool.ID) }))
		}
	}
}

// unwritten are the pools that nobody has an address of yet, and that pods ask for one
// of by number: another pool may have it.
func unwritten(snapshot *ipam.Snapshot, waiting []kube.Waiting) (pools []*ipam.Pool) {
	known := map[ipam.PoolID]bool{}
	for _, pool := range snapshot.Pools {
		known[pool.ID] = true
	}
	for _, pod := range waiting {
		for _, a := range pod.Asked {
			if id, ok := pod.Pool(a); ok && !known[id] {
				known[id] = true
				pools = append(pools, &ipam.Pool{ID: id})
			}
		}
	}
	return pools
}

// compare tells pods that wait for addresses of a pool what is wrong there: each that
// asked for one by number, and one of the others.
func (w *waitingTeller) compare(snapshot *ipam.Snapshot, pool *ipam.Pool, pods []kube.Waiting) {
	var others []kube.Waiting
	for _, pod := range pods {
		asked := false
		for _, a := range pod.Asked {
			if !pool.ID.Range.Contains(a) {
				continue
			}
			asked = true
			if r, in := holderOf(snapshot, pool, pod, a); in != nil {
				w.post(pod, reasonHeld, a.String(), fmt.Sprintf(
					"network %s: the requested address %s is held by %s (IPPool %s); request another one, or end its holder",
					pod.Network, a, r.Holder(), kube.PoolName(in.ID)))
			}
		}
		if !asked && !holds(pool, pod.Pod) && !w.elsewhere(snapshot, pool, pod) {
			others = append(others, pod)
		}
	}
	w.tellFull(pool, others)
}

// holderOf finds another pod that has an address in a pool, or in another pool of the
// same network_name if that counts. Without one the pool it answers is nil.
func holderOf(snapshot *ipam.Snapshot, pool *ipam.Pool, pod kube.Waiting, a netip.Addr) (ipam.Record, *ipam.Pool) {
	candidates := []*ipam.Pool{pool}
	if pod.Alone(pool.ID) {
		candidates = append(candidates, snapshot.Pools...)
	}
	for _, p := range candidates {
		if r, held := p.Records[a]; held && p.ID.Network == pool.ID.Network && !isOf(r, pod.Pod) {
			return r, p
		}
	}
	return ipam.Record{}, nil
}

// elsewhere reports whether the pod has, or can have, an address of another slice.
func (w *waitingTeller) elsewhere(snapshot *ipam.Snapshot, pool *ipam.Pool, pod kube.Waiting) bool {
	return slices.ContainsFunc(snapshot.Pools, func(p *ipam.Pool) bool {
		return p != pool && pod.Instead(pool.ID, p.ID) && (holds(p, pod.Pod) || w.usage(p).Free.Sign() > 0)
	})
}

func (w *waitingTeller) usage(pool *ipam.Pool) ipam.Usage {
	return ipam.UsageOf(pool, w.ranges(pool.ID)...)
}

// tellFull tells one of the pods, if the pool has nothing for them: the next one that
// has not been told, and not before exhaustedInterval is over.
func (w *waitingTeller) tellFull(pool *ipam.Pool, pods []kube.Waiting) {
	name := kube.PoolName(pool.ID)
	if len(pods) == 0 || w.now().Before(w.full[name].Add(exhaustedInterval)) {
		return
	}
	u := w.usage(pool)
	if u.Free.Sign() > 0 {
		return
	}
	for _, pod := range pods {
		text := fmt.Sprintf("network %s: no free address in %s (IPPool %s): %d in use, %s of %s usable addresses excluded; "+
			"end pods that use the network, or widen its range", pod.Network, pool.ID.Range, name, u.Used, u.Excluded, u.Total)
		if w.post(pod, reasonExhausted, name, text) {
			w.full[name] = w.now()
			return
		}
	}
}

// post reports whether it is news.
func (w *waitingTeller) post(pod kube.Waiting, reason, about, message string) bool {
	once := fmt.Sprint(pod.Pod.UID, " ", reason, " ", pod.Network, " ", about, " ", w.period.Unix())
	if w.told[once] {
		return false
	}
	w.told[once] = true
	w.events.Event(reclaim.Event{Pod: *pod.Pod, Warning: true, Reason: reason, Message: message, Once: once})
	return true
}

func holds(pool *ipam.Pool, p *reclaim.Pod) bool {
	for _, r := range pool.Records {
		if isOf(r, p) {
			return true
		}
	}
	return false
}

// isOf reports whether a record is the pod's. Those of old versions have no UID.
func isOf(r ipam.Record, p *reclaim.Pod) bool {
	if r.UID != "" {
		return r.UID == p.UID || slices.Contains(p.OtherUIDs, r.UID)
	}
	return r.PodRef == p.Namespace+"/"+p.Name
}
