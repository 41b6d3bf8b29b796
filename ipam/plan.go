package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// slot is one address that an ADD has to find.
type slot struct {
	index  int        // of the range in the configuration
	sites  []site     // the first one with room counts; just one when an address is wanted
	want   netip.Addr // zero: any
	source string     // who wants it, for messages
	fixed  bool       // from `addresses`: shared when it is held
	bits   int        // mask of the result
	extra  bool       // not the address of a range: comes after those in the result

	done   bool
	shared bool   // in use by another pod of the network, and not recorded again
	change Change // as proposed, and once done as carried out
}

// pool is where the slot's address is recorded; valid once it is done.
func (s *slot) pool() PoolID {
	if s.shared {
		return s.sites[0].pool
	}
	return s.change.Pool
}

// address is what the slot got; valid once it is done.
func (s *slot) address() netip.Addr {
	if s.shared {
		return s.want
	}
	return s.change.Address
}

// holding is one address in one pool.
type holding struct {
	pool    PoolID
	address netip.Addr
}

// plan is what an ADD has to find, and what it has found.
type plan struct {
	cfg   *Config
	owner Owner
	slots []*slot
	loose []Request // requested outside every range: no record

	prefer   []netip.Addr     // intended by an earlier container of this pod
	foreign  map[holding]bool // look like the owner's but are not
	doubtful []Change         // that may have been carried out
}

// newPlan makes a slot for each range, for each further address requested inside
// a range, and for each fixed address inside a range. known has the slices of the
// ranges that are cut.
func newPlan(cfg *Config, owner Owner, known map[SliceList]listing) (*plan, error) {
	p := &plan{cfg: cfg, owner: owner, foreign: map[holding]bool{}}
	for i, r := range cfg.Ranges {
		p.slots = append(p.slots, &slot{index: i, bits: r.Prefix.Bits()})
	}
	for _, q := range cfg.Requested {
		p.request(q)
	}
	for _, f := range cfg.Fixed {
		p.fix(f)
	}
	return p, p.locate(known)
}

// locate finds out where the addresses of the slots may be recorded.
func (p *plan) locate(known map[SliceList]listing) error {
	var errs []error
	for _, s := range p.slots {
		var err error
		if s.want.IsValid() {
			s.sites = make([]site, 1)
			s.sites[0], err = p.cfg.siteOf(s.index, s.want, known)
		} else {
			s.sites, err = p.cfg.sites(s.index, p.owner.Node, known)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *plan) rangeOf(s *slot) Range { return p.cfg.Ranges[s.index] }

// request puts a requested address into the slot of the first range around it
// that has none yet.
func (p *plan) request(q Request) {
	var around *slot
	for _, s := range p.slots {
		if !p.rangeOf(s).Contains(q.Addr) {
			continue
		}
		if !s.want.IsValid() {
			s.want, s.source = q.Addr, q.Source
			return
		}
		around = s
	}
	if around == nil {
		p.loose = append(p.loose, q)
		return
	}
	p.slots = append(p.slots, &slot{
		index: around.index, bits: around.bits, want: q.Addr, source: q.Source, extra: true,
	})
}

// fix records a fixed address in the first range around it, if there is one.
func (p *plan) fix(f FixedAddress) {
	a := f.Address.Addr()
	for _, s := range p.slots {
		if s.want == a {
			return
		}
	}
	for i, r := range p.cfg.Ranges {
		if r.Contains(a) {
			p.slots = append(p.slots, &slot{
				index: i, bits: f.Address.Bits(), want: a, source: "addresses", fixed: true, extra: true,
			})
			return
		}
	}
}

// pools lists the pools of the slots, each once.
func (p *plan) pools() []PoolID {
	var ids []PoolID
	for _, s := range p.slots {
		for _, at := range s.sites {
			if !slices.Contains(ids, at.pool) {
				ids = append(ids, at.pool)
			}
		}
	}
	return ids
}

func (p *plan) settled() bool {
	return !slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.done })
}

// slotOf finds the slot that a change was proposed for.
func (p *plan) slotOf(c Change) *slot {
	for _, s := range p.slots {
		if !s.done && s.change.Pool == c.Pool && s.change.Address == c.Address {
			return s
		}
	}
	panic(fmt.Sprintf("no slot for %s", c.Address))
}

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
	candidates := Free(at.rng, held, window)
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
	if _, ok := v.content[id].Records[a]; ok {
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
	e := &ExhaustedError{Pool: last.pool, Range: last.rng, Used: len(v.content[last.pool].Records)}
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

// undo lists the releases of what a failed ADD took, or may have taken.
func (p *plan) undo() []Change {
	var release []Change
	for _, c := range p.taken() {
		if c.Before == nil {
			release = append(release, Change{Pool: c.Pool, Address: c.Address, Before: c.After})
		}
	}
	return release
}

// kept lists the records that have been written.
func (p *plan) kept() []Holding {
	var kept []Holding
	for _, s := range p.slots {
		if s.done && !s.shared {
			kept = append(kept, Holding{s.change.Pool, s.change.Address, *s.change.After})
		}
	}
	return kept
}

// rewritten lists the records of the owner's own that a failed ADD has rewritten, or
// may have: they stay.
func (p *plan) rewritten() []Holding {
	var kept []Holding
	for _, c := range p.taken() {
		if c.Before != nil {
			kept = append(kept, Holding{c.Pool, c.Address, *c.After})
		}
	}
	return kept
}

// taken lists the changes that have been carried out, or may have been.
func (p *plan) taken() []Change {
	taken := slices.Clone(p.doubtful)
	for _, s := range p.slots {
		if s.done && !s.shared {
			taken = append(taken, s.change)
		}
	}
	return taken
}

// leftovers lists releases of what the owner holds in the plan's pools and did
// not get again. Records without an interface may be another interface's.
func (p *plan) leftovers(v *view) []Change {
	kept := map[holding]bool{}
	for _, s := range p.slots {
		kept[holding{s.pool(), s.address()}] = true
	}
	var release []Change
	for _, id := range p.pools() {
		for _, a := range p.mine(v, id) {
			r := v.content[id].Records[a]
			if !kept[holding{id, a}] && r.IfName == p.owner.IfName {
				release = append(release, Change{Pool: id, Address: a, Before: &r})
			}
		}
	}
	return release
}

// result is the addresses in the order they are promised: one for each range, the fixed
// ones, the requested ones outside the ranges.
func (p *plan) result() []Assigned {
	var result []Assigned
	add := func(address netip.Prefix, gateway netip.Addr) {
		for _, g := range p.cfg.ArgGateways {
			if address.Masked().Contains(g) {
				gateway = g
			}
		}
		known := slices.ContainsFunc(result, func(r Assigned) bool { return r.Address.Addr() == address.Addr() })
		if !known {
			result = append(result, Assigned{Address: address, Gateway: gateway})
		}
	}
	for _, extra := range []bool{false, true} {
		for _, s := range p.slots {
			if s.extra == extra && !s.fixed {
				add(netip.PrefixFrom(s.address(), s.bits), p.cfg.gatewayOf(p.rangeOf(s)))
			}
		}
	}
	for _, f := range p.cfg.Fixed {
		add(f.Address, f.Gateway)
	}
	for _, q := range p.loose {
		bits := q.Bits
		if bits < 0 {
			bits = q.Addr.BitLen()
		}
		add(netip.PrefixFrom(q.Addr, bits), netip.Addr{})
	}
	return result
}

// PoolOf is the pool that holds the records of a range that is not cut into slices.
func (c *Config) PoolOf(r Range) PoolID {
	return PoolID{Network: c.NetworkName, Range: r.Prefix}
}

// gatewayOf is the gateway of a range's addresses: its own, else the top-level
// one, if that is of its family.
func (c *Config) gatewayOf(r Range) netip.Addr {
	for _, gateway := range []netip.Addr{r.Gateway, c.Gateway} {
		if gateway.IsValid() && gateway.Is4() == r.Prefix.Addr().Is4() {
			return gateway
		}
	}
	return netip.Addr{}
}
