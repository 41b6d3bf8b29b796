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
	look      []PoolID // that have to be read, of which nothing is known otherwise
	proposed  bool
	pending   int // changes not yet heard of
}

func newRemoveJob(a *Allocator, r *Removal, known map[SliceList]listing) *removeJob {
	j := &removeJob{Removal: r, allocator: a}
	for _, list := range r.unknown() {
		l := known[list]
		if l.err != nil && !errors.Is(l.err, ErrInvalid) {
			j.fail(l.err)
		}
		j.look = append(j.look, r.slices(list, l)...)
	}
	for _, id := range r.Pools {
		if !r.knows(id) {
			j.look = append(j.look, id)
		}
	}
	return j
}

// unknown is the lists of slices that have to be read: nothing is known of what the
// owner holds there.
func (r *Removal) unknown() []SliceList {
	return slices.DeleteFunc(slices.Clone(r.Slices), func(l SliceList) bool {
		return r.knows(PoolID{Network: l.Space, Range: l.Range})
	})
}

// knows reports whether the owner is known to hold something in a pool or, if it is
// that of a whole range, in a slice of it.
func (r *Removal) knows(id PoolID) bool {
	return slices.ContainsFunc(r.Holdings, func(h Holding) bool {
		slice := h.Pool.Node != "" && h.Pool.Network == id.Network && id.Range.Contains(h.Address)
		return h.Pool == id || slice
	})
}

// slices is the pools of the owner's node, whether the range still contains them or
// not, and those of other nodes that the owner may have a requested address in.
func (r *Removal) slices(list SliceList, l listing) []PoolID {
	var ids []PoolID
	for _, s := range l.slices {
		if s.Node == r.Owner.Node || slices.ContainsFunc(r.Previous, s.Range.Contains) {
			ids = append(ids, list.pool(s))
		}
	}
	return ids
}

// listsOf names the lists of slices that ADDs and DELs need.
func listsOf(additions []*Addition, removals []*Removal) []SliceList {
	var lists []SliceList
	for _, add := range additions {
		lists = append(lists, add.Config.SliceLists()...)
	}
	for _, r := range removals {
		lists = append(lists, r.unknown()...)
	}
	return lists
}

func (j *removeJob) pools() []PoolID { return j.look }

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
// Where a range is cut, the record may be in a slice that is not listed any more.
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
			halves = append(halves, Change{Pool: r.poolIn(j.Pools[i]), Address: address, Before: &r.Record})
		}
	}
	return halves, nil
}

// poolIn is the pool that a reservation names, if that is another one than is
// expected: the slice of a node.
func (r *Reservation) poolIn(expected PoolID) PoolID {
	prefix, err := ParsePrefix(r.Range)
	if err != nil || prefix.Masked() == expected.Range || r.Node == "" || !prefix.Contains(r.Address) {
		return expected
	}
	return PoolID{Network: expected.Network, Node: r.Node, Range: prefix.Masked()}
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
