package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

	prefer   []netip.Addr     // intended by earlier calls for this owner
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
