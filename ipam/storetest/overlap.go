package storetest

import (
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var overlapCases = []testCase{
	{"an address held through another range conflicts and names range and holder", func(f *fixture) {
		a := recordOf("a")
		f.must(take(narrow, addr, a))
		c := f.conflict(take(wide, addr, recordOf("b")))
		if !c.Reserved || c.Holder.PodRef != a.PodRef {
			f.Errorf("got conflict %+v, want a reservation of %q", c, a.PodRef)
		}
		if want := narrow.Range.String(); c.Range != want && (f.Details || c.Range != "") {
			f.Errorf("the conflict names range %q, want %q", c.Range, want)
		}
		f.free(wide, addr)
		f.held(narrow, addr, a)
		f.reserved(narrow, addr, a)
		CheckInvariants(f, f.Store)
	}},
	{"an address held through another range conflicts for its own holder too", func(f *fixture) {
		f.mustKeepDetails()
		a := recordOf("a")
		again := a
		again.Gen = "00000001"
		f.must(take(narrow, addr, a))
		f.conflict(take(wide, addr, again))
		f.free(wide, addr)
		f.held(narrow, addr, a)
		f.reserved(narrow, addr, a)
	}},
	{"without overlap protection two ranges do not meet", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(unprotected(take(narrow, addr, a)), unprotected(take(wide, addr, b)))
		f.held(narrow, addr, a)
		f.held(wide, addr, b)
	}},
	{"an address released in one range can be taken through another", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a), release(narrow, addr, a), take(wide, addr, b))
		f.held(wide, addr, b)
		f.reserved(wide, addr, b)
		CheckInvariants(f, f.Store)
	}},
	{"a record without a reservation does not lose it to its pool's next taker", func(f *fixture) {
		a := recordOf("a")
		f.must(unprotected(take(narrow, addr, a)))
		f.conflict(take(narrow, addr, recordOf("b")))
		f.unreserved("", addr)
		f.held(narrow, addr, a)
	}},
	{"reservations of one pod's addresses are freed one by one", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), take(wide, addr.Next(), r), release(narrow, addr, r))
		f.unreserved("", addr)
		f.held(wide, addr.Next(), r)
		f.reserved(wide, addr.Next(), r)
	}},
}

var halfRecordCases = []testCase{
	{"a bare reservation of the owner is continued by its next take", func(f *fixture) {
		r := recordOf("a")
		f.seedReservation(narrow, r, narrow.Range.String())
		f.must(take(narrow, addr, r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
		CheckInvariants(f, f.Store)
	}},
	{"a bare reservation of the owner's last container is continued", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.seedReservation(narrow, old, narrow.Range.String())
		f.must(take(narrow, addr, now))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
	}},
	{"a bare reservation of the owner that names no range is continued", func(f *fixture) {
		r := recordOf("a")
		f.seedReservation(narrow, r, "")
		f.must(take(narrow, addr, r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a bare reservation that names only the owner's pod and interface is continued", func(f *fixture) {
		r := recordOf("a")
		f.seedReservation(narrow, ipam.Record{PodRef: r.PodRef, IfName: r.IfName}, "")
		f.must(take(narrow, addr, r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a bare reservation of an owner without a pod is continued by its container", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		r.PodRef, r.UID = "", ""
		f.seedReservation(narrow, r, narrow.Range.String())
		f.must(take(narrow, addr, r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a bare reservation of another pod conflicts and stays", func(f *fixture) {
		a := recordOf("a")
		f.seedReservation(narrow, a, narrow.Range.String())
		f.refused(take(narrow, addr, recordOf("b")), a)
	}},
	{"a bare reservation of another interface of the pod conflicts and stays", func(f *fixture) {
		a := recordOf("a")
		second := a
		second.IfName = "net2"
		f.seedReservation(narrow, a, narrow.Range.String())
		f.refused(take(narrow, addr, second), a)
	}},
	{"a bare reservation of another container without a pod conflicts and stays", func(f *fixture) {
		f.mustKeepDetails()
		a, b := recordOf("a"), recordOf("b")
		a.PodRef, b.PodRef, a.UID, b.UID = "", "", "", ""
		f.seedReservation(narrow, a, narrow.Range.String())
		f.refused(take(narrow, addr, b), a)
	}},
	{"a bare reservation of the owner in another range conflicts and stays", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		f.seedReservation(wide, r, wide.Range.String())
		f.refused(take(narrow, addr, r), r)
	}},
	{"a bare reservation is given up where the record is somebody else's", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.seedReservation(narrow, a, narrow.Range.String())
		f.SeedRecord(f.T, narrow, addr, b)
		if c := f.conflict(take(narrow, addr, a)); c.Holder.PodRef != b.PodRef {
			f.Errorf("the conflict names %q, want %q", c.Holder.PodRef, b.PodRef)
		}
		f.held(narrow, addr, b)
		f.unreserved("", addr)
	}},
	{"a release by the owner frees its bare reservation", func(f *fixture) {
		f.mustKeepDetails() // without its container id it may be the next container's
		r := recordOf("a")
		f.seedReservation(narrow, r, narrow.Range.String())
		f.must(release(narrow, addr, r))
		f.empty()
	}},
	{"a release by another pod leaves a bare reservation alone", func(f *fixture) {
		a := recordOf("a")
		f.seedReservation(narrow, a, narrow.Range.String())
		f.must(release(narrow, addr, recordOf("b")))
		f.reserved(narrow, addr, a)
	}},
	{"a late release does not free the bare reservation of the pod's next container", func(f *fixture) {
		f.mustKeepDetails()
		old := recordOf("a")
		now := restarted(old)
		f.seedReservation(narrow, now, narrow.Range.String())
		f.must(release(narrow, addr, old))
		f.reserved(narrow, addr, now)
	}},
	{"a failed take leaves no reservation behind where only the record exists", func(f *fixture) {
		f.seeds()
		a := recordOf("a")
		f.SeedRecord(f.T, narrow, addr, a)
		if c := f.conflict(take(narrow, addr, recordOf("b"))); c.Holder.PodRef != a.PodRef {
			f.Errorf("the conflict names %q, want %q", c.Holder.PodRef, a.PodRef)
		}
		f.unreserved("", addr)
		f.held(narrow, addr, a)
	}},
	{"a rewrite whose Before is stale leaves no reservation behind where only the record exists", func(f *fixture) {
		f.seeds()
		a := recordOf("a")
		stale := restarted(a)
		f.SeedRecord(f.T, narrow, addr, a)
		f.conflict(rewrite(narrow, addr, stale, restarted(stale)))
		f.unreserved("", addr)
		f.held(narrow, addr, a)
	}},
	{"a record without a reservation is released", func(f *fixture) {
		f.seeds()
		r := recordOf("a")
		f.SeedRecord(f.T, narrow, addr, r)
		f.must(release(narrow, addr, r))
		f.empty()
	}},
	{"a repeated take makes the missing reservation of its record", func(f *fixture) {
		f.seeds()
		r := recordOf("a")
		f.SeedRecord(f.T, narrow, addr, r)
		f.must(take(narrow, addr, r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
		CheckInvariants(f, f.Store)
	}},
	{"a record of an old version is rewritten and released", func(f *fixture) {
		f.seeds()
		old := ipam.Record{ContainerID: "c1", PodRef: "default/a"}
		f.SeedRecord(f.T, narrow, addr, old)
		f.seedReservation(narrow, ipam.Record{PodRef: "default/a"}, "")
		now := recordOf("a")
		f.must(rewrite(narrow, addr, old, now))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
		f.must(release(narrow, addr, now))
		f.empty()
	}},
	{"a record of an old version is released with its reservation", func(f *fixture) {
		f.seeds()
		old := ipam.Record{ContainerID: "c1", PodRef: "default/a"}
		f.SeedRecord(f.T, narrow, addr, old)
		f.seedReservation(narrow, ipam.Record{PodRef: "default/a"}, "")
		f.must(release(narrow, addr, old))
		f.empty()
	}},
	{"a free address beside half records is taken as ever", func(f *fixture) {
		f.seedReservation(narrow, recordOf("a"), "")
		f.SeedRecord(f.T, narrow, addr.Next(), recordOf("b"))
		next, r := netip.MustParseAddr("10.10.0.9"), recordOf("c")
		f.must(take(narrow, next, r))
		f.held(narrow, next, r)
		f.reserved(narrow, next, r)
	}},
}

func (f *fixture) seedReservation(id ipam.PoolID, r ipam.Record, cidr string) {
	f.Helper()
	f.seeds()
	f.SeedReservation(f.T, ipam.Reservation{Space: id.Network, Address: addr, Record: r, Range: cidr})
}

// refused wants a take to conflict with a bare reservation, which stays.
func (f *fixture) refused(c ipam.Change, holder ipam.Record) {
	f.Helper()
	conflict := f.conflict(c)
	if !conflict.Reserved || conflict.Holder.Holder() != holder.Holder() {
		f.Errorf("got conflict %+v, want a reservation of %s", conflict, holder.Holder())
	}
	f.free(c.Pool, addr)
	f.reserved(c.Pool, addr, holder)
}
