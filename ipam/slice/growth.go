package slice

import (
	"math/big"
	"net/netip"
)

// maxCapacity is the most addresses that a slice is said to have: enough to tell full
// from empty, and few enough to add them up.
const maxCapacity = 1 << 40

// Load is how full a slice of a node is, in addresses. Size is what Cut.Capacity says.
type Load struct{ Size, Used int }

// Wanted is how many slices a node asks for that has these, from the lowest to the
// highest: one more when less than an eighth of a slice is free in all of them, and
// fewer when the highest ones are empty and the others have twice as much to spare. In
// between nothing changes, so that one pod that comes and goes moves no slice.
func Wanted(loads []Load) int {
	n := len(loads)
	if n == 0 {
		return 1
	}
	free := 0
	for _, l := range loads {
		free += max(l.Size-l.Used, 0)
	}
	reserve := max(loads[n-1].Size/8, 1)
	if free < reserve {
		return n + 1
	}
	for n > 1 && loads[n-1].Used == 0 && free-loads[n-1].Size >= 2*reserve {
		n--
		free -= loads[n].Size
	}
	return n
}

// Capacity is how many addresses of a slice a node may hand out, at most 2^40.
func (c Cut) Capacity(p netip.Prefix) int {
	least := maxCapacity
	for _, r := range c.ranges {
		part, ok := r.Within(p)
		if !ok {
			return 0
		}
		if n := new(big.Int).Sub(part.Size(), part.Excluded()); n.IsInt64() {
			least = min(least, int(n.Int64()))
		}
	}
	return least
}
