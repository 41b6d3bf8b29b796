package ipam

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Free answers up to n addresses of the range that are eligible and not held,
// lowest first: the first of them is the next to be handed out. Fewer than n
// mean that there are no more. A nil held is an empty pool.
//
// The time it takes grows with the held addresses it meets and with the number
// of exclude entries, never with how many addresses those entries cover.
func Free(r Range, held func(netip.Addr) bool, n int) []netip.Addr {
	var free []netip.Addr
	blocked := r.blocked
	// Next is invalid behind the last address of a family: there is no wrap.
	for a := r.First; len(free) < n && a.IsValid() && !r.Last.Less(a); {
		for len(blocked) > 0 && blocked[0].To().Less(a) {
			blocked = blocked[1:]
		}
		if len(blocked) > 0 && !a.Less(blocked[0].From()) {
			a = blocked[0].To().Next()
			continue
		}
		if !r.skipsDotZero(a) && (held == nil || !held(a)) {
			free = append(free, a)
		}
		a = a.Next()
	}
	return free
}

// Eligible reports whether the address may be handed out to whoever asks for
// just any: it lies from First to Last, is not a .0 unless those are allowed, and
// is not excluded, a gateway or otherwise reserved.
func (r Range) Eligible(a netip.Addr) bool {
	if !r.Contains(a) || a.Less(r.First) || r.Last.Less(a) || r.skipsDotZero(a) {
		return false
	}
	_, found := slices.BinarySearchFunc(r.blocked, a, func(span netipx.IPRange, a netip.Addr) int {
		switch {
		case span.To().Less(a):
			return -1
		case a.Less(span.From()):
			return 1
		}
		return 0
	})
	return !found
}
