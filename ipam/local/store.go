// Package local keeps records in one file on one host: for trying Whereabouts
// out and for container runtimes without a cluster.
//
// The file is a bbolt database; layout.go says what is in it. Many processes use
// it at once. Each call of a method locks the file, opens it, runs one
// transaction and closes it again, so that nobody holds it between calls and a
// process that dies leaves nothing locked (lock.go, file.go).
//
// A change's precondition is judged and its writes are made in one transaction
// (judge.go): half records do not come into being here. They can be met all the
// same, in a file that somebody edited, and are then treated as the contract of
// ipam.Store says.
package local

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Store is an ipam.Store in one file. The file and its directory come into being
// with the first record; until then everything reads as empty.
//
// A call that waits for the file ends when its context does. Once it has the
// file it carries on to the end: a write to disk cannot be called off.
type Store struct {
	path string

	// turn lets the goroutines of this process queue up in order, so that only
	// one at a time competes with other processes for the lock file.
	turn chan struct{}
}

var _ ipam.Store = (*Store)(nil)

// Open returns the store in the file at path, an absolute one. It touches
// nothing yet. Its error wraps ipam.ErrInvalid.
func Open(path string) (*Store, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: local_path is %q: it must be an absolute path such as "+
			"/var/lib/cni/whereabouts/whereabouts.db", ipam.ErrInvalid, path)
	}
	return &Store{path: filepath.Clean(path), turn: make(chan struct{}, 1)}, nil
}

// Read returns a pool's records with their details. An entry that cannot be
// read is in Bad, and in Records as held by nobody known if its key is an
// address: such an address must not be handed out.
func (s *Store) Read(ctx context.Context, id ipam.PoolID) (*ipam.Pool, error) {
	pool := emptyPool(id)
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		if b := spaceOf(tx, id.Network).pool(id); b != nil {
			pool = readPool(id, b)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pool, nil
}

// Commit carries out changes in one transaction. If the transaction itself
// fails, every change answers its error.
func (s *Store) Commit(ctx context.Context, changes []ipam.Change) []error {
	errs := make([]error, len(changes))
	takes, judged := false, false
	for i, c := range changes {
		errs[i] = validate(c)
		takes = takes || errs[i] == nil && c.After != nil
	}
	err := s.update(ctx, takes, func(tx *bbolt.Tx) (changed bool, err error) {
		judged = true
		for i, c := range changes {
			if errs[i] != nil {
				continue
			}
			var steps []step
			steps, errs[i] = judge(tx, c)
			did, err := perform(tx, steps)
			if err != nil {
				return false, err
			}
			changed = changed || did
		}
		return changed, nil
	})
	for i, c := range changes {
		switch {
		case err != nil:
			errs[i] = err
		case !judged && errs[i] == nil && c.Strict: // there is no file
			errs[i] = &ipam.ConflictError{Address: c.Address}
		}
	}
	return errs
}

// Reservation returns the reservation of an address, or nil if there is none.
// One that cannot be read is an error that wraps ipam.ErrCorrupt.
func (s *Store) Reservation(ctx context.Context, network string, a netip.Addr) (*ipam.Reservation, error) {
	var found *ipam.Reservation
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		r, ok := spaceOf(tx, network).reservation(a)
		if ok && r.unreadable {
			return fmt.Errorf("%w: local_path %s: the reservation of %s in network_name %q: "+
				"have it repaired or removed", ipam.ErrCorrupt, s.path, a, network)
		}
		if ok {
			found = &ipam.Reservation{Space: network, Address: a, Record: r.Record, Range: r.pool, Version: r.version}
		}
		return nil
	})
	return found, err
}

// Snapshot returns the whole content of the file. A reservation that cannot be
// read has no owner. Keys that name no address, network or pool claim nothing
// and are left out; within a pool they are in Bad.
func (s *Store) Snapshot(ctx context.Context) (*ipam.Snapshot, error) {
	snapshot := &ipam.Snapshot{}
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		return eachSpace(tx, func(network string, in space) {
			snapshot.Pools = append(snapshot.Pools, in.readPools(network)...)
			snapshot.Reservations = append(snapshot.Reservations, in.readReservations(network)...)
		})
	})
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

// Ready answers nil if the file can be read and written, or can be made.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	return s.view(ctx, func(*bbolt.Tx) error { return nil })
}

// Close does nothing: no file is open between calls.
func (s *Store) Close() error { return nil }
