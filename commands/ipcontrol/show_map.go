package ipcontrol

import (
	"bufio"
	"fmt"
	"math"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// mapBits is how many bits of an address a map draws: as many addresses one by one,
// or as many blocks that a larger range is cut into.
const mapBits = 8

// cells are the characters of a map and their colours (ANSI).
var cells = map[string]struct {
	mark   byte
	colour string
}{
	stateFree:       {'.', "32"},
	stateHeld:       {'#', "33"},
	stateReserved:   {'R', "35"},
	stateExcluded:   {'x', "90"},
	stateGateway:    {'G', "36"},
	stateUnusable:   {'-', "90"},
	stateClaimed:    {'c', "33"},
	stateUnreadable: {'?', "31"},
}

// draw draws a pool as a block of cells, 64 in a row with IPv4 and 32 with IPv6,
// whose addresses are longer: 80 columns hold either.
func (s shower) draw(v *view, pool stored) error {
	out := bufio.NewWriter(s.Stdout)
	prefix := pool.pool.ID.Range
	label, row := 15, 64
	if prefix.Addr().Is6() {
		label, row = 39, 32
	}
	host := prefix.Addr().BitLen() - prefix.Bits()
	each := max(host-mapBits, 0)
	states := v.mapStates(pool)
	for i := range 1 << min(host, mapBits) {
		if i%row == 0 {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "%-*s ", label, nthBlock(prefix, each, i).Addr())
		}
		if each == 0 {
			c := cells[states[nthBlock(prefix, 0, i).Addr()]]
			s.cell(out, c.mark, c.colour)
			continue
		}
		s.block(out, v, pool, nthBlock(prefix, each, i))
	}
	fmt.Fprintln(out)
	if each > 0 {
		fmt.Fprintf(out, "\neach cell is a /%d: . free, 1-9 tenths recorded, # full, x nothing of it is handed out\n", prefix.Addr().BitLen()-each)
	} else {
		fmt.Fprintf(out, "\n. free   # held   R reserved   x excluded   G gateway   - never handed out   c claimed   ? unreadable\n")
	}
	return out.Flush()
}

func (s shower) cell(out *bufio.Writer, mark byte, colour string) {
	if s.colour() {
		fmt.Fprintf(out, "\x1b[%sm%c\x1b[0m", colour, mark)
		return
	}
	_ = out.WriteByte(mark) // Flush answers the error
}

// block draws a block of a large range by how much of it is recorded.
func (s shower) block(out *bufio.Writer, v *view, pool stored, block netip.Prefix) {
	part := ipam.Pool{ID: ipam.PoolID{Node: "a part", Range: block}, Records: map[netip.Addr]ipam.Record{}}
	for a, r := range pool.pool.Records {
		if block.Contains(a) {
			part.Records[a] = r
		}
	}
	ranges := v.ranges(pool.pool.ID)
	if len(ranges) == 0 {
		ranges = []ipam.Range{ipam.RangeOf(pool.pool.ID)}
	}
	var parts []ipam.Range
	for _, r := range ranges {
		if within, ok := r.Within(block); ok {
			parts = append(parts, within)
		}
	}
	mark, state := byte('.'), stateFree
	u := ipam.UsageOf(&part, parts...)
	nothing := len(parts) == 0 || u.Excluded.Cmp(u.Total) == 0
	switch tenths := tenth(u); {
	case u.Used == 0 && nothing:
		mark, state = 'x', stateExcluded
	case u.Used > 0 && (nothing || u.Free.Sign() <= 0):
		mark, state = '#', stateHeld
	case u.Used > 0:
		mark, state = byte('0'+tenths), stateHeld
	}
	s.cell(out, mark, cells[state].colour)
}

// tenth is how much is recorded, from 1 to 9: what has any is not drawn as empty,
// nor what has a free one as full.
func tenth(u ipam.Usage) int {
	total, _ := u.Total.Float64()
	return min(max(int(math.Round(float64(u.Used)/total*10)), 1), 9)
}

// mapStates are the states of the addresses of a pool that is small enough.
func (v *view) mapStates(pool stored) map[netip.Addr]string {
	prefix := pool.pool.ID.Range
	if prefix.Addr().BitLen()-prefix.Bits() > mapBits {
		return nil
	}
	ranges := v.ranges(pool.pool.ID)
	claimed := map[netip.Addr]bool{}
	for i := range pool.Reservations {
		if r := &pool.Reservations[i]; r.Space == pool.pool.ID.Network {
			claimed[r.Address] = true
		}
	}
	states := map[netip.Addr]string{}
	for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
		record, held := pool.pool.Records[a]
		switch {
		case held:
			states[a] = recordState(record)
		case claimed[a]:
			states[a] = stateClaimed
		default:
			states[a] = unheld(pool.pool.ID, ranges, a)
		}
	}
	return states
}

// nthBlock is the n-th part of a range, with so many bits of its own.
func nthBlock(prefix netip.Prefix, bits, n int) netip.Prefix {
	bytes := prefix.Masked().Addr().AsSlice()
	for bit := range mapBits {
		if n>>bit&1 == 1 {
			at := bits + bit // from the end of the address
			bytes[len(bytes)-1-at/8] |= 1 << (at % 8)
		}
	}
	a, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(a, a.BitLen()-bits)
}
