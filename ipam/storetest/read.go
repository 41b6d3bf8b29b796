package storetest

import (
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var readCases = []testCase{
	{"a pool nobody wrote reads as empty, and reading it creates nothing", func(f *fixture) {
		p := f.read(narrow)
		if p.Exists || len(p.Records) != 0 || len(p.Bad) != 0 {
			f.Errorf("got %+v, want an empty pool that does not exist", p)
		}
		if p.ID != narrow {
			f.Errorf("the pool says it is %+v, want %+v", p.ID, narrow)
		}
		f.unreserved("", addr)
		if s := f.snapshot(); len(s.Pools) != 0 || len(s.Reservations) != 0 {
			f.Errorf("reading created %d pools and %d reservations", len(s.Pools), len(s.Reservations))
		}
	}},
	{"an empty store is ready", func(f *fixture) {
		if err := f.Store.Ready(f.ctx()); err != nil {
			f.Errorf("Ready: %v", err)
		}
	}},
	{"a store with records is ready", func(f *fixture) {
		f.must(take(narrow, addr, recordOf("a")))
		if err := f.Store.Ready(f.ctx()); err != nil {
			f.Errorf("Ready: %v", err)
		}
	}},
	{"what one handle writes, another one reads", func(f *fixture) {
		r := recordOf("a")
		f.must(take(narrow, addr, r))
		other := f.another()
		other.held(narrow, addr, r)
		other.reserved(narrow, addr, r)
		other.must(release(narrow, addr, r))
		f.free(narrow, addr)
		f.unreserved("", addr)
	}},
	{"a snapshot lists all pools, records and reservations", func(f *fixture) {
		all := map[ipam.PoolID]netip.Addr{
			narrow:                           addr,
			pool("blue", "10.10.0.0/24"):     addr,
			pool("blue-2", "10.10.0.0/24"):   addr,
			pool("", "fd00:1:2:3::/64"):      netip.MustParseAddr("fd00:1:2:3:8000::1"),
			pool("blue", "fd00:1:2:3::/112"): netip.MustParseAddr("fd00:1:2:3::7"),
		}
		for id, a := range all {
			f.must(take(id, a, recordOf("a")))
		}
		s := f.snapshot()
		if len(s.Pools) != len(all) || len(s.Reservations) != len(all) {
			f.Errorf("got %d pools and %d reservations, want %d of each", len(s.Pools), len(s.Reservations), len(all))
		}
		for _, p := range s.Pools {
			if _, ok := p.Records[all[p.ID]]; !ok || !p.Exists || len(p.Records) != 1 {
				f.Errorf("pool %+v holds %v, want %s", p.ID, p.Records, all[p.ID])
			}
		}
		for _, r := range s.Reservations {
			if r.PodRef != "default/a" {
				f.Errorf("%s in network_name %q is reserved for %q, want default/a", r.Address, r.Space, r.PodRef)
			}
		}
		CheckInvariants(f, f.Store)
	}},
	{"a snapshot has the details of records and reservations", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		f.must(take(narrow, addr, r))
		f.sameDetails(f.onlyRecord(), r)
		s := f.snapshot()
		if len(s.Reservations) != 1 {
			f.Fatalf("got %d reservations, want 1", len(s.Reservations))
		}
		f.sameDetails(s.Reservations[0].Record, r)
		if got, want := s.Reservations[0].Range, narrow.Range.String(); got != want {
			f.Errorf("the reservation names range %q, want %q", got, want)
		}
	}},
	{"a snapshot has the details of records without overlap protection", func(f *fixture) {
		f.mustKeepDetails()
		r := recordOf("a")
		f.must(unprotected(take(narrow, addr, r)))
		f.sameDetails(f.onlyRecord(), r)
	}},
	{"network names of any characters are kept apart", func(f *fixture) {
		names := []string{"", "a.b", "a_b", "A_B", "a b", "a/b", "-", "ä", "network_name=", "a-10.10.0.0-24"}
		for _, name := range names {
			f.must(take(pool(name, "10.10.0.0/24"), addr, recordOf("a")))
		}
		for _, name := range names {
			id := pool(name, "10.10.0.0/24")
			f.must(release(id, addr, f.read(id).Records[addr]))
			f.free(id, addr)
			f.unreserved(name, addr)
		}
		f.empty()
	}},
	{"a node's slice is a pool of its own", func(f *fixture) {
		slice := ipam.PoolID{Network: "n", Node: "node1.example.com", Range: narrow.Range}
		r := recordOf("a")
		f.must(unprotected(take(slice, addr, r)))
		f.held(slice, addr, r)
		f.free(pool("n", "10.10.0.0/24"), addr)
		f.must(release(slice, addr, r))
		f.empty()
	}},
}

// mustKeepDetails skips a case if the store's details are pruned.
func (f *fixture) mustKeepDetails() {
	f.Helper()
	if !f.Details {
		f.Skip("SKIPPED: this store does not keep details")
	}
}

func (f *fixture) onlyRecord() ipam.Record {
	f.Helper()
	s := f.snapshot()
	if len(s.Pools) != 1 || len(s.Pools[0].Records) != 1 {
		f.Fatalf("got %d pools, want one with one record", len(s.Pools))
	}
	return s.Pools[0].Records[addr]
}

func (f *fixture) sameDetails(got, want ipam.Record) {
	f.Helper()
	if got.UID != want.UID || got.Node != want.Node || got.Network != want.Network || !got.Since.Equal(want.Since) {
		f.Errorf("got details %+v, want %+v", got, want)
	}
}
