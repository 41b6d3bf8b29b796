package slice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// readListed takes over the slices that the status lists as somebody's, without
// those that were given up.
func (p *planner) readListed() {
	var keys []Key
	for _, key := range p.parse() {
		if p.states[key] != Closing {
			keys = append(keys, key)
		}
	}
	place := map[Key]int{}
	for i, key := range keys {
		place[key] = i
	}
	slices.SortFunc(keys, compareKeys)
	for group := range overlapping(keys) {
		if len(group) > 1 {
			p.rank(group, place)
		}
		for _, key := range group {
			if other, overlaps := p.taken.overlapping(key.Slice); overlaps {
				p.problem("slice %s of node %s is taken off the list: it overlaps %s, which is listed too", key.Slice, key.Node, other)
				continue
			}
			p.hold(key)
		}
	}
}

// rank orders slices that overlap, which only another controller can have listed:
// those in use first, and as they are listed otherwise.
func (p *planner) rank(group []Key, place map[Key]int) {
	idle := map[Key]int{}
	for _, key := range group {
		if p.state(key) != InUse {
			idle[key] = 1
		}
	}
	slices.SortFunc(group, func(a, b Key) int { return cmp.Or(idle[a]-idle[b], place[a]-place[b]) })
}

// parse reads the status: each slice that is somebody's, once.
func (p *planner) parse() []Key {
	var keys []Key
	for i, entry := range p.Listed {
		if entry.NodeName == "" {
			continue
		}
		prefix, err := ipam.ParsePrefix(entry.SliceRange)
		if err != nil {
			p.problem("status.allocations[%d] of node %s is ignored: %v", i, entry.NodeName, err)
			continue
		}
		key := Key{entry.NodeName, prefix.Masked()}
		if !p.listed[key] {
			p.listed[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

func (p *planner) problem(format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, fmt.Sprintf(format, args...))
}

// readClaims looks for pools that are not marked although their slices are not
// listed as their nodes': the status was lost, or an older controller changed it
// without a look at them.
func (p *planner) readClaims() {
	var strong, weak []Key
	for _, key := range p.unlisted() {
		switch p.state(key) {
		case InUse, Unknown:
			strong = append(strong, key)
		case Empty:
			weak = append(weak, key)
		case Closing:
			if !p.listed[key] { // or else it is sealed once the status has changed
				p.plan.Seal = append(p.plan.Seal, key)
			}
		case Closed:
		}
	}
	p.claimInUse(strong)
	p.claimEmpty(weak)
}

// unlisted is the pools that are not those of held slices, but have addresses of the
// range, sorted.
func (p *planner) unlisted() []Key {
	rest := map[Key]bool{}
	for key := range p.states {
		rest[key] = true
	}
	for key := range p.listed { // may have been taken off the list just now
		rest[key] = true
	}
	for _, key := range p.held {
		delete(rest, key)
	}
	maps.DeleteFunc(rest, func(key Key, _ bool) bool { return !key.Slice.Overlaps(p.Cut.Prefix()) })
	return slices.SortedFunc(maps.Keys(rest), compareKeys)
}

// claimInUse gives slices back to the nodes that have records in them. Addresses
// that several nodes hold pools for are nobody's until only one does.
func (p *planner) claimInUse(keys []Key) {
	for group := range overlapping(keys) {
		whole := group[0].Slice
		other, overlaps := p.taken.overlapping(whole)
		switch {
		case overlaps:
			p.problem("pool of node %s for slice %s holds records, but %s is listed for another; they are left to end",
				group[0].Node, whole, other)
		case len(group) > 1:
			p.problem("pools of nodes %s and %s for slices %s and %s both hold records; neither gets its slice until the other is empty",
				group[0].Node, group[1].Node, whole, group[1].Slice)
		default:
			p.hold(group[0])
			continue
		}
		p.taken.add(whole)
	}
}

// claimEmpty gives slices back to nodes that still need one, and closes the pools of
// the others.
func (p *planner) claimEmpty(keys []Key) {
	for group := range overlapping(keys) {
		key := group[0]
		_, overlaps := p.taken.overlapping(key.Slice)
		if len(group) == 1 && !overlaps && p.Cut.Has(key.Slice) && p.serves[key.Node] < p.target[key.Node] {
			p.hold(key)
			continue
		}
		p.taken.add(key.Slice)
		p.plan.Close = append(p.plan.Close, group...)
	}
}

// overlapping runs through sorted keys in groups: the first of each contains the
// others, and no two groups overlap.
func overlapping(keys []Key) func(yield func([]Key) bool) {
	return func(yield func([]Key) bool) {
		for len(keys) > 0 {
			n := 1
			for n < len(keys) && keys[0].Slice.Overlaps(keys[n].Slice) {
				n++
			}
			if !yield(keys[:n:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

// area is a set of addresses: disjoint prefixes in address order.
type area []netip.Prefix

// search is where a prefix belongs: behind the ones that begin before it.
func (a area) search(p netip.Prefix) int {
	i, _ := slices.BinarySearchFunc(a, p, comparePrefixes)
	return i
}

// overlapping answers a prefix of the area that overlaps another one.
func (a area) overlapping(p netip.Prefix) (netip.Prefix, bool) {
	i := a.search(p)
	if i > 0 && a[i-1].Overlaps(p) {
		return a[i-1], true
	}
	if i < len(a) && a[i].Overlaps(p) {
		return a[i], true
	}
	return netip.Prefix{}, false
}

// add makes a prefix part of the area.
func (a *area) add(p netip.Prefix) {
	i := a.search(p)
	if i > 0 && (*a)[i-1].Overlaps(p) {
		return // prefixes that overlap contain each other, and that one begins before
	}
	end := i
	for end < len(*a) && (*a)[end].Overlaps(p) {
		end++
	}
	*a = slices.Replace(*a, i, end, p)
}
