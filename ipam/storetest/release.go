package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var releaseCases = []testCase{
	{"a release by the owner frees record and reservation", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), release(narrow, addr, r))
		f.free(narrow, addr)
		f.unreserved("", addr)
		f.empty()
	}},
	{"a release without overlap protection frees the owner's reservation too", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), unprotected(release(narrow, addr, r)))
		f.empty()
	}},
	{"a release after an adoption without overlap protection frees the older reservation", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.must(take(narrow, addr, old), unprotected(rewrite(narrow, addr, old, now)), release(narrow, addr, now))
		f.empty()
	}},
	{"a late release by the container before an adoption touches nothing", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.must(take(narrow, addr, old), rewrite(narrow, addr, old, now), release(narrow, addr, old))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
	}},
	{"a late release of an older gen touches nothing", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		older := r
		older.Gen = "00000000"
		f.must(take(narrow, addr, r), release(narrow, addr, older))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a release by another pod touches nothing", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), release(narrow, addr, recordOf("b")))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a release by another interface of the pod touches nothing", func(f *fixture) {
		r := recordOf("a")
		second := r
		second.IfName = "net2"
		f.must(take(narrow, addr, r), release(narrow, addr, second))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a release through another range touches nothing", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), release(wide, addr, r))
		f.held(narrow, addr, r)
		if f.Details { // else nobody knows what range the reservation belongs to
			f.reserved(narrow, addr, r)
		}
	}},
	{"a release of nothing succeeds and creates nothing", func(f *fixture) {
		f.must(release(narrow, addr, recordOf("a")))
		if p := f.read(narrow); p.Exists {
			f.Error("the release created the pool")
		}
		if s := f.snapshot(); len(s.Pools) != 0 {
			f.Errorf("the release created %d pools", len(s.Pools))
		}
	}},
	{"a release of a free address in a pool with others touches nothing", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), release(narrow, addr.Next(), r))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
	}},
	{"a repeated release succeeds", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), release(narrow, addr, r), release(narrow, addr, r))
		f.empty()
	}},
	{"a repeated release does not touch the next holder", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a), release(narrow, addr, a), take(narrow, addr, b), release(narrow, addr, a))
		f.held(narrow, addr, b)
		f.reserved(narrow, addr, b)
	}},
	{"a release leaves the other records of the pool alone", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a), take(narrow, addr.Next(), b), release(narrow, addr, a))
		f.held(narrow, addr.Next(), b)
		f.reserved(narrow, addr.Next(), b)
		CheckInvariants(f, f.Store)
	}},
}

var strictCases = []testCase{
	{"a strict release that frees the record succeeds once", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r), strict(release(narrow, addr, r)))
		f.empty()
		f.conflict(strict(release(narrow, addr, r)))
	}},
	{"a strict release of somebody else's record conflicts and touches nothing", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a))
		f.conflict(strict(release(narrow, addr, b)))
		f.held(narrow, addr, a)
		f.reserved(narrow, addr, a)
	}},
	{"a strict release in a pool that nobody wrote conflicts", func(f *fixture) {
		f.conflict(strict(release(narrow, addr, recordOf("a"))))
		f.empty()
	}},
	{"of two strict releases of one record exactly one frees it", func(f *fixture) {
		other := f.another()
		for range 5 {
			r := recordOf("a")
			f.must(take(narrow, addr, r))
			errs := make([]error, 2)
			together(2, func(i int) { errs[i] = []*fixture{f, other}[i].do(strict(release(narrow, addr, r))) })
			f.oneWins(errs, r, r)
			f.empty()
		}
	}},
	{"in a batch of strict releases only those that free something succeed", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a), take(narrow, addr.Next(), b))
		errs := f.Store.Commit(f.ctx(), []ipam.Change{
			strict(release(narrow, addr, a)), strict(release(narrow, addr.Next(), a)), strict(release(narrow, addr.Prev(), a)),
		})
		f.outcomes(errs, nil, ipam.ErrConflict, ipam.ErrConflict)
		f.free(narrow, addr)
		f.held(narrow, addr.Next(), b)
		f.reserved(narrow, addr.Next(), b)
		CheckInvariants(f, f.Store)
	}},
}

// strict is the release that has to be the one that frees.
func strict(c ipam.Change) ipam.Change {
	c.Strict = true
	return c
}

var batchCases = []testCase{
	{"an empty batch answers no errors", func(f *fixture) {
		if errs := f.Store.Commit(f.ctx(), nil); len(errs) != 0 {
			f.Errorf("got %v", errs)
		}
		f.empty()
	}},
	{"a bad change in a batch does not fail the others", func(f *fixture) {
		holder := recordOf("holder")
		f.must(take(narrow, addr, holder))
		a, b := recordOf("a"), recordOf("b")
		first, last := addr.Prev(), addr.Next()
		errs := f.Store.Commit(f.ctx(), []ipam.Change{
			take(narrow, first, a),
			take(narrow, addr, a),
			rewrite(narrow, last.Next(), a, restarted(a)),
			take(narrow, last, b),
		})
		f.outcomes(errs, nil, ipam.ErrConflict, ipam.ErrConflict, nil)
		f.held(narrow, first, a)
		f.held(narrow, addr, holder)
		f.held(narrow, last, b)
		f.free(narrow, last.Next())
		CheckInvariants(f, f.Store)
	}},
	{"a batch takes, rewrites and releases at once", func(f *fixture) {
		a, b, c := recordOf("a"), recordOf("b"), recordOf("c")
		first, second, third := addr, addr.Next(), addr.Next().Next()
		f.must(take(narrow, first, a), take(narrow, second, b))
		errs := f.Store.Commit(f.ctx(), []ipam.Change{
			release(narrow, first, a), rewrite(narrow, second, b, restarted(b)), take(narrow, third, c),
		})
		f.outcomes(errs, nil, nil, nil)
		f.free(narrow, first)
		f.unreserved("", first)
		if got := f.read(narrow).Records[second]; got.ContainerID != restarted(b).ContainerID {
			f.Errorf("%s is held by %+v, want the new container", second, got)
		}
		f.held(narrow, third, c)
		CheckInvariants(f, f.Store)
	}},
	{"a batch may span pools, networks and families", func(f *fixture) {
		six, blue := pool("", "fd00::/64"), pool("blue", "10.10.0.0/24")
		a6 := netip.MustParseAddr("fd00::1:0:0:5")
		a, b, c := recordOf("a"), recordOf("b"), recordOf("c")
		errs := f.Store.Commit(f.ctx(), []ipam.Change{
			take(narrow, addr, a), take(six, a6, a), take(blue, addr, b), take(wide, addr.Next(), c),
		})
		f.outcomes(errs, nil, nil, nil, nil)
		f.held(narrow, addr, a)
		f.held(six, a6, a)
		f.held(blue, addr, b)
		f.held(wide, addr.Next(), c)
		CheckInvariants(f, f.Store)
		errs = f.Store.Commit(f.ctx(), []ipam.Change{
			release(narrow, addr, a), release(six, a6, a), release(blue, addr, b), release(wide, addr.Next(), c),
		})
		f.outcomes(errs, nil, nil, nil, nil)
		f.empty()
	}},
	{"a batch of many takes succeeds", func(f *fixture) {
		changes := make([]ipam.Change, 40)
		a := netip.MustParseAddr("10.10.0.1")
		for i := range changes {
			changes[i] = take(narrow, a, recordOf(fmt.Sprint("pod-", i)))
			a = a.Next()
		}
		f.outcomes(f.Store.Commit(f.ctx(), changes), make([]error, len(changes))...)
		if got := len(f.read(narrow).Records); got != len(changes) {
			f.Errorf("%d addresses are recorded, want %d", got, len(changes))
		}
		CheckInvariants(f, f.Store)
	}},
	{"a release of the latest frees the owner's record under another token", func(f *fixture) {
		older, newer := recordOf("a"), recordOf("a")
		f.must(take(narrow, addr, older), rewrite(narrow, addr, older, newer))
		latest := release(narrow, addr, older)
		latest.Latest = true
		f.must(latest)
		f.empty()
	}},
	{"a release of the latest leaves another container's record alone", func(f *fixture) {
		older := recordOf("a")
		newer := restarted(older)
		f.must(take(narrow, addr, older), rewrite(narrow, addr, older, newer))
		latest := release(narrow, addr, older)
		latest.Latest = true
		f.must(latest)
		f.held(narrow, addr, newer)
		f.reserved(narrow, addr, newer)
	}},
	{"a batch that releases one address under two tokens frees it", func(f *fixture) {
		older, newer := recordOf("a"), recordOf("a")
		f.must(take(narrow, addr, older), rewrite(narrow, addr, older, newer))
		for _, batch := range [][]ipam.Record{{older, newer}, {newer, older}} {
			f.outcomes(f.Store.Commit(f.ctx(), []ipam.Change{release(narrow, addr, batch[0]), release(narrow, addr, batch[1])}), nil, nil)
			f.free(narrow, addr)
			f.unreserved("", addr)
			f.must(take(narrow, addr, newer))
		}
		f.must(release(narrow, addr, newer))
		f.empty()
	}},
	{"of two takes of one address in a batch at most one wins", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		errs := f.Store.Commit(f.ctx(), []ipam.Change{take(narrow, addr, a), take(narrow, addr, b)})
		if errs[0] != nil { // changes of a batch have no order
			errs[0], errs[1], a = errs[1], errs[0], b
		}
		f.outcomes(errs, nil, ipam.ErrConflict)
		f.held(narrow, addr, a)
		CheckInvariants(f, f.Store)
	}},
	{"of two takes of one address through two ranges in a batch at most one wins", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		errs := f.Store.Commit(f.ctx(), []ipam.Change{take(narrow, addr, a), take(wide, addr, b)})
		if len(errs) != 2 || (errs[0] == nil) == (errs[1] == nil) {
			f.Errorf("got errors %v, want one success and one conflict", errs)
		}
		if err := errors.Join(errs...); !errors.Is(err, ipam.ErrConflict) {
			f.Errorf("got error %v, want a conflict", err)
		}
		CheckInvariants(f, f.Store)
	}},
}

// outcomes wants one error for each change: nil, or one that wraps the given.
func (f *fixture) outcomes(got []error, want ...error) {
	f.Helper()
	if len(got) != len(want) {
		f.Fatalf("got %d errors, want %d: %v", len(got), len(want), got)
	}
	for i := range got {
		if !errors.Is(got[i], want[i]) {
			f.Errorf("change %d answers %v, want %v", i, got[i], want[i])
		}
	}
}

var contextCases = []testCase{
	{"a cancelled context is an error at once and changes nothing by halves", func(f *fixture) {
		r := recordOf("a")
		ctx, cancel := context.WithCancel(f.ctx())
		cancel()
		f.gaveUp("Commit", commit(ctx, f.Store, take(narrow, addr, r)))
		_, err := f.Store.Read(ctx, narrow)
		f.gaveUp("Read", err)
		_, err = f.Store.Reservation(ctx, "", addr)
		f.gaveUp("Reservation", err)
		_, err = f.Store.Snapshot(ctx)
		f.gaveUp("Snapshot", err)
		f.gaveUp("Ready", f.Store.Ready(ctx))
		CheckInvariants(f, f.Store)
		f.must(take(narrow, addr, r))
		f.held(narrow, addr, r)
		CheckInvariants(f, f.Store)
	}},
	{"a cancelled context fails every change of a batch", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx())
		cancel()
		errs := f.Store.Commit(ctx, []ipam.Change{
			take(narrow, addr, recordOf("a")), release(narrow, addr.Next(), recordOf("b")),
		})
		if len(errs) != 2 {
			f.Fatalf("got %d errors, want 2", len(errs))
		}
		for _, err := range errs {
			f.gaveUp("Commit", err)
		}
	}},
}

// gaveUp wants the error of a call whose context ended.
func (f *fixture) gaveUp(call string, err error) {
	f.Helper()
	if !errors.Is(err, ipam.ErrUnavailable) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		f.Errorf("%s with a cancelled context: got error %v, want one that wraps ErrUnavailable or the context's", call, err)
	}
}
