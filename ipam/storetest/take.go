package storetest

import (
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var takeCases = []testCase{
	{"an address that was taken reads back with its owner", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r))
		p := f.read(narrow)
		if !p.Exists || len(p.Records) != 1 {
			f.Errorf("got %+v, want a pool with one record", p)
		}
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"taking without overlap protection makes no reservation", func(f *fixture) {
		f.must(unprotected(take(narrow, addr, recordOf("a"))))
		f.unreserved("", addr)
	}},
	{"taking a held address conflicts and names the holder", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a))
		if c := f.conflict(take(narrow, addr, b)); c.Holder.PodRef != a.PodRef {
			f.Errorf("the conflict names %q, want %q", c.Holder.PodRef, a.PodRef)
		}
		f.held(narrow, addr, a)
		f.reserved(narrow, addr, a)
		CheckInvariants(f, f.Store)
	}},
	{"taking a held address without overlap protection conflicts and names the holder", func(f *fixture) {
		a := recordOf("a")
		f.must(unprotected(take(narrow, addr, a)))
		c := f.conflict(unprotected(take(narrow, addr, recordOf("b"))))
		if c.Reserved || c.Holder.PodRef != a.PodRef || c.Holder.ContainerID != a.ContainerID {
			f.Errorf("got conflict %+v, want the record of %q", c, a.PodRef)
		}
		f.held(narrow, addr, a)
	}},
	{"taking again with the same record succeeds: the first answer got lost", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), take(narrow, addr, r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
		f.must(unprotected(take(narrow, addr, r)))
		f.reserved(narrow, addr, r)
		CheckInvariants(f, f.Store)
	}},
	{"taking what the same owner holds under another gen conflicts", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		newer := r
		newer.Gen = "00000000"
		f.must(take(narrow, addr, r))
		f.conflict(take(narrow, addr, newer))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a released address can be taken by another owner", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a), release(narrow, addr, a), take(narrow, addr, b))
		f.held(narrow, addr, b)
		f.reserved(narrow, addr, b)
		CheckInvariants(f, f.Store)
	}},
	{"one address in two network_names is two addresses", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		blue := pool("blue", "10.10.0.0/24")
		f.must(take(narrow, addr, a), take(blue, addr, b))
		f.held(narrow, addr, a)
		f.held(blue, addr, b)
		f.reserved(narrow, addr, a)
		f.reserved(blue, addr, b)
		f.must(release(narrow, addr, a))
		f.held(blue, addr, b)
		f.reserved(blue, addr, b)
		CheckInvariants(f, f.Store)
	}},
	{"two interfaces of one pod never share an address", func(f *fixture) {
		first := recordOf("a")
		second := first
		second.IfName, second.Gen = "net2", "00000001"
		f.must(take(narrow, addr, first))
		f.conflict(take(narrow, addr, second))
		f.conflict(take(wide, addr, second))
		f.held(narrow, addr, first)
		f.free(wide, addr)
		f.reserved(narrow, addr, first)
	}},
	{"owners without a pod are told apart by their containers", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		a.PodRef, b.PodRef, a.UID, b.UID = "", "", "", ""
		f.must(take(narrow, addr, a))
		f.conflict(take(narrow, addr, b))
		f.must(release(narrow, addr, b))
		f.held(narrow, addr, a)
		f.must(release(narrow, addr, a))
		f.free(narrow, addr)
		if f.Details { // else nobody knows whose the reservation is
			f.empty()
		}
	}},
	{"every address of a range can be recorded, the last one of its family too", func(f *fixture) {
		for _, tt := range []struct{ cidr, address string }{
			{"10.10.0.0/24", "10.10.0.0"},
			{"10.10.0.0/24", "10.10.0.255"},
			{"255.255.255.248/29", "255.255.255.255"},
			{"0.0.0.0/0", "192.0.2.1"},
			{"192.0.2.7/32", "192.0.2.7"},
			{"fd00::/64", "fd00::"},
			{"fd00::/64", "fd00::ffff:ffff:ffff:ffff"},
			{"fd00::/8", "fd00:0:0:1::"},
			{"2000::/3", "3fff:ffff:ffff:ffff:8000::1"},
			{"ffff:ffff:ffff:ffff::/64", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
			{"::/126", "::1"},
		} {
			// A network_name of its own for each, since some of them overlap.
			id, a, r := pool("n"+letters(tt.cidr+tt.address), tt.cidr), netip.MustParseAddr(tt.address), recordOf("a")
			f.must(take(id, a, r))
			f.held(id, a, r)
			f.reserved(id, a, r)
			f.conflict(take(id, a, recordOf("b")))
			f.must(release(id, a, r))
			f.free(id, a)
			f.unreserved(id.Network, a)
		}
		f.empty()
	}},
	{"an address outside the range is refused and not recorded", func(f *fixture) {
		outside := netip.MustParseAddr("10.11.0.1")
		if err := f.do(take(narrow, outside, recordOf("a"))); err == nil {
			f.Error("taking an address outside the range succeeds")
		}
		f.empty()
	}},
}

// letters is a text with only what any store takes for a name.
func letters(s string) string {
	out := []byte(s)
	for i, b := range out {
		if b == '.' || b == '/' || b == ':' {
			out[i] = '-'
		}
	}
	return string(out)
}

var rewriteCases = []testCase{
	{"a rewrite whose Before is right replaces record and reservation", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.must(take(narrow, addr, old), rewrite(narrow, addr, old, now))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
		CheckInvariants(f, f.Store)
	}},
	{"a rewrite whose Before is stale conflicts and changes nothing", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		late := restarted(now)
		f.must(take(narrow, addr, old), rewrite(narrow, addr, old, now))
		c := f.conflict(rewrite(narrow, addr, old, late))
		if c.Holder.ContainerID != now.ContainerID {
			f.Errorf("the conflict names container %q, want %q", c.Holder.ContainerID, now.ContainerID)
		}
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
	}},
	{"a rewrite of another gen of the same owner conflicts and changes nothing", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		stale := r
		stale.Gen = "00000000"
		f.must(take(narrow, addr, r))
		f.conflict(rewrite(narrow, addr, stale, restarted(r)))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a rewrite of a free address conflicts, names nobody and creates nothing", func(f *fixture) {
		r := recordOf("a")
		c := f.conflict(rewrite(narrow, addr, r, restarted(r)))
		if c.Holder != (ipam.Record{}) {
			f.Errorf("the conflict names %+v, want nobody", c.Holder)
		}
		f.empty()
	}},
	{"a repeated rewrite succeeds", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.must(take(narrow, addr, old), rewrite(narrow, addr, old, now), rewrite(narrow, addr, old, now))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
	}},
	{"a rewrite makes a missing reservation again", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.must(unprotected(take(narrow, addr, old)), rewrite(narrow, addr, old, now))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
		CheckInvariants(f, f.Store)
	}},
	{"a rewrite conflicts when the reservation is somebody else's, and leaves both alone", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(unprotected(take(narrow, addr, a)), take(wide, addr, b))
		c := f.conflict(rewrite(narrow, addr, a, restarted(a)))
		if !c.Reserved || c.Holder.PodRef != b.PodRef {
			f.Errorf("got conflict %+v, want a reservation of %q", c, b.PodRef)
		}
		f.held(narrow, addr, a)
		f.held(wide, addr, b)
		f.reserved(wide, addr, b)
	}},
	{"a rewrite without overlap protection leaves no reservation it did not find", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.must(unprotected(take(narrow, addr, old)), unprotected(rewrite(narrow, addr, old, now)))
		f.held(narrow, addr, now)
		f.unreserved("", addr)
	}},
	{"a rewrite updates the details", func(f *fixture) {
		f.mustKeepDetails()
		old := recordOf("a")
		now := restarted(old)
		now.Node, now.Network, now.Since = "node2", "othernet", since.AddDate(0, 1, 0)
		f.must(take(narrow, addr, old), rewrite(narrow, addr, old, now))
		f.sameDetails(f.onlyRecord(), now)
	}},
}
