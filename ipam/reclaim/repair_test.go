package reclaim

import (
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestRepairEntry(t *testing.T) {
	type state struct{ needs, known bool }
	on, off, unknown := state{true, true}, state{false, true}, state{}
	unprotected := with(ours(), func(r *ipam.Record) { r.Unprotected = true })
	pendingSince := func(d time.Duration) *Pod {
		return podA(phase(Pending), noStatus, func(p *Pod) { p.Created = ago(d) })
	}
	for _, tt := range []struct {
		state
		judgement
	}{
		{on, judgement{name: "a live owner's missing reservation is made at once", record: ours(), pod: podA(), action: Complete, reason: ReasonShown}},
		{on, judgement{name: "an old record's missing reservation is made at once", record: bare(), pod: podA(), action: Complete, reason: ReasonShown}},
		{on, judgement{name: "a missing reservation is made for whoever shows the address", record: ours(), pod: podA(uid("uid-b")), action: Complete, reason: ReasonShown}},
		{off, judgement{name: "a network without protection needs none", record: ours(), pod: podA(), action: Keep, reason: ReasonShown}},
		{unknown, judgement{name: "where nobody knows of protection, an old entry gets none", record: bare(), pod: podA(), action: Keep, reason: ReasonShown}},
		{unknown, judgement{name: "where nobody knows of protection, an entry of ours says that it had one", record: ours(), pod: podA(), action: Complete, reason: ReasonShown}},
		{unknown, judgement{name: "where nobody knows of protection, an entry of ours says that it had none", record: unprotected, pod: podA(), action: Keep, reason: ReasonShown}},
		{on, judgement{name: "an entry that says it is unprotected needs none", record: unprotected, pod: podA(), action: Keep, reason: ReasonShown}},
		{on, judgement{name: "a young pod on its way gets its reservation", record: with(ours(), since(time.Minute)), pod: pendingSince(time.Hour), action: Complete, reason: ReasonPending}},
		{on, judgement{name: "a pod that does not come on its way gets none", record: ours(), pod: pendingSince(time.Minute), action: Keep, reason: ReasonPending}},
		{on, judgement{name: "where the record's age is unknown, the pod's counts", record: bare(), pod: pendingSince(time.Minute), action: Complete, reason: ReasonPending}},
		{on, judgement{name: "an old pod's record of unknown age gets none", record: bare(), pod: pendingSince(time.Hour), action: Keep, reason: ReasonPending}},
		{on, judgement{name: "a pod without a network status gets none and keeps its entry", record: ours(), pod: podA(noStatus), seen: time.Hour, action: Keep, reason: ReasonStatusMissing}},
		{on, judgement{name: "a terminating pod gets none", record: ours(), pod: podA(terminating), node: healthy(), action: Keep, reason: ReasonTerminating}},
		{on, judgement{name: "a container without a pod gets none", record: ipam.Record{ContainerID: "c1"}, action: Keep, reason: ReasonNoPod}},
		{on, judgement{name: "an address that an operator keeps gets none", record: ipam.Record{ContainerID: ipam.ReservedID("x")}, action: Keep, reason: ReasonReserved}},
		{on, judgement{name: "an unreadable entry gets none", record: ipam.Record{}, action: Keep, reason: ReasonUnreadable}},
		{on, judgement{name: "an orphan is freed", record: ours(), action: Free, reason: ReasonPodGone}},
		{on, judgement{name: "an address that is not shown waits for the second look", record: ours(), pod: podA(shows(another)), action: Wait, reason: ReasonNotShown, in: testGrace}},
		{unknown, judgement{name: "an orphan is freed where nobody knows of protection", record: ours(), pod: podA(phase(Failed)), action: Free, reason: ReasonPodFinished}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.check(t, func(c Case) Verdict { return RepairEntry(c, tt.needs, tt.known) })
		})
	}
}

func TestRepairReservation(t *testing.T) {
	alone, lost := Rest{PoolKnown: true}, Rest{}
	theirs := Rest{Record: &ipam.Record{ContainerID: "c9", IfName: "net1", PodRef: "default/b"}, PoolKnown: true}
	unreadable := Rest{Record: &ipam.Record{}, PoolKnown: true}
	pending := podA(phase(Pending), noStatus)
	young := with(ours(), since(2*time.Minute))
	noContainer := with(ours(), func(r *ipam.Record) { r.ContainerID = "" })
	for _, tt := range []struct {
		Rest
		judgement
	}{
		{alone, judgement{name: "an owner that shows the address gets its entry at once", record: ours(), pod: podA(), action: Complete, reason: ReasonShown}},
		{lost, judgement{name: "an owner that shows the address keeps a reservation of an unknown pool", record: ours(), pod: podA(), seen: time.Hour, action: Keep, reason: ReasonRangeUnknown}},
		{alone, judgement{name: "an owner that shows the address gets no entry without a container", record: noContainer, pod: podA(), seen: time.Hour, action: Keep, reason: ReasonRangeUnknown}},
		{theirs, judgement{name: "an owner that shows the address keeps its reservation beside another's entry", record: ours(), pod: podA(), seen: time.Hour, action: Keep, reason: ReasonDisputed}},

		{alone, judgement{name: "an ADD may be under way: a pending pod's reservation waits", record: young, pod: pending, action: Wait, reason: ReasonUnfinished, in: testGrace}},
		{alone, judgement{name: "a young pending pod gets its entry after the grace time", record: young, pod: pending, seen: testGrace, action: Complete, reason: ReasonUnfinished}},
		{alone, judgement{name: "an old pending pod loses its reservation after the grace time", record: ours(), pod: pending, seen: testGrace, action: Free, reason: ReasonUnfinished}},
		{alone, judgement{name: "an old pending pod does not lose it before", record: ours(), pod: pending, action: Wait, reason: ReasonUnfinished, in: testGrace}},
		{lost, judgement{name: "a pending pod keeps the reservation of an unknown pool", record: ours(), pod: pending, seen: time.Hour, action: Keep, reason: ReasonPending}},
		{theirs, judgement{name: "a young pending pod keeps its reservation beside another's entry", record: young, pod: pending, seen: testGrace, action: Keep, reason: ReasonDisputed}},
		{theirs, judgement{name: "an old pending pod loses its reservation beside another's entry", record: ours(), pod: pending, seen: testGrace, action: Free, reason: ReasonUnfinished}},

		{alone, judgement{name: "the reservation of a pod that is gone is free", record: ours(), action: Free, reason: ReasonPodGone}},
		{lost, judgement{name: "an old reservation of a pod that is gone waits", record: ipam.Record{PodRef: "default/a"}, action: Wait, reason: ReasonPodGone, in: testGrace}},
		{lost, judgement{name: "an old reservation of a pod that is gone is free after the grace time", record: ipam.Record{PodRef: "default/a"}, seen: testGrace, action: Free, reason: ReasonPodGone}},
		{theirs, judgement{name: "the reservation of a pod that is gone is free beside another's entry", record: ours(), action: Free, reason: ReasonPodGone}},
		{alone, judgement{name: "the reservation of a finished pod is free", record: ours(), pod: podA(phase(Succeeded)), action: Free, reason: ReasonPodFinished}},
		{alone, judgement{name: "the reservation of a namesake is free after the grace time", record: ours(), pod: podA(uid("uid-b"), noStatus), seen: testGrace, action: Free, reason: ReasonAnotherPod}},
		{alone, judgement{name: "a retry took another address: the first reservation waits", record: ours(), pod: podA(shows(another)), action: Wait, reason: ReasonNotShown, in: testGrace}},
		{alone, judgement{name: "a retry took another address: the first reservation is free at the second look", record: ours(), pod: podA(shows(another)), seen: testGrace, action: Free, reason: ReasonNotShown}},

		{alone, judgement{name: "without a network status a reservation stays", record: ours(), pod: podA(noStatus), seen: time.Hour, action: Keep, reason: ReasonStatusMissing}},
		{alone, judgement{name: "a terminating pod keeps its reservation", record: ours(), pod: podA(terminating), node: healthy(), seen: time.Hour, action: Keep, reason: ReasonTerminating}},
		{alone, judgement{name: "a terminating pod on a node that is gone does not", record: ours(), pod: podA(terminating), action: Free, reason: ReasonNodeGone}},
		{alone, judgement{name: "a container without a pod keeps its reservation", record: ipam.Record{ContainerID: "c1"}, seen: time.Hour, action: Keep, reason: ReasonNoPod}},
		{alone, judgement{name: "an operator's reservation stays", record: ipam.Record{ContainerID: ipam.ReservedID("x")}, seen: time.Hour, action: Keep, reason: ReasonReserved}},
		{alone, judgement{name: "an unreadable reservation stays", record: ipam.Record{}, seen: time.Hour, action: Keep, reason: ReasonUnreadable}},
		{unreadable, judgement{name: "a reservation beside an unreadable entry stays", record: ours(), seen: time.Hour, action: Keep, reason: ReasonUnreadable}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.check(t, func(c Case) Verdict { return RepairReservation(c, tt.Rest) })
		})
	}
}
