package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// A job is one ADD or DEL on its way. Jobs of a batch go forward in rounds: each
// proposes changes, all of them are committed at once, and each learns what came
// of its own.
type job interface {
	// pools lists the pools that the job has to see before it proposes.
	pools() []PoolID
	// seek adds what the job has to see of one of them.
	seek(id PoolID, s *Search)
	// propose answers the changes to make now; none when the job is finished,
	// or has to wait for others (see view.wait).
	propose(ctx context.Context, v *view) []Change
	// learn is told what came of each change that it proposed.
	learn(ctx context.Context, v *view, c Change, err error)
	// fail ends the job.
	fail(err error)
	finished() bool
}

// claimKey is an address in an address space; or in one pool alone, for networks
// without overlap protection.
type claimKey struct {
	space   PoolID
	address netip.Addr
}

// view is what a batch knows of the store, so that its jobs share reads and do not
// get in each other's way.
type view struct {
	store      Store
	contention Contention
	content    map[PoolID]*Pool  // as read, with our own changes; nil is to be read
	claimed    map[claimKey]bool // chosen by a job of this batch
	blocked    map[claimKey]bool // held through other ranges, or by writers in flight
	looked     map[PoolID]bool   // other ranges whose addresses are blocked
	pending    map[PoolID]int    // changes of this round, by pool

	met        map[PoolID]bool // answers of contention
	collisions map[PoolID]int  // lost races
	unknown    map[PoolID]int  // lost to holders of an unknown range
}

func newView(store Store, contention Contention) *view {
	return &view{
		store: store, contention: contention, content: map[PoolID]*Pool{},
		claimed: map[claimKey]bool{}, blocked: map[claimKey]bool{}, looked: map[PoolID]bool{},
		met: map[PoolID]bool{}, collisions: map[PoolID]int{}, unknown: map[PoolID]int{},
	}
}

// run carries jobs through to their ends. Each ends for itself: that one fails
// does not fail the others.
func (a *Allocator) run(ctx context.Context, v *view, jobs []job) {
	for {
		open := slices.DeleteFunc(slices.Clone(jobs), job.finished)
		if len(open) == 0 {
			return
		}
		v.read(ctx, open)
		var changes []Change
		var whose []job
		v.pending = map[PoolID]int{}
		for _, j := range open {
			if j.finished() {
				continue
			}
			for _, c := range j.propose(ctx, v) {
				changes, whose = append(changes, c), append(whose, j)
				v.pending[c.Pool]++
			}
		}
		if len(changes) == 0 {
			continue
		}
		for i, err := range a.Store.Commit(ctx, changes) {
			v.settle(changes[i], err)
			whose[i].learn(ctx, v, changes[i], err)
		}
	}
}

// read reads the pools that the jobs need and that are not known, at once. A pool
// that cannot be read ends the jobs that need it.
func (v *view) read(ctx context.Context, open []job) {
	var missing []PoolID
	for _, j := range open {
		for _, id := range j.pools() {
			if v.content[id] == nil && !slices.Contains(missing, id) {
				missing = append(missing, id)
			}
		}
	}
	errs := make([]error, len(missing))
	pools := make([]*Pool, len(missing))
	done := make(chan struct{})
	for i, id := range missing {
		go func() {
			pools[i], errs[i] = v.search(ctx, id, open)
			done <- struct{}{}
		}()
	}
	for range missing {
		<-done
	}
	failed := map[PoolID]error{}
	for i, id := range missing {
		v.content[id] = pools[i]
		if errs[i] != nil {
			failed[id] = errs[i]
			v.content[id] = nil
		}
	}
	for _, j := range open {
		for _, id := range j.pools() {
			if err := failed[id]; err != nil && !j.finished() {
				j.fail(err)
			}
		}
	}
}

// settle brings what is known of the pool up to date.
func (v *view) settle(c Change, err error) {
	var conflict *ConflictError
	var closed *ClosedError
	if err != nil {
		delete(v.claimed, keyOf(c.Pool, c.Address, c.Overlap))
	}
	switch {
	case errors.As(err, &conflict):
		if !conflict.Reserved {
			v.content[c.Pool] = nil // what was read is out of date
		}
	case errors.As(err, &closed):
		v.content[c.Pool] = nil
	case err != nil:
	case v.content[c.Pool] == nil:
	case c.After != nil:
		v.content[c.Pool].Records[c.Address] = *c.After
	default:
		delete(v.content[c.Pool].Records, c.Address)
	}
}

func keyOf(id PoolID, a netip.Addr, overlap bool) claimKey {
	if overlap {
		return claimKey{PoolID{Network: id.Network}, a}
	}
	return claimKey{id, a}
}

// wait reports whether a job that finds no address has to wait for the outcome of
// others: what they have chosen may become free again.
func (v *view) wait(id PoolID) bool { return v.pending[id] > 0 }

// collide learns from a lost race for an address, so that the next choice is
// another. All addresses that are held through the same other range are skipped at
// once: the number of requests does not grow with the number of addresses that two
// ranges share.
func (v *view) collide(ctx context.Context, c Change, conflict *ConflictError) error {
	if conflict.Reserved {
		v.blocked[keyOf(c.Pool, c.Address, c.Overlap)] = true
		if prefix, err := ParsePrefix(conflict.Range); err != nil {
			v.unknown[c.Pool]++ // a reservation of an older version
		} else if other := (PoolID{Network: c.Pool.Network, Range: prefix.Masked()}); other.Range != c.Pool.Range && !v.looked[other] {
			return v.block(ctx, other, conflict.Holder.Node)
		}
	}
	v.collisions[c.Pool]++
	if v.contention != nil {
		v.contention.Note(c.Pool)
	}
	if v.collisions[c.Pool]%hastyCollisions == 0 {
		v.content[c.Pool] = nil
	}
	return nil
}

// block skips what is held in another range. If the address space has no such pool,
// it is the slice of a node.
func (v *view) block(ctx context.Context, other PoolID, node string) error {
	v.looked[other] = true
	pool, err := v.store.Read(ctx, other)
	if err == nil && !pool.Exists && node != "" {
		other.Node = node
		pool, err = v.store.Read(ctx, other)
	}
	if err != nil {
		return fmt.Errorf("range %s of the same address space: %w", other.Range, err)
	}
	for address := range pool.Records {
		v.blocked[keyOf(other, address, true)] = true
	}
	return nil
}
