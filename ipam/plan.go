package ipam

import (
	"fmt"
	"log/slog"
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
	shared bool // in use by another pod of the network, and not recorded again
	change Change
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

// plan is one ADD on its way: what is to be found, what is known of the pools,
// and which addresses turned out to be somebody else's.
type plan struct {
	cfg   *Config
	owner Owner
	slots []*slot
	loose []Request // requested outside every range: no record

	content    map[PoolID]*Pool    // as last read; nil: to be read
	blocked    map[netip.Addr]bool // held through other ranges or by writers in flight
	foreign    map[holding]bool    // look like the owner's but are not
	prefer     []netip.Addr        // intended by an earlier container of this pod
	seen       map[PoolID]bool     // other ranges whose addresses are blocked
	collisions int
	unknown    int // collisions with holders of unknown range

	doubtful []Change // that may have been carried out
	err      error
}

// newPlan makes a slot for each range, for each further address requested inside
// a range, and for each fixed address inside a range.
func newPlan(cfg *Config, owner Owner) *plan {
	p := &plan{
		cfg: cfg, owner: owner,
		content: map[PoolID]*Pool{}, blocked: map[netip.Addr]bool{}, foreign: map[holding]bool{}, seen: map[PoolID]bool{},
	}
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

// mine lists the addresses of a pool that the owner holds, lowest first.
func (p *plan) mine(id PoolID) []netip.Addr {
	var addresses []netip.Addr
	if p.content[id] == nil {
		return nil
	}
	for a, r := range p.content[id].Records {
		if r.OwnedBy(p.owner) && !p.foreign[holding{id, a}] {
			addresses = append(addresses, a)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// pick finds an address for every open slot: requested ones first, then those
// the owner holds, then the lowest free ones. It answers the changes to make and
// their slots. A fixed address that is held stops it: unsure names the slot.
func (p *plan) pick(random func(int) int, now time.Time) (changes []Change, slots []*slot, unsure *slot) {
	used := map[netip.Addr]bool{}
	for _, s := range p.slots {
		if s.done {
			used[s.address()] = true
		}
	}
	chosen := map[*slot]netip.Addr{}
	choose := func(s *slot, a netip.Addr) { chosen[s], used[a] = a, true }
	for _, s := range p.open(true) {
		record, held := p.content[s.pool].Records[s.want]
		if held && !p.holds(s.pool, s.want) {
			if s.fixed {
				return nil, nil, s
			}
			p.err = &RequestError{Address: s.want, Source: s.source, Holder: record}
			return nil, nil, nil
		}
		choose(s, s.want)
	}
	for _, s := range p.open(false) {
		if a, ok := p.adoptable(s, used); ok {
			choose(s, a)
		}
	}
	for _, s := range p.open(false) {
		if _, ok := chosen[s]; ok {
			continue
		}
		a, ok := p.free(s, used, random)
		if !ok {
			p.err = p.exhausted(s)
			return nil, nil, nil
		}
		choose(s, a)
	}
	for _, s := range p.slots {
		if a, ok := chosen[s]; ok {
			changes = append(changes, p.change(s, a, now))
			slots = append(slots, s)
		}
	}
	return changes, slots, nil
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

func (p *plan) holds(id PoolID, a netip.Addr) bool {
	r, ok := p.content[id].Records[a]
	return ok && r.OwnedBy(p.owner) && !p.foreign[holding{id, a}]
}

// adoptable is an address that the owner holds and may keep. A container that
// asks again keeps what it uses; a new one of the same pod takes over only what
// could be handed out today.
func (p *plan) adoptable(s *slot, used map[netip.Addr]bool) (netip.Addr, bool) {
	mine := p.mine(s.pool)
	for _, a := range mine {
		if !used[a] && s.rng.Eligible(a) {
			return a, true
		}
	}
	for _, a := range mine {
		r := p.content[s.pool].Records[a]
		if !used[a] && s.rng.Contains(a) && !isFixed(p.cfg, a) && r.OfContainer(p.owner.ContainerID, p.owner.IfName) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// maxWindow bounds how far past the lowest free address a writer looks after
// collisions.
const maxWindow = 16

// free is the lowest free address, or one near it after collisions, so that many
// writers do not chase the same one. Where holders of an unknown range are in the
// way, it looks twice as far each time.
func (p *plan) free(s *slot, used map[netip.Addr]bool, random func(int) int) (netip.Addr, bool) {
	content := p.content[s.pool]
	held := func(a netip.Addr) bool {
		if used[a] || p.blocked[a] || a.Less(content.Base) {
			return true
		}
		for _, other := range p.content {
			if _, ok := other.Records[a]; ok && (other == content || p.cfg.Overlap) {
				return true
			}
		}
		return false
	}
	for _, a := range p.prefer {
		if s.rng.Eligible(a) && !held(a) {
			return a, true
		}
	}
	window := 1
	if p.collisions > 0 {
		window = min(1<<min(p.collisions, 10), maxWindow)
	}
	if p.unknown > 0 {
		window = 1 << min(p.unknown, 20)
	}
	candidates := Free(s.rng, held, window)
	switch {
	case len(candidates) == 0:
		return netip.Addr{}, false
	case p.unknown > 0:
		return candidates[len(candidates)-1], true
	default:
		return candidates[random(len(candidates))], true
	}
}

func (p *plan) change(s *slot, a netip.Addr, now time.Time) Change {
	after := NewRecord(p.owner, now)
	c := Change{Pool: s.pool, Address: a, After: &after, Overlap: p.cfg.Overlap}
	if before, held := p.content[s.pool].Records[a]; held {
		c.Before = &before
	}
	return c
}

func (p *plan) exhausted(s *slot) error {
	return &ExhaustedError{
		Pool: s.pool, Range: s.rng, Used: len(p.content[s.pool].Records), Elsewhere: len(p.blocked),
	}
}

// shareOrFail settles the slot of a fixed address that somebody holds: a pod of
// the same network shares it, one of another network makes the ADD fail. Records
// of old versions do not say of which network they are: shared, as it was then.
func (p *plan) shareOrFail(s *slot, a netip.Addr, holder Record, log *slog.Logger) error {
	if holder.Network != "" && holder.Network != p.owner.Network {
		return &RequestError{Address: a, Source: fmt.Sprintf("addresses of network %s", p.owner.Network), Holder: holder}
	}
	log.Warn("fixed address is shared", "address", a, "holder", holder.Holder())
	s.done, s.shared = true, true
	return nil
}

// leftovers lists releases of what the owner holds in the plan's pools and did
// not get again. Records without an interface may be another interface's.
func (p *plan) leftovers() []Change {
	kept := map[holding]bool{}
	for _, s := range p.slots {
		kept[holding{s.pool, s.address()}] = true
	}
	var release []Change
	for _, id := range p.pools() {
		for _, a := range p.mine(id) {
			r := p.content[id].Records[a]
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

// gatewayOf is the gateway of a range's addresses: its own, else the top-level one
// if that is of its family.
func (c *Config) gatewayOf(r Range) netip.Addr {
	if r.Gateway.IsValid() {
		return r.Gateway
	}
	if c.Gateway.IsValid() && c.Gateway.Is4() == r.Prefix.Addr().Is4() {
		return c.Gateway
	}
	return netip.Addr{}
}
