package reclaim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// orphan is the record of a pod that does not exist.
func orphan(name string) ipam.Record {
	return ipam.Record{
		ContainerID: "c-" + name, IfName: "net1", PodRef: "default/" + name, Gen: "00000001",
		UID: "uid-" + name, Node: "node1", Network: "mynet", Since: ago(time.Hour),
	}
}

func TestAnOrphanIsFreedAndALiveOwnerIsNot(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()), take(narrow, another, orphan("b")))
	w.live.add(podA())
	w.found(w.pass(0), Report{Freed: 1})
	w.held(narrow, address, ours())
	w.free(narrow, another)
	w.unreserved(another)
	w.told("IPAddressGarbageCollected")
	e := w.events.all[0]
	if e.Warning || e.Pod.Name != "b" || e.Pod.Namespace != "default" || e.Pod.UID != "uid-b" || !strings.Contains(e.Message, "10.0.0.6") {
		t.Errorf("got event %+v, want a normal one for pod b with the address", e)
	}
	w.found(w.pass(0), Report{})
	w.sound()
}

func TestAPassCountsWhatItKeeps(t *testing.T) {
	w := newWorld(t)
	w.exist()
	w.must(take(narrow, address, ours()))
	w.live.add(podA())
	w.write("nonsense", "networks", "network_name=", "pools", "10.0.0.0/24", "10.0.0.99")
	w.write("nonsense", "networks", "network_name=", "pools", "10.0.0.0/24", "rubbish")
	r := w.pass(0)
	if r.Pools != 1 || r.Records != 3 || r.Reservations != 2 || r.Unreadable != 2 {
		t.Errorf("got %+v, want 1 pool, 3 records, 2 reservations, 2 unreadable", r)
	}
	if r.Kept[ReasonShown] != 1 || r.Kept[ReasonReserved] != 1 || r.Kept[ReasonUnreadable] != 1 {
		t.Errorf("got kept %v, want one shown, one reserved, one unreadable", r.Kept)
	}
	w.found(r, Report{})
}

func TestTwoLooksFreeWhatIsNotShown(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()))
	w.live.add(podA(shows(another)))
	w.found(w.pass(0), Report{Waiting: 1, Due: noon.Add(testGrace)})
	w.found(w.pass(testGrace-time.Second), Report{Waiting: 1, Due: noon.Add(testGrace)})
	w.found(w.pass(time.Second), Report{Freed: 1})
	w.free(narrow, address)
	w.told("IPAddressGarbageCollected")
	w.sound()
}

func TestAFirstLookIsForgotten(t *testing.T) {
	again := ours()
	again.Gen = "0e0e0e0e"
	for name, between := range map[string]func(w *world){
		"when the pod shows the address in between": func(w *world) {
			w.live.add(podA())
			w.pass(0)
			w.live.add(podA(shows(another)))
		},
		"when the record was rewritten": func(w *world) {
			r := ours()
			w.must(ipam.Change{Pool: narrow, Address: address, Before: &r, After: &again, Overlap: true})
		},
		"when the record was gone in between": func(w *world) {
			r := ours()
			w.must(ipam.Change{Pool: narrow, Address: address, Before: &r})
			w.pass(0)
			w.must(take(narrow, address, r))
		},
		"when the pod is another one": func(w *world) { w.live.add(podA(shows(another), uid("uid-b"))) },
		"when what is seen is another thing": func(w *world) {
			w.live.add(podA(shows(another), uid("uid-b")))
			w.pass(0)
			w.live.add(podA(shows(another)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(take(narrow, address, ours()))
			w.live.add(podA(shows(another)))
			w.found(w.pass(0), Report{Waiting: 1, Due: noon.Add(testGrace)})
			w.now = noon.Add(testGrace)
			between(w)
			w.found(w.pass(0), Report{Waiting: 1, Due: noon.Add(2 * testGrace)})
			w.found(w.pass(testGrace), Report{Freed: 1})
			w.sound()
		})
	}
}

func TestLooksAreNotKeptForEver(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()))
	w.live.add(podA(shows(another)))
	w.pass(0)
	w.pass(testGrace)
	if n := len(w.looks.now); n != 0 {
		t.Errorf("%d looks are remembered of what was freed", n)
	}
	for i := range 2 * maxLooks {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		w.looks.note(entrySpot(wide, a), sight{}, noon)
	}
	if n := len(w.looks.now); n != maxLooks {
		t.Errorf("%d looks are remembered, want no more than %d", n, maxLooks)
	}
}

func TestDueIsTheEarliestLook(t *testing.T) {
	early, late := noon, noon.Add(time.Minute)
	for _, times := range [][]time.Time{{early, late}, {late, early}, {early}} {
		var r Report
		for _, at := range times {
			r.due(at)
		}
		if r.Due != early {
			t.Errorf("of %v the earliest is said to be %v", times, r.Due)
		}
	}
	w := newWorld(t)
	w.must(take(narrow, address, ours()), take(narrow, another, orphan("b")), take(narrow, another.Next(), orphan("c")))
	w.live.add(podA(terminating, func(p *Pod) { p.Grace = 10 * time.Minute }))
	w.live.nodes["node1"] = &Node{Name: "node1", Unreachable: ago(9 * time.Minute)}
	w.live.add(&Pod{Namespace: "default", Name: "b", UID: "uid-new", Phase: Running, Node: "node2"})
	w.live.add(&Pod{Namespace: "default", Name: "c", UID: "uid-c", Phase: Pending})
	w.found(w.pass(0), Report{Waiting: 2, Due: noon.Add(time.Minute)})
	w.found(w.pass(time.Minute), Report{Freed: 2})
	w.sound()
}

func TestAnUnreachableNodesAddressesAreKeptIfTheyAreToBe(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()))
	w.live.add(podA(terminating))
	w.live.nodes["node1"] = unreachableFor(time.Hour)
	w.KeepUnreachable = true
	w.found(w.pass(0), Report{})
	w.KeepUnreachable = false
	w.found(w.pass(0), Report{Freed: 1})
	w.sound()
}

func TestAPodThatIsThereAgainKeepsItsAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		known, live *Pod
		want        Report
	}{
		"re-created under its name, on its way": {nil, podA(phase(Pending), noStatus), Report{}},
		"one the watch has not heard of":        {nil, podA(), Report{}},
		"another of its name":                   {nil, podA(uid("uid-b"), noStatus), Report{Waiting: 1, Due: noon.Add(testGrace)}},
		"finished by what is known, alive":      {podA(phase(Failed)), podA(), Report{}},
		"on a node by what is known gone":       {podA(terminating), podA(uid("uid-a")), Report{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(take(narrow, address, ours()))
			w.live.add(tt.live)
			w.Known = w.live.with("default/a", tt.known)
			w.found(w.pass(0), tt.want)
			w.held(narrow, address, ours())
			w.told()
			w.sound()
		})
	}
}

func TestTheNodeIsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()))
	w.live.add(podA(terminating))
	known := w.live.with("default/a", podA(terminating))
	known.nodes = nil
	w.Known = known
	w.live.nodes["node1"] = healthy()
	w.found(w.pass(0), Report{})
	w.held(narrow, address, ours())
	w.sound()
}

func TestTheEventIsForThePodWhoseRecordItWas(t *testing.T) {
	for _, tt := range []struct {
		pod  *Pod
		want string
	}{
		{podA(shows(another)), "uid-a"},
		{podA(shows(another), uid("uid-b")), "uid-a"},
		{podA(shows(another), uid("mirror"), mirrors("uid-a")), "mirror"},
	} {
		w := newWorld(t)
		w.must(take(narrow, address, ours()))
		w.live.add(tt.pod)
		w.pass(0)
		w.found(w.pass(testGrace), Report{Freed: 1})
		if len(w.events.all) != 1 || w.events.all[0].Pod.UID != tt.want {
			t.Errorf("got events %+v, want one for UID %s", w.events.all, tt.want)
		}
		w.sound()
	}
}

func TestARecordThatIsRewrittenInBetweenStays(t *testing.T) {
	w := newWorld(t)
	before, after := ours(), ours()
	after.ContainerID, after.Gen = "c2", "0e0e0e0e"
	w.must(take(narrow, address, before))
	w.Store = &meddler{Store: w.store, before: func() {
		w.must(ipam.Change{Pool: narrow, Address: address, Before: &before, After: &after, Overlap: true})
	}}
	w.found(w.pass(0), Report{Changed: 1})
	w.held(narrow, address, after)
	w.told()
	w.sound()
}

func TestWhatSomebodyElseFreedIsNotClaimed(t *testing.T) {
	w := newWorld(t)
	r := ours()
	w.must(take(narrow, address, r))
	w.Store = &meddler{Store: w.store, before: func() { w.must(ipam.Change{Pool: narrow, Address: address, Before: &r}) }}
	w.found(w.pass(0), Report{Changed: 1})
	w.told()
	w.sound()
}

func TestNothingIsFreedWithoutAnAnswer(t *testing.T) {
	broken := fmt.Errorf("%w: no answer", ipam.ErrUnavailable)
	for name, tt := range map[string]struct {
		known, live map[string]error
		pod         *Pod
	}{
		"about the pod, live":        {live: map[string]error{"default/a": broken}},
		"about the node, live":       {live: map[string]error{"node1": broken}, pod: podA(terminating)},
		"about the pod, from memory": {known: map[string]error{"default/a": broken}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(take(narrow, address, ours()), take(narrow, another, orphan("b")))
			known := w.live.with("default/a", tt.pod)
			known.err, w.live.err = tt.known, tt.live
			w.Known, w.live.pods["default/a"] = known, tt.pod
			w.found(w.pass(0), Report{Freed: 1, Failed: 1, Due: noon.Add(testGrace)})
			w.held(narrow, address, ours())
			w.free(narrow, another)
			w.told("IPAddressGarbageCollected")
			known.err, w.live.err = nil, nil
			w.found(w.pass(testGrace), Report{Freed: 1})
			w.sound()
		})
	}
}

func TestOneAddressThatCannotBeFreedDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()), take(narrow, another, orphan("b")))
	store := &meddler{Store: w.store, fails: map[netip.Addr]error{address: fmt.Errorf("%w: pool is sealed", ipam.ErrDenied)}}
	w.Store = store
	w.found(w.pass(0), Report{Freed: 1, Failed: 1, Due: noon.Add(testGrace)})
	w.held(narrow, address, ours())
	for _, e := range w.events.all {
		if e.Warning != (e.Reason == "IPAddressGarbageCollectionFailed") || e.Warning != (e.Pod.Name == "a") {
			t.Errorf("got event %+v", e)
		}
		if e.Warning && !strings.Contains(e.Message, "pool is sealed") {
			t.Errorf("the warning says %q, want the error", e.Message)
		}
	}
	if len(w.events.all) != 2 {
		t.Errorf("got %d events, want 2", len(w.events.all))
	}
	store.fails = nil
	w.found(w.pass(0), Report{Freed: 1})
	w.sound()
}

func TestAThousandOrphansAreFewCommits(t *testing.T) {
	w := newWorld(t)
	var takes []ipam.Change
	a := netip.MustParseAddr("10.0.1.1")
	for i := range 1000 {
		takes = append(takes, take(wide, a, orphan(fmt.Sprint("p", i))))
		a = a.Next()
	}
	w.must(takes...)
	store := &meddler{Store: w.store}
	w.Store = store
	w.found(w.pass(0), Report{Freed: 1000})
	if store.largest > batchSize || store.commits > 1000/batchSize {
		t.Errorf("%d commits of up to %d changes, want %d of %d", store.commits, store.largest, 1000/batchSize, batchSize)
	}
	w.sound()
}

func TestTwoReclaimersFreeEachAddressOnce(t *testing.T) {
	w := newWorld(t)
	const orphans = 200
	var takes []ipam.Change
	a := netip.MustParseAddr("10.0.1.1")
	for i := range orphans {
		takes = append(takes, take(wide, a, orphan(fmt.Sprint("p", i))))
		a = a.Next()
	}
	w.must(append(takes, take(narrow, address, ours()))...)
	w.live.add(podA())
	snapshot := w.snapshot()
	reports := make(chan Report, 2)
	for range 2 {
		r := w.another(w.open())
		go func() { reports <- r.Pass(context.Background(), snapshot) }()
	}
	first, second := <-reports, <-reports
	if first.Freed+second.Freed != orphans || first.Failed+second.Failed != 0 || first.Changed+second.Changed != orphans {
		t.Errorf("freed %d and %d, changed %d and %d, failed %d and %d; want each of %d once",
			first.Freed, second.Freed, first.Changed, second.Changed, first.Failed, second.Failed, orphans)
	}
	told := map[string]int{}
	for _, e := range w.events.all {
		told[e.Pod.Name]++
	}
	if len(told) != orphans || len(w.events.all) != orphans {
		t.Errorf("%d events for %d pods, want one for each of %d", len(w.events.all), len(told), orphans)
	}
	w.held(narrow, address, ours())
	w.sound()
}

func TestAPassEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.must(take(narrow, address, ours()), take(narrow, another, orphan("b")))
	w.live.add(podA(shows(another)))
	w.pass(0)
	w.must(take(narrow, another, orphan("b")))
	ctx, cancel := context.WithCancel(w.Context())
	snapshot := w.snapshot()
	cancel()
	r := w.Pass(ctx, snapshot)
	if r.Freed != 0 || r.Failed != 1 {
		t.Errorf("got %+v, want nothing freed and one failure", r)
	}
	w.held(narrow, another, orphan("b"))
	w.found(w.pass(testGrace), Report{Freed: 2})
	w.sound()
}

func TestErrorsOfEverySortAreFailures(t *testing.T) {
	for _, err := range []error{ipam.ErrUnavailable, ipam.ErrDenied, ipam.ErrCorrupt, errors.New("something else")} {
		w := newWorld(t)
		w.must(take(narrow, address, ours()))
		w.Store = &meddler{Store: w.store, fails: map[netip.Addr]error{address: err}}
		w.found(w.pass(0), Report{Failed: 1, Due: noon.Add(testGrace)})
	}
}
