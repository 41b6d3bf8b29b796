package commands

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// toldEvents keeps what pods are told, as "pod reason".
type toldEvents struct{ all []string }

func (e *toldEvents) Event(event reclaim.Event) {
	e.all = append(e.all, event.Pod.Name+" "+event.Reason)
}

func waitingPod(name string, asked ...string) kube.Waiting {
	w := kube.Waiting{Pod: &reclaim.Pod{Namespace: "default", Name: name, UID: "uid-" + name}, Network: "default/net"}
	for _, a := range asked {
		w.Asked = append(w.Asked, netip.MustParseAddr(a))
	}
	return w
}

func newTeller(now *time.Time) (*waitingTeller, *toldEvents) {
	events := &toldEvents{}
	return &waitingTeller{
		ranges: func(ipam.PoolID) []ipam.Range { return nil }, events: events, now: func() time.Time { return *now },
		log: slog.New(slog.DiscardHandler), told: map[string]bool{}, full: map[string]time.Time{},
	}, events
}

func TestWhatWaitingPodsAreTold(t *testing.T) {
	t.Parallel()
	of := func(name string) ipam.Record {
		return ipam.Record{ContainerID: "c-" + name, PodRef: "default/" + name, UID: "uid-" + name}
	}
	old := ipam.Record{ContainerID: "c-old", PodRef: "default/old"} // without a UID
	full := map[string]ipam.Record{"10.0.0.1": of("x"), "10.0.0.2": of("y")}
	for _, tt := range []struct {
		name    string
		records map[string]ipam.Record
		pod     kube.Waiting
		want    []string
	}{
		{"a full pool", full, waitingPod("a"), []string{"a IPPoolExhausted"}},
		{"a pool with an address left", map[string]ipam.Record{"10.0.0.1": of("x")}, waitingPod("a"), nil},
		{"a full pool of which the pod has its address", full, waitingPod("x"), nil},
		{"the same with an old record", map[string]ipam.Record{"10.0.0.1": old, "10.0.0.2": of("y")}, waitingPod("old"), nil},
		{"a pod of that name before", map[string]ipam.Record{"10.0.0.1": {ContainerID: "c", PodRef: "default/a", UID: "gone"}, "10.0.0.2": of("y")}, waitingPod("a"), []string{"a IPPoolExhausted"}},
		{"an address that another one has", full, waitingPod("a", "10.0.0.2"), []string{"a RequestedIPHeld"}},
		{"an address that the pod itself has", full, waitingPod("y", "10.0.0.2"), nil},
		{"an address that is free", map[string]ipam.Record{"10.0.0.1": of("x")}, waitingPod("a", "10.0.0.2"), nil},
		{"an address of another range beside a full one", full, waitingPod("a", "fd00::1"), []string{"a IPPoolExhausted"}},
	} {
		now := time.Unix(0, 0)
		w, events := newTeller(&now)
		pool := &ipam.Pool{ID: ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/30")}, Records: map[netip.Addr]ipam.Record{}}
		for a, r := range tt.records {
			pool.Records[netip.MustParseAddr(a)] = r
		}
		if w.compare(&ipam.Snapshot{Pools: []*ipam.Pool{pool}}, pool, []kube.Waiting{tt.pod}); !slices.Equal(events.all, tt.want) {
			t.Errorf("%s: told %q, want %q", tt.name, events.all, tt.want)
		}
	}
}

// Of many pods that wait for a full pool one is told each minute, and each in its turn.
func TestAFullPoolIsNoFlood(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	w, events := newTeller(&now)
	pool := &ipam.Pool{ID: ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/30")}, Records: map[netip.Addr]ipam.Record{
		netip.MustParseAddr("10.0.0.1"): {ContainerID: "c1", PodRef: "default/x"}, netip.MustParseAddr("10.0.0.2"): {ContainerID: "c2", PodRef: "default/y"},
	}}
	pods := []kube.Waiting{waitingPod("a"), waitingPod("b"), waitingPod("c")}
	var told []int
	for range 24 { // four minutes
		w.compare(&ipam.Snapshot{Pools: []*ipam.Pool{pool}}, pool, pods)
		told = append(told, len(events.all))
		now = now.Add(10 * time.Second)
	}
	want := []string{"a IPPoolExhausted", "b IPPoolExhausted", "c IPPoolExhausted"}
	if !slices.Equal(events.all, want) || fmt.Sprint(told[5:7], told[11:13]) != "[1 2] [2 3]" {
		t.Errorf("told %q, so many by then: %v", events.all, told)
	}
}
