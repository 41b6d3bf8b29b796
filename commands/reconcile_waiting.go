package commands

import (
	"context"
	"fmt"
	"log/slog"
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
	period time.Time       // a multiple of tellWaitingAgain, the same for all processes
	told   map[string]bool // in this period
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
		w.period, w.told = period, map[string]bool{}
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
	for _, pod := range waiting {
		for _, snapshot := range snapshots {
			for _, pool := range snapshot.Pools {
				if pod.From(pool.ID) {
					w.compare(pod, pool)
				}
			}
		}
	}
}

// compare tells a pod what is wrong with a pool of its network.
func (w *waitingTeller) compare(pod kube.Waiting, pool *ipam.Pool) {
	for _, a := range pod.Asked {
		if r, held := pool.Records[a]; held && !isOf(r, pod.Pod) {
			w.post(pod, reasonHeld, a.String(), fmt.Sprintf(
				"network %s: the requested address %s is held by %s (IPPool %s); request another one, or end its holder",
				pod.Network, a, r.Holder(), kube.PoolName(pool.ID)))
		}
	}
	if len(pod.Asked) > 0 || holds(pool, pod.Pod) {
		return
	}
	if u := ipam.UsageOf(pool, w.ranges(pool.ID)...); u.Free.Sign() <= 0 {
		w.post(pod, reasonExhausted, kube.PoolName(pool.ID), fmt.Sprintf(
			"network %s: no free address in %s (IPPool %s): %d in use, %s of %s usable addresses excluded; "+
				"end pods that use the network, or widen its range",
			pod.Network, pool.ID.Range, kube.PoolName(pool.ID), u.Used, u.Excluded, u.Total))
	}
}

func (w *waitingTeller) post(pod kube.Waiting, reason, about, message string) {
	once := fmt.Sprint(pod.Pod.UID, " ", reason, " ", pod.Network, " ", about, " ", w.period.Unix())
	if w.told[once] {
		return
	}
	w.told[once] = true
	w.events.Event(reclaim.Event{Pod: *pod.Pod, Warning: true, Reason: reason, Message: message, Once: once})
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
