package ipam

import (
	"net/netip"
	"slices"
	"time"
)

// mine lists the addresses of a pool that the owner holds, lowest first.
func (p *plan) mine(v *view, id PoolID) []netip.Addr {
	var addresses []netip.Addr
	if v.content[id] == nil {
		return nil
	}
	for a := range v.content[id].Records {
		if p.holds(v, id, a) {
			addresses = append(addresses, a)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

func (p *plan) holds(v *view, id PoolID, a netip.Addr) bool {
	r, ok := v.content[id].Records[a]
	return ok && r.OwnedBy(p.owner) && !p.foreign[holding{id, a}]
}

// pick finds an address for every open slot: requested ones first, then those
// the owner holds, then the lowest free ones. A fixed address that is held stops
// it: unsure names the slot.
func (p *plan) pick(v *view, a *Allocator) (changes []Change, unsure *slot, err error) {
	used := map[netip.Addr]bool{}
	for _, s := range p.slots {
		if s.done {
			used[s.address()] = true
		}
	}
	chosen := map[*slot]holding{}
	choose := func(s *slot, h holding) { chosen[s], used[h.address] = h, true }
	for _, s := range p.open(true) {
		id := s.sites[0].pool
		record, held := v.content[id].Records[s.want]
		switch {
		case held && !p.holds(v, id, s.want) && s.fixed:
			return nil, s, nil
		case held && !p.holds(v, id, s.want):
			return nil, nil, &RequestError{Address: s.want, Source: s.source, Holder: record}
		case v.content[id].Closed:
			return nil, nil, &ClosedError{id}
		}
		choose(s, holding{id, s.want})
	}
	for _, s := range p.open(false) {
		if h, ok := p.adoptable(v, s, used); ok {
			choose(s, h)
		}
	}
	for _, s := range p.open(false) {
		if _, ok := chosen[s]; ok {
			continue
		}
		h, ok := p.free(v, s, used, a.Rand)
		if !ok {
			return nil, nil, p.exhausted(v, s)
		}
		choose(s, h)
	}
	for _, s := range p.slots {
		if h, ok := chosen[s]; ok {
			s.change = p.change(v, s, h, a.Now())
			changes = append(changes, s.change)
			v.claimed[keyOf(h.pool, h.address, p.cfg.Overlap)] = true
		}
	}
	return changes, nil, nil
}

// open lists the slots still to be settled, with or without a wanted address.
func (p *plan) open(wanted bool) []*slot {
	var open []*slot
	for _, s := range p.slots {
		if !s.done && s.want.IsValid() == wanted {
			open = append(open, s)
		}
	}
	return open
}

// adoptable is an address that the owner holds and may keep. A container that
// asks again keeps what it uses; a new one of the same pod takes over only what
// could be handed out today.
func (p *plan) adoptable(v *view, s *slot, used map[netip.Addr]bool) (holding, bool) {
	open := openSites(v, s)
	for _, at := range open {
		for _, a := range p.mine(v, at.pool) {
			if !used[a] && at.rng.Eligible(a) {
				return holding{at.pool, a}, true
			}
		}
	}
	for _, at := range open {
		for _, a := range p.mine(v, at.pool) {
			r := v.content[at.pool].Records[a]
			if !used[a] && at.rng.Contains(a) && !isFixed(p.cfg, a) && r.OfContainer(p.owner.ContainerID, p.owner.IfName) {
				return holding{at.pool, a}, true
			}
		}
	}
	return holding{}, false
}

// openSites is the sites of a slot where something can be taken.
func openSites(v *view, s *slot) []site {
	return slices.DeleteFunc(slices.Clone(s.sites), func(at site) bool { return v.content[at.pool].Closed })
}

// free is a free address in the first site of the slot that has one.
func (p *plan) free(v *view, s *slot, used map[netip.Addr]bool, random func(int) int) (holding, bool) {
	for _, at := range openSites(v, s) {
		if a, ok := p.freeAt(v, at, used, random); ok {
			return holding{at.pool, a}, true
		}
	}
	return holding{}, false
}

// freeAt is the lowest free address, or one near it after collisions, so that many
// writers do not chase the same one. Where holders of an unknown range are in the
// way, it looks twice as far each time.
func (p *plan) freeAt(v *view, at site, used map[netip.Addr]bool, random func(int) int) (netip.Addr, bool) {
	held := func(a netip.Addr) bool { return used[a] || p.held(v, at.pool, a) }
	for _, a := range p.prefer {
		if at.rng.Eligible(a) && !held(a) {
			return a, true
		}
	}
	unknown, window := v.unknown[at.pool], v.window(at.pool)
	if unknown > 0 {
		window = 1 << min(unknown, 20)
	}
	candidates := Free(at.rng.Without(v.content[at.pool].Full), held, window)
	switch {
	case len(candidates) == 0:
		return netip.Addr{}, false
	case unknown > 0:
		return candidates[len(candidates)-1], true
	default:
		return candidates[random(len(candidates))], true
	}
}

// held reports whether somebody has an address, or is about to.
func (p *plan) held(v *view, id PoolID, a netip.Addr) bool {
	key := keyOf(id, a, p.cfg.Overlap)
	if v.claimed[key] || v.blocked[key] || a.Less(v.content[id].Base) {
		return true
	}
	if _, ok := v.content[id].Records[a]; ok || v.content[id].full(a) {
		return true
	}
	if !p.cfg.Overlap {
		return false
	}
	// What is known of other ranges saves a try.
	for other, pool := range v.content {
		if pool != nil && other != id && other.Network == id.Network && other.Range.Contains(a) {
			if _, ok := pool.Records[a]; ok {
				return true
			}
		}
	}
	return false
}

func (p *plan) change(v *view, s *slot, h holding, now time.Time) Change {
	after := NewRecord(p.owner, now)
	c := Change{Pool: h.pool, Address: h.address, After: &after, Overlap: p.cfg.Overlap}
	c.Hasty = !s.want.IsValid() && v.hasty(h.pool) && !slices.Contains(p.prefer, h.address)
	if before, held := v.content[h.pool].Records[h.address]; held {
		c.Before = &before
	}
	return c
}

// exhausted says why a slot finds no address.
func (p *plan) exhausted(v *view, s *slot) error {
	open := openSites(v, s)
	if len(open) == 0 {
		return &ClosedError{s.sites[0].pool}
	}
	last := open[len(open)-1]
	e := &ExhaustedError{Pool: last.pool, Range: last.rng, Used: len(v.content[last.pool].Records) + v.content[last.pool].More}
	for key := range v.blocked {
		if key.space.Network == last.pool.Network && last.rng.Contains(key.address) {
			e.Elsewhere++
		}
	}
	for _, at := range open[:len(open)-1] {
		e.More = append(e.More, at.pool)
	}
	return e
}
