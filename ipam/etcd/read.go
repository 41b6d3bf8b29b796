package etcd

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// page is how many keys are read with one request. Each request costs etcd a walk over
// all keys that are left.
const page = 16384

// each calls fn for each key of a range, all as they were at one moment.
func (s *Store) each(ctx context.Context, r rangeRequest, fn func(pair)) error {
	r.Limit = page
	for {
		var found rangeAnswer
		if err := s.client.call(ctx, "/v3/kv/range", r, &found); err != nil {
			return err
		}
		for _, kv := range found.Pairs {
			fn(kv)
		}
		if !found.More || len(found.Pairs) == 0 {
			return nil
		}
		if r.Revision == 0 {
			r.Revision = found.Header.Revision
		}
		r.Key = found.Pairs[len(found.Pairs)-1].Key + "\x00"
	}
}

func emptyPool(id ipam.PoolID) *ipam.Pool {
	return &ipam.Pool{ID: id, Base: id.Range.Masked().Addr(), Records: map[netip.Addr]ipam.Record{}}
}

// add takes over one record. One that cannot be read is held by nobody known: such an
// address must not be handed out.
func add(pool *ipam.Pool, name string, e entry) {
	a, ok := parseDigits(name)
	if !ok || e.unreadable {
		pool.Bad = append(pool.Bad, name)
	}
	if ok {
		pool.Records[a] = e.Record
	}
	pool.Exists = true
}

// Read returns all of a pool's records with their details. Where just some are
// needed, Search costs less.
func (s *Store) Read(ctx context.Context, id ipam.PoolID) (*ipam.Pool, error) {
	pool, prefix := emptyPool(id), poolKey(id)
	err := s.each(ctx, below(prefix), func(kv pair) { add(pool, string(kv.Key)[len(prefix):], decode(kv)) })
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", id, err)
	}
	return pool, nil
}

// Snapshot returns everything that is stored, as it was at one moment. A reservation
// that cannot be read has no owner. Keys that name no pool or address claim nothing
// and are left out; within a pool they are in Bad.
func (s *Store) Snapshot(ctx context.Context) (*ipam.Snapshot, error) {
	snapshot := &ipam.Snapshot{}
	pools := map[ipam.PoolID]*ipam.Pool{}
	err := s.each(ctx, below(root), func(kv pair) {
		p, ok := parseKey(string(kv.Key))
		switch {
		case !ok:
		case p.kind == kindReservations && p.address.IsValid():
			snapshot.Reservations = append(snapshot.Reservations, *reservationOf(p.network, p.address, decode(kv)))
		case p.kind == kindPools:
			if pools[p.pool] == nil {
				pools[p.pool] = emptyPool(p.pool)
				snapshot.Pools = append(snapshot.Pools, pools[p.pool])
			}
			add(pools[p.pool], p.last, decode(kv))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading all records: %w", err)
	}
	return snapshot, nil
}
