package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// TestModel runs the suite on a store in memory, so that the suite itself is
// tested, faults included, without a datastore.
func TestModel(t *testing.T) {
	Run(t, newModelHarness)
}

// TestModelWithoutDetails runs it on one that prunes what old versions do not
// know.
func TestModelWithoutDetails(t *testing.T) {
	Run(t, func(t *testing.T) Harness {
		h := newModelHarness(t)
		h.Details = false
		h.Store.(*model).data.prune = true
		return h
	})
}

func newModelHarness(*testing.T) Harness {
	data := &modelData{records: map[recordKey]ipam.Record{}, reservations: map[reservationKey]ipam.Reservation{}}
	wire := &modelWire{}
	return Harness{
		Store:   &model{data, wire},
		Other:   func(*testing.T) ipam.Store { return &model{data, &modelWire{}} },
		Faults:  wire,
		Details: true,
		SeedReservation: func(_ *testing.T, r ipam.Reservation) {
			data.reserve(reservationKey{r.Space, r.Address}, nil, &r)
		},
		SeedRecord: func(_ *testing.T, id ipam.PoolID, a netip.Addr, r ipam.Record) {
			data.record(recordKey{id, a}, nil, &r)
		},
	}
}

type recordKey struct {
	pool    ipam.PoolID
	address netip.Addr
}

type reservationKey struct {
	network string
	address netip.Addr
}

// modelData is the datastore: two objects for each address, and atomic
// compare-and-swap on each of them alone.
type modelData struct {
	sync.Mutex
	prune        bool
	writes       int
	records      map[recordKey]ipam.Record
	reservations map[reservationKey]ipam.Reservation
}

var errStale = errors.New("somebody else was first")

func (d *modelData) record(key recordKey, old, now *ipam.Record) error {
	if now != nil && d.prune {
		now = &ipam.Record{ContainerID: now.ContainerID, IfName: now.IfName, PodRef: now.PodRef}
	}
	return swap(d, d.records, key, old, now)
}

func (d *modelData) reserve(key reservationKey, old, now *ipam.Reservation) error {
	if now != nil {
		left := d.pruned(*now)
		left.Version = d.nextVersion()
		now = &left
	}
	return swap(d, d.reservations, key, old, now)
}

func (d *modelData) nextVersion() string {
	d.Lock()
	defer d.Unlock()
	d.writes++
	return fmt.Sprint("version ", d.writes)
}

func (d *modelData) pruned(r ipam.Reservation) ipam.Reservation {
	if d.prune {
		r.Range, r.Record = "", ipam.Record{IfName: r.IfName, PodRef: r.PodRef}
	}
	return r
}

func swap[K, V comparable](d *modelData, m map[K]V, key K, old, now *V) error {
	d.Lock()
	defer d.Unlock()
	current, exists := m[key]
	switch {
	case exists != (old != nil), exists && current != *old:
		return errStale
	case now == nil:
		delete(m, key)
	default:
		m[key] = *now
	}
	return nil
}

func find[K, V comparable](d *modelData, m map[K]V, key K) *V {
	d.Lock()
	defer d.Unlock()
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

// modelWire is what lies between the store and its data.
type modelWire struct {
	sync.Mutex
	fault        Fault
	armed        bool
	writes, hits int
}

func (w *modelWire) Arm(f Fault) {
	w.Lock()
	defer w.Unlock()
	w.fault, w.armed, w.writes, w.hits = f, true, 0, 0
}

func (w *modelWire) Disarm() {
	w.Lock()
	defer w.Unlock()
	w.armed = false
}

func (w *modelWire) Fired() int {
	w.Lock()
	defer w.Unlock()
	return w.hits
}

var errWire = errors.New("the line is broken")

func (w *modelWire) hit() (Fault, bool) {
	w.Lock()
	defer w.Unlock()
	w.writes++
	f := w.fault
	if !w.armed || w.writes < f.Nth || f.Times != 0 && w.writes >= f.Nth+f.Times {
		return f, false
	}
	w.hits++
	return f, true
}

func (w *modelWire) write(ctx context.Context, do func() error) error {
	f, hit := w.hit()
	if !hit {
		return do()
	}
	switch f.Kind {
	case LostAnswer:
		_ = do()
		return errWire
	case Slow:
		err := do()
		if !wait(ctx, f.Delay) {
			return errWire
		}
		return err
	case Status409, Status422:
		return errStale
	default:
		return errWire
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// model is a store that writes reservation and record one after the other, and
// begins again from what it reads after every failure.
type model struct {
	data *modelData
	wire *modelWire
}

func (m *model) Commit(ctx context.Context, changes []ipam.Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = m.commit(ctx, c)
	}
	return errs
}

func (m *model) commit(ctx context.Context, c ipam.Change) error {
	if c.After != nil && !c.Pool.Range.Contains(c.Address) {
		return ipam.ErrInvalid
	}
	tried := false
	for {
		if err := alive(ctx); err != nil {
			return err
		}
		err := m.try(ctx, c, &tried)
		if err == nil && c.After == nil && c.Seen == nil && c.Strict && !tried {
			return &ipam.ConflictError{Address: c.Address}
		}
		if !errors.Is(err, errStale) && !errors.Is(err, errWire) {
			return err
		}
		wait(ctx, time.Millisecond)
	}
}

func (m *model) try(ctx context.Context, c ipam.Change, tried *bool) error {
	switch {
	case c.Seen != nil:
		return m.releaseSeen(ctx, c)
	case c.After == nil:
		return m.release(ctx, c, tried)
	}
	return m.take(ctx, c)
}

func (m *model) releaseSeen(ctx context.Context, c ipam.Change) error {
	if c.Seen.Version == "" {
		return ipam.ErrInvalid
	}
	at := reservationKey{c.Pool.Network, c.Address}
	r := find(m.data, m.data.reservations, at)
	if r != nil && r.Version == c.Seen.Version {
		return m.wire.write(ctx, func() error { return m.data.reserve(at, r, nil) })
	}
	if c.Strict {
		return &ipam.ConflictError{Address: c.Address, Reserved: r != nil}
	}
	return nil
}

func (m *model) take(ctx context.Context, c ipam.Change) error {
	key, at := recordKey{c.Pool, c.Address}, reservationKey{c.Pool.Network, c.Address}
	current, reserved := find(m.data, m.data.records, key), find(m.data, m.data.reservations, at)
	own := reserved != nil && (owns(*c.After, *reserved) || c.Before != nil && owns(*c.Before, *reserved)) &&
		(reserved.Range == "" || reserved.Range == c.Pool.Range.String())
	done := current != nil && current.Same(*c.After)
	if !done && (current == nil) != (c.Before == nil) || !done && current != nil && !current.Same(*c.Before) {
		conflict := &ipam.ConflictError{Address: c.Address}
		if current != nil {
			conflict.Holder = *current
		}
		return errors.Join(m.undo(ctx, c, current, reserved), conflict)
	}
	if c.Overlap {
		if reserved != nil && !own {
			return &ipam.ConflictError{Address: c.Address, Holder: reserved.Record, Reserved: true, Range: reserved.Range}
		}
		now := ipam.Reservation{Space: c.Pool.Network, Address: c.Address, Record: *c.After, Range: c.Pool.Range.String()}
		now.Gen = ""
		if reserved == nil || unversioned(*reserved) != m.data.pruned(now) || !done {
			err := m.wire.write(ctx, func() error { return m.data.reserve(at, reserved, &now) })
			if err != nil {
				return err
			}
		}
	}
	if done {
		return nil
	}
	return m.wire.write(ctx, func() error { return m.data.record(key, current, c.After) })
}

func unversioned(r ipam.Reservation) ipam.Reservation {
	r.Version = ""
	return r
}

// undo gives up the reservation that an earlier try of a take or rewrite wrote, if
// the record went to somebody else meanwhile: it goes back to the record that is
// there, if that is the same pod's, and else away.
func (m *model) undo(ctx context.Context, c ipam.Change, current *ipam.Record, r *ipam.Reservation) error {
	if !c.Overlap || r == nil || !owns(*c.After, *r) || current != nil && current.ContainerID == r.ContainerID {
		return nil
	}
	var back *ipam.Reservation
	if current != nil && owns(*current, *r) {
		now := ipam.Reservation{Space: c.Pool.Network, Address: c.Address, Record: *current, Range: c.Pool.Range.String()}
		now.Gen = ""
		now = m.data.pruned(now)
		back = &now
	}
	at := reservationKey{c.Pool.Network, c.Address}
	return m.wire.write(ctx, func() error { return m.data.reserve(at, r, back) })
}

// release remembers in tried whether it deleted the record itself, or may have:
// then the reservation may name an older container of the same pod, and a strict
// release has freed something. A refused write has not.
func (m *model) release(ctx context.Context, c ipam.Change, tried *bool) error {
	key, at := recordKey{c.Pool, c.Address}, reservationKey{c.Pool.Network, c.Address}
	current := find(m.data, m.data.records, key)
	if current != nil && c.Frees(*current) {
		err := m.wire.write(ctx, func() error { return m.data.record(key, current, nil) })
		*tried = *tried || !errors.Is(err, errStale)
		if err != nil {
			return err
		}
		current = nil
	}
	r := find(m.data, m.data.reservations, at)
	if r == nil || r.Range != "" && r.Range != c.Pool.Range.String() || !owns(*c.Before, *r) {
		return nil
	}
	if current != nil && owns(*current, *r) || !*tried && r.ContainerID != c.Before.ContainerID && r.ContainerID != "" {
		return nil
	}
	return m.wire.write(ctx, func() error { return m.data.reserve(at, r, nil) })
}

// owns reports whether the owner that a record names may continue a reservation.
func owns(r ipam.Record, reserved ipam.Reservation) bool {
	return reserved.OwnedBy(ipam.Owner{ContainerID: r.ContainerID, IfName: r.IfName, PodRef: r.PodRef, UID: r.UID})
}

func alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ipam.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (m *model) Read(ctx context.Context, id ipam.PoolID) (*ipam.Pool, error) {
	all, err := m.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all.Pools {
		if p.ID == id {
			return p, nil
		}
	}
	return &ipam.Pool{ID: id}, nil
}

func (m *model) Reservation(ctx context.Context, network string, a netip.Addr) (*ipam.Reservation, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return find(m.data, m.data.reservations, reservationKey{network, a}), nil
}

func (m *model) Snapshot(ctx context.Context) (*ipam.Snapshot, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	m.data.Lock()
	defer m.data.Unlock()
	pools := map[ipam.PoolID]*ipam.Pool{}
	for key, r := range m.data.records {
		if pools[key.pool] == nil {
			pools[key.pool] = &ipam.Pool{ID: key.pool, Exists: true, Records: map[netip.Addr]ipam.Record{}}
		}
		pools[key.pool].Records[key.address] = r
	}
	return &ipam.Snapshot{
		Pools:        slices.Collect(maps.Values(pools)),
		Reservations: slices.Collect(maps.Values(m.data.reservations)),
	}, nil
}

func (m *model) Ready(ctx context.Context) error { return alive(ctx) }

func (m *model) Close() error { return nil }
