package reclaim

import (
	"context"
	"net/netip"
	"slices"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// place is what a reservation claims.
type place struct {
	network string
	address netip.Addr
}

// beside is what stands beside a reservation.
type beside struct {
	met   bool         // its own entry
	other *ipam.Record // somebody else's
}

// sift looks at everything and notes what is to be done. It asks only what is known
// from memory.
func (p *pass) sift(ctx context.Context) {
	reserved := make(map[place]int, len(p.snapshot.Reservations))
	for i, r := range p.snapshot.Reservations {
		reserved[place{r.Space, r.Address}] = i
	}
	found := make([]beside, len(p.snapshot.Reservations))
	around := overlaps(p.snapshot.Pools)
	for _, pool := range p.snapshot.Pools {
		p.siftPool(ctx, pool, around[pool], reserved, found)
	}
	p.report.Unreadable += len(p.snapshot.Unreadable)
	for _, name := range p.snapshot.Unreadable {
		p.log().Error("pool cannot be read: no address is given from it or freed in it; correct its spec.range", "object", name)
	}
	for i := range p.snapshot.Reservations {
		if !found[i].met {
			p.siftReservation(ctx, &p.snapshot.Reservations[i], found[i].other)
		}
	}
}

func (p *pass) siftPool(ctx context.Context, pool *ipam.Pool, around []*ipam.Pool, reserved map[place]int, found []beside) {
	if len(pool.Bad) > 0 {
		p.report.Unreadable += len(pool.Bad)
		p.log().Warn("pool has entries that cannot be read", "pool", pool.ID, "entries", len(pool.Bad), "first", pool.Bad[0])
	}
	p.report.Records += len(pool.Records)
	needs, known := p.protection(pool.ID)
	alone := func(c Case) Verdict { return RepairEntry(c, needs, known) }
	for address, record := range pool.Records {
		c := candidate{spot: entrySpot(pool.ID, address), pool: pool.ID, record: record, rule: alone}
		if i, ok := reserved[place{pool.ID.Network, address}]; ok {
			c.rule = Judge
			if p.snapshot.Reservations[i].Beside(pool.ID, record) {
				found[i].met = true
			} else {
				other := record
				found[i].other = &other
			}
		}
		twice := p.recordedTwice(pool, around, address)
		p.consider(ctx, &c, twice)
	}
}

// recordedTwice reports whether another pool of the network records an address too.
func (p *pass) recordedTwice(pool *ipam.Pool, around []*ipam.Pool, a netip.Addr) bool {
	for _, other := range around {
		if _, ok := other.Records[a]; !ok {
			continue
		}
		if pool.ID.Range.Bits() > other.ID.Range.Bits() || pool.ID.Range == other.ID.Range && pool.ID.Node > other.ID.Node {
			p.report.Duplicates++ // once, by the narrower one
			p.log().Warn("address is recorded twice", "address", a, "pool", pool.ID, "other", other.ID)
		}
		return true
	}
	return false
}

func (p *pass) siftReservation(ctx context.Context, r *ipam.Reservation, other *ipam.Record) {
	if (r.Record == ipam.Record{}) {
		p.report.Unreadable++
	}
	id, known := p.poolOf(r)
	p.consider(ctx, &candidate{
		spot: reservationSpot(*r), pool: id, record: r.Record, reservation: r, disputed: other != nil,
		rule: func(c Case) Verdict { return RepairReservation(c, Rest{Record: other, PoolKnown: known}) },
	}, false)
}

// poolOf finds the pool that a reservation belongs to: the only one of its range in
// its network, or if there is none, that of a definition.
func (p *pass) poolOf(r *ipam.Reservation) (ipam.PoolID, bool) {
	prefix, err := ipam.ParsePrefix(r.Range)
	if err != nil || !prefix.Contains(r.Address) {
		return ipam.PoolID{}, false
	}
	id := ipam.PoolID{Network: r.Space, Range: prefix.Masked()}
	stored := 0
	for _, pool := range p.snapshot.Pools {
		if pool.ID.Network == r.Space && pool.ID.Range == id.Range {
			id = pool.ID
			stored++
		}
	}
	if stored == 0 {
		_, named := p.protection(id)
		return id, named
	}
	return id, stored == 1
}

// consider decides about a candidate by what is known, and notes it if something is
// to be done.
func (p *pass) consider(ctx context.Context, c *candidate, twice bool) {
	c.ask(ctx, p.Known)
	if c.err != nil {
		p.report.Kept[ReasonUnknown]++
		p.unknown(c)
		return
	}
	p.decide(c)
	if c.verdict.Action == Complete && twice {
		c.verdict = keep(ReasonDuplicate)
	}
	switch c.verdict.Action {
	case Free, Complete:
		p.todo = append(p.todo, *c)
	default:
		p.count(c.verdict)
	}
}

// unknown takes down that a pod could not be asked for. In a pass it is logged once:
// where one answer is missing, many may be.
func (p *pass) unknown(c *candidate) {
	if p.report.Kept[ReasonUnknown] == 1 {
		p.fail("cannot tell whether a pod lives", c, c.err)
		return
	}
	p.report.Failed++
}

// overlaps answers for each pool the others of its network with addresses in common.
// Ranges that meet lie one in the other: sorted, a range comes right behind those
// around it.
func overlaps(pools []*ipam.Pool) map[*ipam.Pool][]*ipam.Pool {
	byNetwork := map[string][]*ipam.Pool{}
	for _, pool := range pools {
		byNetwork[pool.ID.Network] = append(byNetwork[pool.ID.Network], pool)
	}
	found := map[*ipam.Pool][]*ipam.Pool{}
	for _, of := range byNetwork {
		slices.SortFunc(of, func(a, b *ipam.Pool) int { return a.ID.Range.Compare(b.ID.Range) })
		var around []*ipam.Pool
		for _, pool := range of {
			for len(around) > 0 && !around[len(around)-1].ID.Range.Overlaps(pool.ID.Range) {
				around = around[:len(around)-1]
			}
			for _, outer := range around {
				found[pool] = append(found[pool], outer)
				found[outer] = append(found[outer], pool)
			}
			around = append(around, pool)
		}
	}
	return found
}
