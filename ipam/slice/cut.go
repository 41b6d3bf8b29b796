package slice

import (
	"fmt"
	"iter"
	"math/big"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"go4.org/netipx"
)

// Cut is a range cut into slices of one size. It lists nothing in advance: a range
// may have more slices than fit into any memory. The zero Cut has no slices.
type Cut struct {
	ranges []ipam.Range
	size   int
}

// New cuts a range into slices with the prefix length size. Several ranges are
// several views of one network, as of definitions that share it: they have the same
// Prefix, and a slice has to be of use in each.
//
// It answers an error that wraps ipam.ErrInvalid if that size cannot be cut from the
// range, or if the ranges are not of one network.
func New(size int, r ipam.Range, same ...ipam.Range) (Cut, error) {
	shortest, longest := r.Prefix.Bits(), r.Prefix.Addr().BitLen()
	if size < shortest || size > longest {
		return Cut{}, fmt.Errorf(`%w: node_slice_size: a slice of "/%d" cannot be cut from range %s; use "/%d" to "/%d"`,
			ipam.ErrInvalid, size, r.Prefix, shortest, longest)
	}
	for _, other := range same {
		if other.Prefix != r.Prefix {
			return Cut{}, fmt.Errorf("%w: range: %s and %s cannot be cut as one; write the same range in all definitions of the network",
				ipam.ErrInvalid, r.Prefix, other.Prefix)
		}
	}
	return Cut{ranges: append([]ipam.Range{r}, same...), size: size}, nil
}

// Prefix is the network that is cut; zero for the zero Cut.
func (c Cut) Prefix() netip.Prefix {
	if len(c.ranges) == 0 {
		return netip.Prefix{}
	}
	return c.ranges[0].Prefix
}

// Size is the prefix length of the slices.
func (c Cut) Size() int { return c.size }

// Count is how many slices there are, of use or not.
func (c Cut) Count() *big.Int {
	if len(c.ranges) == 0 {
		return new(big.Int)
	}
	return new(big.Int).Lsh(big.NewInt(1), uint(c.size-c.Prefix().Bits()))
}

// At is the slice with the number i, counted from 0 in address order, of use or not.
// It answers false when there are no more than i.
func (c Cut) At(i ipam.Uint128) (netip.Prefix, bool) {
	if len(c.ranges) == 0 {
		return netip.Prefix{}, false
	}
	base := c.Prefix().Addr()
	offset, ok := shiftLeft(i, base.BitLen()-c.size)
	if !ok {
		return netip.Prefix{}, false
	}
	a, ok := ipam.AddOffset(base, offset)
	if !ok || !c.Prefix().Contains(a) {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, c.size), true
}

// shiftLeft is u times two to the power of n. It answers false when that has more
// than 128 bits.
func shiftLeft(u ipam.Uint128, n int) (ipam.Uint128, bool) {
	for ; n > 0; n-- {
		if u == (ipam.Uint128{}) {
			return u, true
		}
		if u.Hi>>63 != 0 {
			return u, false
		}
		u = ipam.Uint128{Hi: u.Hi<<1 | u.Lo>>63, Lo: u.Lo << 1}
	}
	return u, true
}

// Has reports whether a prefix is one of the slices and of use.
func (c Cut) Has(p netip.Prefix) bool {
	return p.IsValid() && p.Bits() == c.size && p == p.Masked() && c.Serves(p)
}

// Serves reports whether a prefix, one of the slices or not, has an address that a
// node may hand out: one that is within the bounds of the range, not excluded, no
// gateway, no .0, and not the range's own first or last address.
func (c Cut) Serves(p netip.Prefix) bool {
	for _, r := range c.ranges {
		part, ok := r.Within(p)
		if !ok || len(ipam.Free(part, nil, 1)) == 0 {
			return false
		}
	}
	return len(c.ranges) > 0
}

// Usable runs through the slices that are of use in address order, from the one that
// contains an address. The zero address is before all of them. The time for one step
// does not grow with the number of slices that are passed over.
func (c Cut) Usable(from netip.Addr) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		if !from.IsValid() && len(c.ranges) > 0 {
			from = c.Prefix().Addr()
		}
		for a := from; a.IsValid(); {
			p, ok := c.next(a)
			if !ok || !yield(p) {
				return
			}
			a = netipx.PrefixLastIP(p).Next()
		}
	}
}

// next is the lowest slice of use that ends at the address or above. The ranges
// overtake each other until they agree.
func (c Cut) next(from netip.Addr) (netip.Prefix, bool) {
	for len(c.ranges) > 0 {
		highest := netip.PrefixFrom(from, c.size).Masked()
		agree := true
		for i, r := range c.ranges {
			a, ok := eligible(r, highest.Addr())
			if !ok {
				return netip.Prefix{}, false
			}
			p := netip.PrefixFrom(a, c.size).Masked()
			agree = agree && (i == 0 || p == highest)
			highest = p
		}
		if agree {
			return highest, true
		}
		from = highest.Addr()
	}
	return netip.Prefix{}, false
}

// eligible is the lowest address of a range that may be handed out, not below from.
func eligible(r ipam.Range, from netip.Addr) (netip.Addr, bool) {
	if from.BitLen() != r.Prefix.Addr().BitLen() {
		return netip.Addr{}, false
	}
	if r.First.Less(from) {
		r.First = from
	}
	free := ipam.Free(r, nil, 1)
	if len(free) == 0 {
		return netip.Addr{}, false
	}
	return free[0], true
}
