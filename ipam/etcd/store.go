package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// parallel is how many changes of a batch are on their way at once.
const parallel = 16

// Store is an ipam.Store in etcd. Nothing is created before the first record.
type Store struct {
	client *client
}

var (
	_ ipam.Store    = (*Store)(nil)
	_ ipam.Searcher = (*Store)(nil)
)

// Open returns the store at the endpoints of a configuration. It reads the
// certificates and makes no request yet. answered is called whenever etcd answers; it
// may be nil. Errors wrap ipam.ErrInvalid, or ipam.ErrUnavailable for a certificate
// of our own that has expired.
func Open(cfg ipam.EtcdConfig, answered func()) (*Store, error) {
	config, err := newTLS(cfg, time.Now())
	if err != nil {
		return nil, err
	}
	c := &client{username: cfg.Username, password: cfg.Password, http: newHTTP(config), answered: answered}
	if answered == nil {
		c.answered = func() {}
	}
	for _, e := range cfg.Endpoints {
		base, err := baseURL(e, config != nil)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, base)
	}
	if len(c.endpoints) == 0 {
		return nil, invalid("etcd_host", "missing; write addresses like https://10.0.0.1:2379, with commas between")
	}
	c.next = rand.IntN(len(c.endpoints))
	return &Store{c}, nil
}

// Commit carries out changes, each in a transaction of its own, several at once.
func (s *Store) Commit(ctx context.Context, changes []ipam.Change) []error {
	errs := make([]error, len(changes))
	room := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, c := range changes {
		if errs[i] = validate(c); errs[i] != nil {
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			errs[i] = s.commit(ctx, c)
		})
	}
	all.Wait()
	return errs
}

// commit carries out one change. A take is tried at once, as if nothing were there:
// it is one request where that is so. What is there comes back with the refusal.
func (s *Store) commit(ctx context.Context, c ipam.Change) error {
	now := scene{}
	if c.Before != nil || c.Seen != nil || s.client.seen.Load() == 0 {
		found, err := s.look(ctx, c)
		if err != nil {
			return err
		}
		now = found
	}
	for {
		now.elsewhere = func() (string, bool, error) { return s.elsewhere(ctx, c.Pool, c.Address) }
		ops, verdict := now.judge(c)
		var conflict *ipam.ConflictError
		if verdict != nil && !errors.As(verdict, &conflict) || len(ops) == 0 {
			return verdict
		}
		var out outcome
		err := s.client.call(ctx, "/v3/kv/txn", transaction{If: s.conditions(c, now), Then: ops, Else: lookOps(c)}, &out)
		if err != nil {
			return fmt.Errorf("%s in pool %s: %w", c.Address, c.Pool, err)
		}
		if out.Succeeded {
			return verdict
		}
		if now, err = sceneOf(out); err != nil {
			return err
		}
	}
}

// conditions hold while what a change was judged by is what is there, and while its
// container is not released: see fence.
func (s *Store) conditions(c ipam.Change, now scene) []condition {
	all := []condition{
		unchanged(recordKey(c.Pool, c.Address), now.record.revision),
		unchanged(reservationKey(c.Pool.Network, c.Address), now.reservation.revision),
	}
	if c.After != nil {
		all = append(all, notSince(fenceKey(c.Pool.Network, c.After.ContainerID), s.client.seen.Load()))
	}
	return all
}

func lookOps(c ipam.Change) []op {
	return []op{readOp(one(recordKey(c.Pool, c.Address))), readOp(one(reservationKey(c.Pool.Network, c.Address)))}
}

// look reads what is stored about the address of a change.
func (s *Store) look(ctx context.Context, c ipam.Change) (scene, error) {
	var out outcome
	if err := s.client.call(ctx, "/v3/kv/txn", transaction{Then: lookOps(c)}, &out); err != nil {
		return scene{}, fmt.Errorf("%s in pool %s: %w", c.Address, c.Pool, err)
	}
	return sceneOf(out)
}

func sceneOf(out outcome) (scene, error) {
	found := out.ranges()
	if len(found) != 2 {
		return scene{}, fmt.Errorf("%w: etcd answered %d reads of 2", ipam.ErrCorrupt, len(found))
	}
	return scene{record: entryOf(found[0]), reservation: entryOf(found[1])}, nil
}

// elsewhere looks for a record of the address in the network's other pools.
func (s *Store) elsewhere(ctx context.Context, id ipam.PoolID, a netip.Addr) (cidr string, found bool, err error) {
	r := below(spaceKey(id.Network) + kindPools + "/")
	r.KeysOnly = true
	err = s.each(ctx, r, func(kv pair) {
		p, ok := parseKey(string(kv.Key))
		if ok && p.address == a && p.pool != id {
			cidr, found = p.pool.Range.String(), true
		}
	})
	return cidr, found, err
}

// Reservation returns the reservation of an address, or nil if there is none. One
// that cannot be read is an error that wraps ipam.ErrCorrupt.
func (s *Store) Reservation(ctx context.Context, network string, a netip.Addr) (*ipam.Reservation, error) {
	var found rangeAnswer
	key := reservationKey(network, a)
	if err := s.client.call(ctx, "/v3/kv/range", one(key), &found); err != nil {
		return nil, fmt.Errorf("reservation of %s: %w", a, err)
	}
	e := entryOf(found)
	switch {
	case !e.exists():
		return nil, nil
	case e.unreadable:
		return nil, fmt.Errorf("%w: etcd key %s: the reservation of %s; have it repaired or removed", ipam.ErrCorrupt, key, a)
	}
	return reservationOf(network, a, e), nil
}

func reservationOf(network string, a netip.Addr, e entry) *ipam.Reservation {
	return &ipam.Reservation{Space: network, Address: a, Record: e.Record, Range: e.pool, Version: versionOf(e)}
}

// Ready reads one key, which takes a majority of the members.
func (s *Store) Ready(ctx context.Context) error {
	var found rangeAnswer
	return s.client.call(ctx, "/v3/kv/range", one(root), &found)
}

// Close ends idle connections.
func (s *Store) Close() error {
	s.client.http.CloseIdleConnections()
	return nil
}
