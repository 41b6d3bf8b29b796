package ipam

import (
	"math/big"
	"net/netip"

	"go4.org/netipx"
)

// Usage is how full a pool is. Total, Free and Excluded are exact, since IPv6
// ranges have more addresses than fit an integer: their String is decimal.
type Usage struct {
	Total    *big.Int // usable addresses, from the first to the last
	Excluded *big.Int // of Total: never handed out dynamically
	Used     int      // addresses with a record, wherever they lie
	Free     *big.Int // of Total: neither excluded nor recorded
}

// UsageOf counts a pool's addresses. ranges are what is known of the pool's range:
// one for each definition that names it, as Config.RangesOf answers them. An
// address counts as soon as one of them may hand it out. Without any the count is
// that of the CIDR alone, and nothing is excluded.
//
// The sum of Used, Excluded and Free may be more than Total: an excluded address
// can be held by somebody who asked for it by number.
func UsageOf(p *Pool, ranges ...Range) Usage {
	if len(ranges) == 0 {
		ranges = []Range{RangeOf(p.ID)}
	}
	usable, eligible, count := mergeRanges(ranges)
	u := Usage{Total: count(usable), Used: len(p.Records), Free: count(eligible)}
	u.Excluded = new(big.Int).Sub(u.Total, u.Free)
	held := 0
	for a := range p.Records {
		if mayHandOut(ranges, a) {
			held++
		}
	}
	u.Free.Sub(u.Free, big.NewInt(int64(held)))
	return u
}

// mergeRanges is the union of what the ranges have from first to last, that of what
// they hand out, and how to count addresses in either.
func mergeRanges(ranges []Range) (usable, eligible *netipx.IPSet, count func(*netipx.IPSet) *big.Int) {
	var all, open netipx.IPSetBuilder
	counter := ranges[0]
	for _, r := range ranges {
		all.AddRange(netipx.IPRangeFrom(r.First, r.Last))
		var own netipx.IPSetBuilder
		own.AddRange(netipx.IPRangeFrom(r.First, r.Last))
		for _, span := range r.blocked {
			own.RemoveRange(span)
		}
		set, _ := own.IPSet() // fails for invalid addresses only, and a Range has none
		open.AddSet(set)
		counter.AllowDotZero = counter.AllowDotZero || r.AllowDotZero
	}
	usable, _ = all.IPSet()
	eligible, _ = open.IPSet()
	return usable, eligible, func(set *netipx.IPSet) *big.Int {
		sum := new(big.Int)
		for _, span := range set.Ranges() {
			sum.Add(sum, counter.count(span.From(), span.To()))
		}
		return sum
	}
}

func mayHandOut(ranges []Range, a netip.Addr) bool {
	for _, r := range ranges {
		if r.Eligible(a) {
			return true
		}
	}
	return false
}

// RangeOf is the range that a pool's name alone tells: its CIDR. A node's slice is
// used in full.
func RangeOf(id PoolID) Range {
	r := Range{Prefix: id.Range.Masked()}
	span := usable(r.Prefix)
	if id.Node != "" {
		span = netipx.RangeOfPrefix(r.Prefix)
	}
	r.First, r.Last = r.trim(span.From(), span.To())
	return r
}

// RangesOf are the ranges of a configuration whose addresses are recorded in a pool,
// narrowed to it if it is a node's slice. network_name is not compared: only who
// read the pool's name knows how exact that is.
func (c *Config) RangesOf(id PoolID) []Range {
	var found []Range
	for _, r := range c.Ranges {
		switch {
		case id.Node == "" && r.Prefix == id.Range:
			found = append(found, r)
		case id.Node != "" && r.SliceSize > 0 && r.Prefix.Overlaps(id.Range):
			if part, ok := r.Within(id.Range); ok {
				found = append(found, part)
			}
		}
	}
	return found
}

// Blocked are the addresses of the range's network that are never handed out
// dynamically: excludes, gateways and other reserved ones, sorted, without overlaps.
// Those outside First and Last are among them.
func (r Range) Blocked() []netipx.IPRange {
	return append([]netipx.IPRange(nil), r.blocked...)
}
