package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Store keeps records in the custom resources of one namespace.
type Store struct {
	client   *Client
	observer Observer

	mu    sync.Mutex
	seen  map[ipam.PoolID]seenPool
	turns map[ipam.PoolID]bool // that are ours, see Turn
}

// seenPool is what is known of a pool object from its last read: what its
// offsets count from. Each patch tests it.
type seenPool struct {
	exists bool
	spec   string     // spec.range as written
	base   netip.Addr // its address part

	annotated bool // metadata.annotations is there

	generation int64 // metadata.generation, which counts the writes; 0 is unknown
	at         time.Time
}

var _ ipam.Store = (*Store)(nil)

// Observer learns from each write of a pool object who else writes to it. The API
// server carries out one write of an object at a time, and begins the others again
// and again until they come through: with twenty at once a write takes a hundred
// times as long, and a quarter as many come through. So contention shows as time,
// not as errors, and the remedy is to go one after the other: see Turn.
type Observer interface {
	Wrote(ipam.PoolID, ipam.Write)

	// Crowded says that others stood in the way of a write, or had their turn.
	Crowded(ipam.PoolID)
}

// NewStore makes no request. The observer may be nil.
func NewStore(client *Client, observer Observer) *Store {
	return &Store{client: client, observer: observer, seen: map[ipam.PoolID]seenPool{}, turns: map[ipam.PoolID]bool{}}
}

// Close drops the connections.
func (s *Store) Close() error {
	s.client.Close()
	return nil
}

// Ready asks for an object that never exists: the cheapest answer a working API
// server with our resource definitions can give. It does not retry.
func (s *Store) Ready(ctx context.Context) error {
	const name = "whereabouts-status"
	err := s.client.do(ctx, request{method: http.MethodGet, path: s.path(poolResource, name), slim: true}, nil)
	if err == nil || isMissing(err, name) {
		return nil
	}
	return s.client.explain("check the API server", err)
}

func (s *Store) path(resource, name string) string {
	p := "apis/" + apiVersion + "/namespaces/" + url.PathEscape(s.client.namespace) + "/" + resource
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// Read returns a pool's records. Details come with those entries that carry them
// (see newAllocation).
func (s *Store) Read(ctx context.Context, id ipam.PoolID) (*ipam.Pool, error) {
	name := PoolName(id)
	var object ipPool
	err := s.client.read(ctx, request{method: http.MethodGet, path: s.path(poolResource, name)}, &object)
	if isMissing(err, name) {
		s.remember(id, seenPool{})
		return &ipam.Pool{ID: id, Base: id.Range.Addr(), Records: map[netip.Addr]ipam.Record{}}, nil
	}
	if err != nil {
		return nil, s.client.explain("read pool "+name, err)
	}
	pool, err := readPool(id, object)
	if err != nil {
		return nil, err
	}
	s.remember(id, seenPool{
		exists: true, spec: object.Spec.Range, base: pool.Base, annotated: object.Metadata.Annotations != nil,
		generation: object.Metadata.Generation, at: time.Now(),
	})
	return pool, nil
}

func (s *Store) remember(id ipam.PoolID, p seenPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[id] = p
}

// recall returns what is known of a pool. One that has not been read is assumed
// to be as we would make it; the tests of a patch find out if it is not.
func (s *Store) recall(id ipam.PoolID) seenPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.seen[id]; ok {
		return p
	}
	return seenPool{exists: true, spec: id.Range.String(), base: id.Range.Addr()}
}

// readPool translates a pool object. Entries whose key is no offset, or whose value
// cannot be read or names no owner, are listed as bad and left as they are.
func readPool(id ipam.PoolID, object ipPool) (*ipam.Pool, error) {
	written, err := ipam.ParsePrefix(object.Spec.Range)
	if err != nil || !id.Range.Contains(written.Addr()) {
		return nil, fmt.Errorf("%w: pool %s: spec.range is %q, which does not lie in %s; correct or delete the object",
			ipam.ErrCorrupt, object.Metadata.Name, object.Spec.Range, id.Range)
	}
	pool := &ipam.Pool{
		ID: id, Exists: true, Base: written.Addr(), Closed: object.Metadata.closed(),
		Records: make(map[netip.Addr]ipam.Record, len(object.Spec.Allocations)),
	}
	for key, entry := range object.Spec.Allocations {
		address, ok := addressOf(pool.Base, key)
		if !ok {
			pool.Bad = append(pool.Bad, key)
			continue
		}
		record := entry.record()
		if record.ContainerID == "" && record.PodRef == "" {
			pool.Bad = append(pool.Bad, key)
		}
		pool.Records[address] = record
	}
	return pool, nil
}

func addressOf(base netip.Addr, key string) (netip.Addr, bool) {
	offset, ok := ipam.ParseUint128(key)
	if !ok {
		return netip.Addr{}, false
	}
	return ipam.AddOffset(base, offset)
}

// Reservation returns the reservation of an address, or nil.
func (s *Store) Reservation(ctx context.Context, network string, a netip.Addr) (*ipam.Reservation, error) {
	object, err := s.getReservation(ctx, ReservationName(network, a))
	if err != nil || object == nil {
		return nil, err
	}
	return &ipam.Reservation{Space: network, Address: a, Record: object.Spec.record(), Range: object.Spec.Range, Version: object.version()}, nil
}

func (s *Store) getReservation(ctx context.Context, name string) (*reservation, error) {
	var object reservation
	err := s.client.read(ctx, request{method: http.MethodGet, path: s.path(reservationResource, name)}, &object)
	if isMissing(err, name) {
		return nil, nil
	}
	if err != nil {
		return nil, s.client.explain("read reservation "+name, err)
	}
	return &object, nil
}

func (s *Store) findReservation(ctx context.Context, name string) (*claim, error) {
	found, err := s.getReservation(ctx, name)
	if err != nil || found == nil {
		return nil, err
	}
	return &claim{reservation: *found}, nil
}

// Commit carries out changes: reservations first where one is taken, then the
// entries of each pool in one patch, last the reservations that are freed.
func (s *Store) Commit(ctx context.Context, changes []ipam.Change) []error {
	changes = slices.Clone(changes) // a batch corrects what is known of the entries
	errs := make([]error, len(changes))
	claims := make([]*claim, len(changes))
	outcomes := make([]outcome, len(changes))
	parallel(len(changes), func(i int) {
		switch c := changes[i]; {
		case c.Seen != nil:
			errs[i] = s.releaseSeen(ctx, c)
		case !c.Pool.Range.Contains(c.Address):
			errs[i] = fmt.Errorf("%w: %s does not lie in pool %s", ipam.ErrInvalid, c.Address, c.Pool)
		case c.After == nil:
			claims[i], errs[i] = s.findReservation(ctx, ReservationName(c.Pool.Network, c.Address))
		case c.Overlap:
			claims[i], errs[i] = s.reserve(ctx, c)
		}
	})
	s.commitPools(ctx, changes, errs, outcomes)
	parallel(len(changes), func(i int) {
		switch c := changes[i]; {
		case claims[i] == nil:
		case c.After == nil && errs[i] == nil && !outcomes[i].others:
			errs[i] = s.unreserve(ctx, c, claims[i].reservation, outcomes[i].patched)
		case c.After != nil && errs[i] != nil && !errors.Is(errs[i], ipam.ErrUnavailable):
			s.undoReserve(ctx, c, *claims[i], outcomes[i])
		}
	})
	for i, c := range changes {
		if errs[i] == nil && c.Strict && c.Seen == nil && c.After == nil && !outcomes[i].certain {
			errs[i] = &ipam.ConflictError{Address: c.Address, Holder: outcomes[i].entry}
		}
	}
	return errs
}

// maxParallel bounds the requests in flight of one Commit.
const maxParallel = 16

// parallel calls f for 0 to n-1, at once where there are several.
func parallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	limit := make(chan struct{}, maxParallel)
	for i := range n {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			f(i)
		})
	}
	wg.Wait()
}
