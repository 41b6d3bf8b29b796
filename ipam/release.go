package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// removeJob is a DEL on its way. It takes one round.
type removeJob struct {
	*Removal
	allocator *Allocator
	proposed  bool
	pending   int // changes not yet heard of
}

func newRemoveJob(a *Allocator, r *Removal) *removeJob { return &removeJob{Removal: r, allocator: a} }

// pools lists the pools that have to be read, of which nothing is known otherwise.
func (j *removeJob) pools() []PoolID {
	return slices.DeleteFunc(slices.Clone(j.Pools), func(id PoolID) bool {
		return slices.ContainsFunc(j.Holdings, func(h Holding) bool { return h.Pool == id })
	})
}

func (j *removeJob) finished() bool { return j.proposed && j.pending == 0 }

// fail notes that a pool could not be read. What is known otherwise is released
// all the same.
func (j *removeJob) fail(err error) { j.Err = errors.Join(j.Err, err) }

func (j *removeJob) propose(ctx context.Context, v *view) []Change {
	if j.proposed {
		return nil
	}
	j.proposed = true
	var changes []Change
	for _, h := range j.Holdings {
		changes = append(changes, Change{Pool: h.Pool, Address: h.Address, Before: &h.Record})
	}
	for _, id := range j.pools() {
		if pool := v.content[id]; pool != nil {
			changes = append(changes, recordsOf(pool, j.Owner, j.Previous)...)
		}
	}
	halves, err := j.halves(ctx, v.store, changes)
	if err != nil {
		j.fail(err)
	}
	changes = append(changes, halves...)
	for i := range changes {
		changes[i].Latest = !j.Late
	}
	j.pending = len(changes)
	j.forget()
	return changes
}

func (j *removeJob) learn(_ context.Context, _ *view, _ Change, err error) {
	j.pending--
	if err != nil {
		j.fail(err)
	}
	j.forget()
}

// forget drops the container from the journal once it holds nothing.
func (j *removeJob) forget() {
	if j.pending == 0 && j.Err == nil {
		j.allocator.recall(j.Owner).forget()
	}
}

// halves looks for reservations of this container at addresses of the previous
// result that have no record any more: a release was interrupted between the two.
func (j *removeJob) halves(ctx context.Context, store Store, found []Change) ([]Change, error) {
	var halves []Change
	for _, address := range j.Previous {
		known := slices.ContainsFunc(found, func(c Change) bool { return c.Address == address })
		i := slices.IndexFunc(j.Pools, func(id PoolID) bool { return id.Range.Contains(address) })
		if known || i < 0 {
			continue
		}
		r, err := store.Reservation(ctx, j.Pools[i].Network, address)
		if err != nil {
			return halves, err
		}
		if r != nil && r.ContainerID == j.Owner.ContainerID && r.IfName == j.Owner.IfName {
			halves = append(halves, Change{Pool: j.Pools[i], Address: address, Before: &r.Record})
		}
	}
	return halves, nil
}

// recordsOf lists releases of a pool's records of the owner. One without an
// interface may be another interface's of the same container: it is this one's if
// the previous result named it, or if the container has no other record there.
func recordsOf(pool *Pool, owner Owner, prev []netip.Addr) []Change {
	var exact, vague []Change
	others := 0
	for address, r := range pool.Records {
		c := Change{Pool: pool.ID, Address: address, Before: &r}
		switch {
		case r.ContainerID != owner.ContainerID:
		case r.IfName == owner.IfName:
			exact = append(exact, c)
		case r.IfName == "":
			vague = append(vague, c)
		default:
			others++
		}
	}
	alone := len(exact)+len(vague)+others == 1
	for _, c := range vague {
		if alone || slices.Contains(prev, c.Address) {
			exact = append(exact, c)
		}
	}
	return exact
}

// Pools lists the pools of a configuration's ranges, each once.
func (cfg *Config) Pools() []PoolID {
	var ids []PoolID
	for _, r := range cfg.Ranges {
		if id := cfg.PoolOf(r); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
