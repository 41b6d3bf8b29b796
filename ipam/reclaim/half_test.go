package reclaim

import (
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestALiveOwnersMissingReservationIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.must(unprotected(take(narrow, address, ours())))
	w.live.add(podA())
	w.found(w.pass(0), Report{Completed: 1})
	w.held(narrow, address, ours())
	w.reserved(address, "default/a")
	if got := w.snapshot().Pools[0].Records[address]; got != ours() {
		t.Errorf("the record has become %+v, want it as it was", got)
	}
	w.told()
	w.found(w.pass(0), Report{})
	w.sound()
}

func TestAReservationThatWasMadeSinceIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	r := ours()
	w.must(unprotected(take(narrow, address, r)))
	w.live.add(podA())
	snapshot := w.snapshot()
	w.must(ipam.Change{Pool: narrow, Address: address, Before: &r, After: &r, Overlap: true})
	w.found(w.Pass(t.Context(), snapshot), Report{Changed: 1})
	w.sound()
}

func TestAReservationGetsNoEntryWhereTwoPoolsHaveItsRange(t *testing.T) {
	w := newWorld(t)
	w.exist()
	slice := ipam.PoolID{Node: "node1", Range: narrow.Range}
	w.must(take(slice, another, ipam.Record{ContainerID: ipam.ReservedID("x")}))
	w.reserve(address, ours(), "10.0.0.0/24")
	w.live.add(podA())
	r := w.pass(0)
	w.found(r, Report{})
	if r.Kept[ReasonRangeUnknown] != 1 {
		t.Errorf("got kept %v, want one of an unknown range", r.Kept)
	}
	w.reserved(address, "default/a")
}

func TestAReservationOfAPoolThatWasDeletedGetsItsEntryIfADefinitionNamesThePool(t *testing.T) {
	for _, known := range []bool{false, true} {
		w := newWorld(t)
		w.must(take(wide, another, ipam.Record{ContainerID: ipam.ReservedID("x")}))
		w.reserve(address, ours(), "10.0.0.0/24")
		w.live.add(podA())
		w.nets.known = known
		if !known {
			w.found(w.pass(0), Report{})
			w.free(narrow, address)
			continue
		}
		w.found(w.pass(0), Report{Completed: 1})
		w.held(narrow, address, ours())
		w.sound()
	}
}

func TestAReservationIsNotMadeWhereNoneIsNeeded(t *testing.T) {
	for name, nets := range map[string]*fakeNetworks{
		"protection is off": {known: true}, "nobody knows of an old entry": {}, "contradicting definitions": {on: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(unprotected(take(narrow, address, withoutGen(ours()))))
			w.live.add(podA())
			w.Networks = nets
			w.found(w.pass(0), Report{})
			w.unreserved(address)
		})
	}
	w := newWorld(t)
	w.must(unprotected(take(narrow, address, withoutGen(ours()))))
	w.live.add(podA())
	w.Networks = nil
	w.found(w.pass(0), Report{})
	w.unreserved(address)
}

func withoutGen(r ipam.Record) ipam.Record {
	r.Gen = ""
	return r
}

func TestAReservationIsNotMadeForARecordThatChangedInBetween(t *testing.T) {
	gone, adopted := ours(), ours()
	adopted.ContainerID, adopted.Gen = "c2", "0e0e0e0e"
	for name, between := range map[string]ipam.Change{
		"released":  {Pool: narrow, Address: address, Before: &gone},
		"rewritten": {Pool: narrow, Address: address, Before: &gone, After: &adopted, Overlap: true},
	} {
		for _, late := range []bool{false, true} {
			w := newWorld(t)
			w.must(unprotected(take(narrow, address, ours())))
			w.live.add(podA())
			snapshot := w.snapshot()
			store := w.meddle(late, between)
			w.found(w.Pass(t.Context(), snapshot), Report{Changed: 1})
			if !late && store.commits > 0 {
				t.Errorf("%s: something was committed for a record that was seen to have changed", name)
			}
			if name == "released" {
				w.free(narrow, address)
				w.unreserved(address)
			}
			w.sound()
		}
	}
}

func TestAnAddressOfTwoPoolsIsReportedAndLeftAlone(t *testing.T) {
	w := newWorld(t)
	theirs := orphan("b")
	w.must(unprotected(take(narrow, address, ours())), unprotected(take(wide, address, theirs)))
	w.live.add(podA())
	w.live.add(&Pod{Namespace: "default", Name: "b", UID: "uid-b", Phase: Running, Networks: true, Addresses: []netip.Addr{address}})
	r := w.pass(0)
	w.found(r, Report{})
	if r.Duplicates != 1 || r.Kept[ReasonDuplicate] != 2 {
		t.Errorf("got %d duplicates and kept %v, want one address, two records", r.Duplicates, r.Kept)
	}
	w.unreserved(address)

	delete(w.live.pods, "default/b")
	r = w.pass(0)
	w.found(r, Report{Freed: 1})
	w.held(narrow, address, ours())
	w.free(wide, address)
	w.found(w.pass(0), Report{Completed: 1})
	w.sound()
}

func TestABareReservation(t *testing.T) {
	pending := podA(phase(Pending), noStatus)
	young := with(ours(), since(time.Minute))
	for _, tt := range []struct {
		name   string
		record ipam.Record
		cidr   string
		pod    *Pod
		first  Report
		second Report // a grace time later
		left   string // whose reservation is left
	}{
		{"of a pod that is gone is freed", ours(), "10.0.0.0/24", nil, Report{Freed: 1}, Report{}, ""},
		{"of a pod that is gone, of unknown age, is freed after the grace time", bare(), "", nil, Report{Waiting: 1, Due: noon.Add(testGrace)}, Report{Freed: 1}, ""},
		{"of a pod that shows the address gets its entry", ours(), "10.0.0.0/24", podA(), Report{Completed: 1}, Report{}, "default/a"},
		{"of a pod that shows the address stays where its pool is unknown", ours(), "", podA(), Report{}, Report{}, "default/a"},
		{"of a pod that does not show the address is freed at the second look", ours(), "10.0.0.0/24", podA(shows(another)), Report{Waiting: 1, Due: noon.Add(testGrace)}, Report{Freed: 1}, ""},
		{"of a young pending pod gets its entry after the grace time", young, "10.0.0.0/24", pending, Report{Waiting: 1, Due: noon.Add(testGrace)}, Report{Completed: 1}, "default/a"},
		{"of an old pending pod is freed after the grace time", ours(), "10.0.0.0/24", pending, Report{Waiting: 1, Due: noon.Add(testGrace)}, Report{Freed: 1}, ""},
		{"of a terminating pod stays", ours(), "10.0.0.0/24", podA(terminating, func(p *Pod) { p.Node = "node2" }), Report{}, Report{}, "default/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.live.nodes["node2"] = healthy()
			w.exist()
			w.reserve(address, tt.record, tt.cidr)
			if tt.pod != nil {
				w.live.add(tt.pod)
			}
			w.found(w.pass(0), tt.first)
			w.found(w.pass(testGrace), tt.second)
			if tt.left == "" {
				w.unreserved(address)
			} else {
				w.reserved(address, tt.left)
			}
			if tt.first.Completed+tt.second.Completed > 0 {
				w.held(narrow, address, tt.record)
			} else {
				w.free(narrow, address)
			}
			if tt.left == "" || tt.first.Completed+tt.second.Completed > 0 {
				w.sound()
			}
		})
	}
}

func TestABareReservationThatAnADDFinishesStays(t *testing.T) {
	finished := take(narrow, address, ours())
	continued := with(ours(), func(r *ipam.Record) { r.ContainerID, r.Since = "c2", noon })
	for name, tt := range map[string]struct {
		late   bool // just before the commit
		change ipam.Change
		want   Report
	}{
		"between snapshot and look":              {false, finished, Report{Changed: 1}},
		"just before the release":                {true, finished, Report{Changed: 1}},
		"by its next container, before the look": {false, take(narrow, address, continued), Report{Changed: 1}},
		"by its next container, just before":     {true, take(narrow, address, continued), Report{Changed: 1}},
		"by its next container in another range": {true, ipam.Change{Pool: wide, Address: another, After: &continued, Overlap: true}, Report{Freed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exist()
			w.reserve(address, ours(), "10.0.0.0/24")
			w.live.add(podA(shows(another)))
			w.pass(0)
			w.now = w.now.Add(testGrace)
			snapshot := w.snapshot()
			store := w.meddle(tt.late, tt.change)
			w.found(w.Pass(t.Context(), snapshot), tt.want)
			if !tt.late && store.commits > 0 {
				t.Error("something was committed for a reservation that was seen to be in use")
			}
			w.held(tt.change.Pool, tt.change.Address, *tt.change.After)
			w.reserved(tt.change.Address, "default/a")
			w.sound()
		})
	}
}

func TestAReservationThatChangesInBetweenGetsNoEntry(t *testing.T) {
	r := ours()
	released := ipam.Change{Pool: narrow, Address: address, Before: &r}
	finished := take(narrow, address, with(ours(), since(0)))
	elsewhere := unprotected(take(wide, address, orphan("b")))
	for name, change := range map[string]ipam.Change{
		"released": released, "finished": finished, "taken through another range": elsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exist()
			w.must(take(wide, another, ipam.Record{ContainerID: ipam.ReservedID("x")}))
			w.reserve(address, ours(), "10.0.0.0/24")
			w.live.add(podA())
			snapshot := w.snapshot()
			store := w.meddle(false, change)
			w.found(w.Pass(t.Context(), snapshot), Report{Changed: 1})
			if store.commits > 0 {
				t.Error("something was committed")
			}
		})
	}
}

// What is known says that nobody holds it, the live answer that its owner lives.
func TestAHalfOfAPodThatIsThereAgainIsCompletedByTheNextPass(t *testing.T) {
	w := newWorld(t)
	w.exist()
	w.reserve(address, ours(), "10.0.0.0/24")
	w.must(unprotected(take(narrow, another, orphan("b"))))
	w.live.add(podA())
	w.live.add(&Pod{Namespace: "default", Name: "b", UID: "uid-b", Networks: true, Addresses: []netip.Addr{another}})
	w.Known = &fakeCluster{}
	w.found(w.pass(0), Report{Due: noon.Add(testGrace)})
	w.Known = w.live
	w.found(w.pass(0), Report{Completed: 2})
	w.held(narrow, address, ours())
	w.reserved(another, "default/b")
	w.sound()
}

// A record of one owner and the reservation of another at its address.
func TestADisputedReservation(t *testing.T) {
	theirs := orphan("b")
	showing := func(name string) *Pod {
		return &Pod{Namespace: "default", Name: name, UID: "uid-" + name, Phase: Running, Networks: true, Addresses: []netip.Addr{address}}
	}
	newDispute := func(t *testing.T) *world {
		w := newWorld(t)
		w.must(unprotected(take(narrow, address, ours())))
		w.reserve(address, theirs, "10.0.0.0/24")
		return w
	}
	t.Run("of a dead owner is freed, and the record's owner gets its own", func(t *testing.T) {
		w := newDispute(t)
		w.live.add(podA())
		w.found(w.pass(0), Report{Freed: 1, Due: noon})
		w.held(narrow, address, ours())
		w.found(w.pass(0), Report{Completed: 1})
		w.reserved(address, "default/a")
		w.sound()
	})
	t.Run("of a live owner stays, and so does the record", func(t *testing.T) {
		w := newDispute(t)
		w.live.add(podA())
		w.live.add(showing("b"))
		for range 3 {
			r := w.pass(testGrace)
			w.found(r, Report{})
			if r.Kept[ReasonDisputed] != 1 {
				t.Errorf("got kept %v, want one disputed", r.Kept)
			}
		}
		w.held(narrow, address, ours())
		w.reserved(address, "default/b")
	})
	t.Run("of a live owner outlives the record of a dead one, and gets its entry", func(t *testing.T) {
		w := newDispute(t)
		w.live.add(showing("b"))
		w.found(w.pass(0), Report{Freed: 1})
		w.free(narrow, address)
		w.reserved(address, "default/b")
		w.found(w.pass(0), Report{Completed: 1})
		w.held(narrow, address, theirs)
		w.sound()
	})
	t.Run("of two dead owners both are freed", func(t *testing.T) {
		w := newDispute(t)
		w.found(w.pass(0), Report{Freed: 2, Due: noon})
		w.free(narrow, address)
		w.unreserved(address)
		w.sound()
	})
}

func TestAReservationThatLagsBehindAnAdoptionIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	old, now := ours(), with(ours(), func(r *ipam.Record) { r.ContainerID = "c2" })
	w.must(take(narrow, address, old), ipam.Change{Pool: narrow, Address: address, Before: &old, After: &now})
	w.live.add(podA())
	w.found(w.pass(0), Report{})
	w.found(w.pass(testGrace), Report{})
	w.reserved(address, "default/a")
	delete(w.live.pods, "default/a")
	w.found(w.pass(0), Report{Freed: 1})
	w.unreserved(address)
	w.sound()
}
