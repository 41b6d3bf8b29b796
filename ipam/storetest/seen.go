package storetest

import (
	"errors"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// seenCases are about releases of a reservation alone, as it was read.
var seenCases = []testCase{
	{"a reservation alone is released as it was seen", func(f *fixture) {
		r := recordOf("a")
		f.seedReservation(narrow, r, narrow.Range.String())
		f.must(strict(releaseSeen(f.reservation("", addr))))
		f.empty()
	}},
	{"a reservation that says neither range nor container is released as it was seen", func(f *fixture) {
		f.seedReservation(narrow, ipam.Record{PodRef: "default/a"}, "")
		f.must(strict(releaseSeen(f.reservation("", addr))))
		f.empty()
	}},
	{"a snapshot and a single read give a reservation the same version", func(f *fixture) {
		f.must(take(narrow, addr, recordOf("a")))
		got, want := f.snapshot().Reservations[0].Version, f.reservation("", addr).Version
		if got != want || got == "" {
			f.Errorf("the snapshot has version %q, a read %q, want the same one", got, want)
		}
	}},
	{"a release of a reservation as it was seen leaves what was written since", func(f *fixture) {
		old := recordOf("a")
		now := restarted(old)
		f.seedReservation(narrow, old, narrow.Range.String())
		seen := f.reservation("", addr)
		f.must(take(narrow, addr, now), releaseSeen(seen))
		f.conflict(strict(releaseSeen(seen)))
		f.held(narrow, addr, now)
		f.reserved(narrow, addr, now)
		CheckInvariants(f, f.Store)
	}},
	{"a release of a reservation as it was seen leaves what its own owner has finished since", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		f.seedReservation(narrow, r, narrow.Range.String())
		seen := f.reservation("", addr)
		f.must(take(narrow, addr, r), releaseSeen(seen))
		f.held(narrow, addr, r)
		f.reserved(narrow, addr, r)
		CheckInvariants(f, f.Store)
	}},
	{"a release of a reservation as it was seen leaves the one that came in its place", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.must(take(narrow, addr, a))
		seen := f.reservation("", addr)
		f.must(release(narrow, addr, a), take(wide, addr, b), releaseSeen(seen))
		f.conflict(strict(releaseSeen(seen)))
		f.held(wide, addr, b)
		f.reserved(wide, addr, b)
		CheckInvariants(f, f.Store)
	}},
	{"a release of a reservation as it was seen leaves another bare one in its place", func(f *fixture) {
		f.seedReservation(narrow, recordOf("a"), narrow.Range.String())
		seen, b := f.reservation("", addr), recordOf("b")
		f.must(releaseSeen(seen))
		f.seedReservation(wide, b, wide.Range.String())
		f.must(releaseSeen(seen))
		f.conflict(strict(releaseSeen(seen)))
		f.reserved(wide, addr, b)
	}},
	{"a release of a reservation that is gone succeeds, and conflicts if it is strict", func(f *fixture) {
		f.seedReservation(narrow, recordOf("a"), narrow.Range.String())
		seen := f.reservation("", addr)
		f.must(releaseSeen(seen), releaseSeen(seen))
		f.conflict(strict(releaseSeen(seen)))
		f.empty()
	}},
	{"a release of a reservation as it was seen touches no other owner's record", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.seedReservation(narrow, a, narrow.Range.String())
		f.SeedRecord(f.T, narrow, addr, b)
		f.must(strict(releaseSeen(f.reservation("", addr))))
		f.held(narrow, addr, b)
		f.unreserved("", addr)
	}},
	{"a release of a reservation without a version is refused", func(f *fixture) {
		f.seedReservation(narrow, recordOf("a"), narrow.Range.String())
		seen := f.reservation("", addr)
		seen.Version = ""
		if err := f.do(releaseSeen(seen)); !errors.Is(err, ipam.ErrInvalid) {
			f.Errorf("got error %v, want ErrInvalid", err)
		}
		f.reserved(narrow, addr, recordOf("a"))
	}},
	{"of two releases of one reservation as it was seen exactly one frees it", func(f *fixture) {
		other := f.another()
		f.seeds()
		for range 5 {
			r := recordOf("a")
			f.seedReservation(narrow, r, narrow.Range.String())
			c := strict(releaseSeen(f.reservation("", addr)))
			errs := make([]error, 2)
			together(2, func(i int) { errs[i] = []*fixture{f, other}[i].do(c) })
			f.oneWins(errs, r, r)
			f.empty()
		}
	}},
	{"a reservation as it was seen and a record are released in one batch", func(f *fixture) {
		a, b := recordOf("a"), recordOf("b")
		f.seedReservation(narrow, a, narrow.Range.String())
		f.must(take(narrow, addr.Next(), b))
		errs := f.Store.Commit(f.ctx(), []ipam.Change{releaseSeen(f.reservation("", addr)), release(narrow, addr.Next(), b)})
		f.outcomes(errs, nil, nil)
		f.empty()
	}},
}

// releaseSeen is the release of a reservation alone.
func releaseSeen(r *ipam.Reservation) ipam.Change {
	return ipam.Change{Pool: ipam.PoolID{Network: r.Space}, Address: r.Address, Seen: r}
}
