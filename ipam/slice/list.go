package slice

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

const (
	// maxListed is how many slices a range may have for the free ones to be
	// listed as well.
	maxListed = 4096

	// fewFree is how many free slices are listed of a range with more.
	fewFree = 16

	// maxBytes is what the list may have in JSON. An object may have a mebibyte,
	// and carries its metadata too.
	maxBytes = 1<<20 - 1<<16
)

// entrySize is the most bytes that a slice takes in the list: of its node's name,
// the longest address with a prefix length, and what is around them.
func entrySize(node string) int {
	const longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"
	return len(`{"nodeName":"","sliceRange":""},`) + len(longest) + len(node)
}

func sizeOf(keys []Key) int {
	size := 0
	for _, key := range keys {
		size += entrySize(key.Node)
	}
	return size
}

// list writes the new status: the slices of nodes, and the free ones as far as they
// find room.
func (p *planner) list() {
	keys := slices.Clone(p.held)
	room := fewFree
	if p.countable() {
		room = maxListed - len(keys)
	}
	room = min(room, (maxBytes-sizeOf(keys))/entrySize(""))
	deck := newDeck(p.Cut, p.taken)
	for range max(room, 0) {
		free, ok := deck.draw(func(netip.Prefix) bool { return true })
		if !ok {
			break
		}
		keys = append(keys, Key{Slice: free})
	}
	p.plan.Whole = !deck.more()
	slices.SortFunc(keys, compareKeys)
	for _, key := range keys {
		p.plan.Allocations = append(p.plan.Allocations, Allocation{NodeName: key.Node, SliceRange: key.Slice.String()})
	}
}

// countable reports whether there are so few slices of use that all are listed.
func (p *planner) countable() bool {
	n := 0
	for range p.Cut.Usable(netip.Addr{}) {
		if n++; n > maxListed {
			return false
		}
	}
	return true
}

// deck is the free slices of a cut from the lowest up.
type deck struct {
	cut   Cut
	taken area
	from  netip.Addr     // those below have been seen; invalid behind the last address
	spare []netip.Prefix // seen, and still free
}

func newDeck(c Cut, taken area) *deck {
	return &deck{cut: c, taken: slices.Clone(taken), from: c.Prefix().Addr()}
}

// draw takes the lowest free slice that suits.
func (d *deck) draw(suits func(netip.Prefix) bool) (netip.Prefix, bool) {
	for i := 0; i < len(d.spare) || d.fill(); i++ {
		if p := d.spare[i]; suits(p) {
			d.spare = slices.Delete(d.spare, i, i+1)
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func (d *deck) more() bool { return len(d.spare) > 0 || d.fill() }

// fill finds one more free slice. What is taken is passed over at once, however many
// slices it has.
func (d *deck) fill() bool {
	for d.from.IsValid() {
		p, ok := d.cut.next(d.from)
		if !ok {
			break
		}
		d.from = netipx.PrefixLastIP(p).Next()
		other, overlaps := d.taken.overlapping(p)
		if !overlaps {
			d.spare = append(d.spare, p)
			return true
		}
		if end := netipx.PrefixLastIP(other).Next(); !end.IsValid() || d.from.IsValid() && d.from.Less(end) {
			d.from = end
		}
	}
	d.from = netip.Addr{}
	return false
}
