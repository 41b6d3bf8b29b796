package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// slot is one address that an ADD has to find.
type slot struct {
	pool   PoolID
	rng    Range
	want   netip.Addr // zero: any
	source string     // who wants it, for messages
	fixed  bool       // from `addresses`: shared when it is held
	bits   int        // mask of the result
	extra  bool       // not the address of a range: comes after those in the result

	done   bool
	shared bool   // in use by another pod of the network, and not recorded again
	change Change // as proposed, and once done as carried out
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
// a range, and for each fixed address inside a range.
func newPlan(cfg *Config, owner Owner) *plan {
	p := &plan{cfg: cfg, owner: owner, foreign: map[holding]bool{}}
	for _, r := range cfg.Ranges {
		p.slots = append(p.slots, &slot{pool: cfg.PoolOf(r), rng: r, bits: r.Prefix.Bits()})
	}
	for _, q := range cfg.Requested {
		p.request(q)
	}
	for _, f := range cfg.Fixed {
		p.fix(f)
	}
	return p
}

// request puts a requested address into the slot of the first range around it
// that has none yet.
func (p *plan) request(q Request) {
	var around *slot
	for _, s := range p.slots {
		if !s.rng.Contains(q.Addr) {
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
		pool: around.pool, rng: around.rng, bits: around.bits, want: q.Addr, source: q.Source, extra: true,
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
	for _, r := range p.cfg.Ranges {
		if r.Contains(a) {
			p.slots = append(p.slots, &slot{
				pool: p.cfg.PoolOf(r), rng: r, bits: f.Address.Bits(), want: a, source: "addresses", fixed: true, extra: true,
			})
			return
		}
	}
}

// pools lists the pools of the slots, each once.
func (p *plan) pools() []PoolID {
	var ids []PoolID
	for _, s := range p.slots {
		if !slices.Contains(ids, s.pool) {
			ids = append(ids, s.pool)
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
		if !s.done && s.pool == c.Pool && s.change.Address == c.Address {
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
	chosen := map[*slot]netip.Addr{}
	choose := func(s *slot, address netip.Addr) { chosen[s], used[address] = address, true }
	for _, s := range p.open(true) {
		record, held := v.content[s.pool].Records[s.want]
		if held && !p.holds(v, s.pool, s.want) {
			if s.fixed {
				return nil, s, nil
			}
			return nil, nil, &RequestError{Address: s.want, Source: s.source, Holder: record}
		}
		choose(s, s.want)
	}
	for _, s := range p.open(false) {
		if address, ok := p.adoptable(v, s, used); ok {
			choose(s, address)
		}
	}
	for _, s := range p.open(false) {
		if _, ok := chosen[s]; ok {
			continue
		}
		address, ok := p.free(v, s, used, a.Rand)
		if !ok {
			return nil, nil, p.exhausted(v, s)
		}
		choose(s, address)
	}
	for _, s := range p.slots {
		if address, ok := chosen[s]; ok {
			s.change = p.change(v, s, address, a.Now())
			changes = append(changes, s.change)
			v.claimed[keyOf(s.pool, address, p.cfg.Overlap)] = true
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
func (p *plan) adoptable(v *view, s *slot, used map[netip.Addr]bool) (netip.Addr, bool) {
	mine := p.mine(v, s.pool)
	for _, a := range mine {
		if !used[a] && s.rng.Eligible(a) {
			return a, true
		}
	}
	for _, a := range mine {
		r := v.content[s.pool].Records[a]
		if !used[a] && s.rng.Contains(a) && !isFixed(p.cfg, a) && r.OfContainer(p.owner.ContainerID, p.owner.IfName) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// free is the lowest free address, or one near it after collisions, so that many
// writers do not chase the same one. Where holders of an unknown range are in the
// way, it looks twice as far each time.
func (p *plan) free(v *view, s *slot, used map[netip.Addr]bool, random func(int) int) (netip.Addr, bool) {
	held := func(a netip.Addr) bool { return used[a] || p.held(v, s.pool, a) }
	for _, a := range p.prefer {
		if s.rng.Eligible(a) && !held(a) {
			return a, true
		}
	}
	unknown, window := v.unknown[s.pool], v.window(s.pool)
	if unknown > 0 {
		window = 1 << min(unknown, 20)
	}
	candidates := Free(s.rng, held, window)
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

func (p *plan) change(v *view, s *slot, a netip.Addr, now time.Time) Change {
	after := NewRecord(p.owner, now)
	c := Change{Pool: s.pool, Address: a, After: &after, Overlap: p.cfg.Overlap}
	c.Hasty = !s.want.IsValid() && v.hasty(s.pool) && !slices.Contains(p.prefer, a)
	if before, held := v.content[s.pool].Records[a]; held {
		c.Before = &before
	}
	return c
}

func (p *plan) exhausted(v *view, s *slot) error {
	elsewhere := 0
	for key := range v.blocked {
		if key.space.Network == s.pool.Network && s.rng.Contains(key.address) {
			elsewhere++
		}
	}
	return &ExhaustedError{Pool: s.pool, Range: s.rng, Used: len(v.content[s.pool].Records), Elsewhere: elsewhere}
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
		kept[holding{s.pool, s.address()}] = true
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
				add(netip.PrefixFrom(s.address(), s.bits), p.cfg.gatewayOf(s.rng))
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

// PoolOf is the pool that holds the records of a range.
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
