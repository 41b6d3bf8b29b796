package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// timeout bounds a call that is expected to succeed. It is no measure of speed.
const timeout = 30 * time.Second

// The pools that most cases use: narrow lies inside wide.
var (
	narrow = pool("", "10.10.0.0/24")
	wide   = pool("", "10.10.0.0/16")
	addr   = netip.MustParseAddr("10.10.0.5")
)

func pool(network, cidr string) ipam.PoolID {
	return ipam.PoolID{Network: network, Range: netip.MustParsePrefix(cidr)}
}

// fixture is a store under test with the calls and questions cases are made of.
type fixture struct {
	*testing.T
	Harness
}

func newFixture(t *testing.T, h Harness) *fixture {
	t.Cleanup(func() {
		if err := h.Store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &fixture{t, h}
}

// since is a fixed time with the precision that stores keep.
var since = time.Date(2026, 3, 1, 12, 30, 15, 0, time.UTC)

// recordOf is a new record of a pod's interface net1, in a container named after
// the pod.
func recordOf(pod string) ipam.Record {
	return ipam.NewRecord(ipam.Owner{
		ContainerID: "container-" + pod, IfName: "net1", PodRef: "default/" + pod,
		UID: "uid-" + pod, Node: "node1", Network: "mynet",
	}, since)
}

// restarted is the record of the same pod's interface in a new container.
func restarted(r ipam.Record) ipam.Record {
	again := ipam.NewRecord(ipam.Owner{
		ContainerID: r.ContainerID + "-again", IfName: r.IfName, PodRef: r.PodRef,
		UID: r.UID, Node: r.Node, Network: r.Network,
	}, since)
	return again
}

func take(id ipam.PoolID, a netip.Addr, r ipam.Record) ipam.Change {
	return ipam.Change{Pool: id, Address: a, After: &r, Overlap: true}
}

func rewrite(id ipam.PoolID, a netip.Addr, before, after ipam.Record) ipam.Change {
	return ipam.Change{Pool: id, Address: a, Before: &before, After: &after, Overlap: true}
}

func release(id ipam.PoolID, a netip.Addr, r ipam.Record) ipam.Change {
	return ipam.Change{Pool: id, Address: a, Before: &r, Overlap: true}
}

// unprotected is the change without overlap protection.
func unprotected(c ipam.Change) ipam.Change {
	c.Overlap = false
	return c
}

// commit carries out one change.
func commit(ctx context.Context, s ipam.Store, c ipam.Change) error {
	errs := s.Commit(ctx, []ipam.Change{c})
	if len(errs) != 1 {
		return fmt.Errorf("a commit of one change answers %d errors", len(errs))
	}
	return errs[0]
}

func (f *fixture) do(c ipam.Change) error { return commit(f.ctx(), f.Store, c) }

// ctx is a context for one call that is expected to succeed.
func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), timeout)
	f.Cleanup(cancel)
	return ctx
}

// on is the fixture with another handle in place of the store.
func (f *fixture) on(s ipam.Store) *fixture {
	h := f.Harness
	h.Store = s
	return &fixture{f.T, h}
}

// another opens a second handle onto the same data.
func (f *fixture) another() *fixture {
	s := f.Other(f.T)
	f.Cleanup(func() { _ = s.Close() })
	return f.on(s)
}

// must carries out changes that have to succeed.
func (f *fixture) must(changes ...ipam.Change) {
	f.Helper()
	for _, c := range changes {
		if err := f.do(c); err != nil {
			f.Fatalf("%s: %v", describe(c), err)
		}
	}
}

// conflict carries out a change that must be refused, and answers the refusal.
func (f *fixture) conflict(c ipam.Change) *ipam.ConflictError {
	f.Helper()
	err := f.do(c)
	var conflict *ipam.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, ipam.ErrConflict) {
		f.Fatalf("%s: got error %v, want a ConflictError", describe(c), err)
	}
	if conflict.Address != c.Address {
		f.Errorf("the conflict is about %s, want %s", conflict.Address, c.Address)
	}
	return conflict
}

func describe(c ipam.Change) string {
	where := fmt.Sprintf("%s in %s of network_name %q", c.Address, c.Pool.Range, c.Pool.Network)
	switch {
	case c.Seen != nil:
		return fmt.Sprintf("release the reservation of %s for %s", c.Address, c.Seen.Holder())
	case c.Before == nil:
		return fmt.Sprintf("take %s for %s", where, c.After.Holder())
	case c.After == nil:
		return fmt.Sprintf("release %s by %s", where, c.Before.Holder())
	}
	return fmt.Sprintf("rewrite %s from %s to %s", where, c.Before.Holder(), c.After.Holder())
}

func (f *fixture) read(id ipam.PoolID) *ipam.Pool {
	f.Helper()
	p, err := f.Store.Read(f.ctx(), id)
	if err != nil || p == nil {
		f.Fatalf("Read %s: %v, %v", id.Range, p, err)
	}
	return p
}

func (f *fixture) reservation(network string, a netip.Addr) *ipam.Reservation {
	f.Helper()
	r, err := f.Store.Reservation(f.ctx(), network, a)
	if err != nil {
		f.Fatalf("Reservation %s: %v", a, err)
	}
	return r
}

func (f *fixture) snapshot() *ipam.Snapshot {
	f.Helper()
	return snapshot(f, f.Store)
}

// held wants an address to be held by exactly this record.
func (f *fixture) held(id ipam.PoolID, a netip.Addr, want ipam.Record) {
	f.Helper()
	got, ok := f.read(id).Records[a]
	if !ok {
		f.Fatalf("%s is not recorded in %s, want it held by %s", a, id.Range, want.Holder())
	}
	if !got.Same(want) || got.PodRef != want.PodRef {
		f.Fatalf("%s is held by %+v, want %+v", a, got, want)
	}
}

func (f *fixture) free(id ipam.PoolID, a netip.Addr) {
	f.Helper()
	if got, ok := f.read(id).Records[a]; ok {
		f.Fatalf("%s is held by %s in %s, want it free", a, got.Holder(), id.Range)
	}
}

// reserved wants the reservation of an address to be this record's.
func (f *fixture) reserved(id ipam.PoolID, a netip.Addr, want ipam.Record) {
	f.Helper()
	got := f.reservation(id.Network, a)
	if got == nil {
		f.Fatalf("%s is not reserved, want it reserved for %s", a, want.Holder())
	}
	if got.PodRef != want.PodRef || got.IfName != want.IfName {
		f.Fatalf("%s is reserved for %+v, want %+v", a, got.Record, want)
	}
	if f.Details && got.ContainerID != want.ContainerID {
		f.Fatalf("%s is reserved for container %s, want %s", a, got.ContainerID, want.ContainerID)
	}
	if got.Space != id.Network || got.Address != a {
		f.Fatalf("the reservation of %s in network_name %q says it is of %s in %q", a, id.Network, got.Address, got.Space)
	}
}

func (f *fixture) unreserved(network string, a netip.Addr) {
	f.Helper()
	if got := f.reservation(network, a); got != nil {
		f.Fatalf("%s is reserved for %s, want no reservation", a, got.Holder())
	}
}

// empty wants no record and no reservation anywhere.
func (f *fixture) empty() {
	f.Helper()
	s := f.snapshot()
	for _, p := range s.Pools {
		for _, a := range slices.Collect(maps.Keys(p.Records)) {
			f.Errorf("%s is still recorded in %s for %s", a, p.ID.Range, p.Records[a].Holder())
		}
	}
	for _, r := range s.Reservations {
		f.Errorf("%s is still reserved for %s", r.Address, r.Holder())
	}
}

// seeds skips a case if the harness cannot write half records.
func (f *fixture) seeds() {
	f.Helper()
	if f.SeedReservation == nil || f.SeedRecord == nil {
		f.Skip("SKIPPED: this harness cannot write half records")
	}
}
