package ipam

import (
	"context"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Searcher is a Store whose pools may have too many records to be read for each
// address.
type Searcher interface {
	// Search is Read of a part. The pool it answers has
	//
	//   - every record of the owners, by container and by pod, with its details;
	//   - the record of each of the addresses, if there is one;
	//   - as far as can be found out, the lowest free addresses of each range: what
	//     is held below and between them is in Records (maybe without saying by
	//     whom) or in Full.
	//
	// What is held beyond is not in it. An address there looks free, and a take of
	// it is a conflict. Each Search finds at least one free address of a range
	// that has any, so that who searches again after a conflict gets on.
	Search(ctx context.Context, s Search) (*Pool, error)
}

// Search is what to look for in a pool.
type Search struct {
	Pool      PoolID
	Owners    []Owner
	Addresses []netip.Addr
	Ranges    []Range // where free addresses are wanted
	Free      int     // how many in each, if they are near
}

// search reads what the open jobs need of a pool.
func (v *view) search(ctx context.Context, id PoolID, open []job) (*Pool, error) {
	searcher, ok := v.store.(Searcher)
	if !ok {
		return v.store.Read(ctx, id)
	}
	s := Search{Pool: id, Free: maxWindow}
	for _, j := range open {
		if slices.Contains(j.pools(), id) {
			j.seek(id, &s)
		}
	}
	return searcher.Search(ctx, s)
}

// find reads the record of one address.
func find(ctx context.Context, store Store, id PoolID, a netip.Addr) (*Pool, error) {
	if searcher, ok := store.(Searcher); ok {
		return searcher.Search(ctx, Search{Pool: id, Addresses: []netip.Addr{a}})
	}
	return store.Read(ctx, id)
}

func (j *addJob) seek(id PoolID, s *Search) {
	s.Owners = append(s.Owners, j.Owner)
	for _, slot := range j.plan.slots {
		for _, at := range slot.sites {
			switch {
			case at.pool != id || slot.done:
			case slot.want.IsValid():
				s.Addresses = append(s.Addresses, slot.want)
			default:
				s.Free++
				s.want(at.rng)
			}
		}
	}
	// What earlier calls intended is tried first.
	for _, a := range j.allocator.recall(j.Owner).intended(j.Owner) {
		if id.Range.Contains(a) {
			s.Addresses = append(s.Addresses, a)
		}
	}
}

func (j *removeJob) seek(id PoolID, s *Search) {
	s.Owners = append(s.Owners, j.Owner)
	for _, a := range j.Previous {
		if id.Range.Contains(a) {
			s.Addresses = append(s.Addresses, a)
		}
	}
}

// want adds a range unless the same is wanted already.
func (s *Search) want(r Range) {
	same := func(o Range) bool {
		return o.First == r.First && o.Last == r.Last && slices.Equal(o.blocked, r.blocked) && o.AllowDotZero == r.AllowDotZero
	}
	if !slices.ContainsFunc(s.Ranges, same) {
		s.Ranges = append(s.Ranges, r)
	}
}

// full reports whether the address is held, though the pool's records do not say so.
func (p *Pool) full(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(p.Full, a, func(span netipx.IPRange, a netip.Addr) int {
		switch {
		case span.To().Less(a):
			return -1
		case a.Less(span.From()):
			return 1
		}
		return 0
	})
	return found
}

// Without is the range without spans of addresses that are not to be handed out, for
// a choice among the others.
func (r Range) Without(spans []netipx.IPRange) Range {
	if len(spans) > 0 {
		r.blocked = r.merge(spans)
	}
	return r
}

// From is the part of the range from an address on.
func (r Range) From(a netip.Addr) Range {
	if r.First.Less(a) {
		r.First = a
	}
	return r
}

// UpTo is the part of the range up to an address.
func (r Range) UpTo(a netip.Addr) Range {
	if a.Less(r.Last) {
		r.Last = a
	}
	return r
}
