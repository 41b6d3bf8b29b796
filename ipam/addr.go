package ipam

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// ParseAddr reads an address as people write it. Blanks around it are trimmed,
// leading zeros are decimal (010.0.0.1 is 10.0.0.1), and an IPv4 address in IPv6
// clothes (::ffff:10.0.0.1) is the IPv4 address. A zone is an error: an address
// that is handed out belongs to no interface of this host.
//
// Errors say what was found and what would be right; the caller adds which key.
func ParseAddr(s string) (netip.Addr, error) {
	a, err := parseAddr(s)
	return a.Unmap(), err
}

func parseAddr(s string) (netip.Addr, error) {
	s = strings.TrimSpace(s)
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(stripZeros(s))
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address; write it like 10.0.0.1 or fd00::1", s)
	}
	if zone := a.Zone(); zone != "" {
		return netip.Addr{}, fmt.Errorf("%q has a zone; write it without %q", s, "%"+zone)
	}
	return a, nil
}

// stripZeros drops the leading zeros of every group of an address, which
// netip.ParseAddr refuses because some read them as octal.
func stripZeros(s string) string {
	var b strings.Builder
	leading := true
	for i := range len(s) {
		separator := s[i] == '.' || s[i] == ':'
		more := i+1 < len(s) && s[i+1] != '.' && s[i+1] != ':'
		if leading && s[i] == '0' && more {
			continue
		}
		b.WriteByte(s[i])
		leading = separator
	}
	return b.String()
}

// ParsePrefix reads address/length as leniently as ParseAddr reads an address.
// Host bits are kept. ::ffff:10.0.0.0/104 is 10.0.0.0/8.
//
// Errors say what was found and what would be right; the caller adds which key.
func ParsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	addr, length, ok := strings.Cut(s, "/")
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q has no prefix length; write it like 10.0.0.0/24", s)
	}
	a, err := parseAddr(addr)
	if err != nil {
		return netip.Prefix{}, err
	}
	shortest := 0
	if a.Is4In6() {
		shortest = 128 - 32
	}
	n, err := strconv.ParseUint(strings.TrimSpace(length), 10, 8)
	if err != nil || int(n) < shortest || int(n) > a.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%q has no valid prefix length; write a number from %d to %d behind the slash",
			s, shortest, a.BitLen())
	}
	return netip.PrefixFrom(a.Unmap(), int(n)-shortest), nil
}

// AddOffset is the address that lies offset addresses above base. It answers
// false when that leaves base's address family.
func AddOffset(base netip.Addr, offset Uint128) (netip.Addr, bool) {
	if !base.IsValid() {
		return netip.Addr{}, false
	}
	b := addrNumber(base)
	lo, carry := bits.Add64(b.Lo, offset.Lo, 0)
	hi, carry := bits.Add64(b.Hi, offset.Hi, carry)
	if base.Is4() {
		if carry != 0 || hi != 0 || lo > math.MaxUint32 {
			return netip.Addr{}, false
		}
		var b4 [4]byte
		binary.BigEndian.PutUint32(b4[:], uint32(lo))
		return netip.AddrFrom4(b4), true
	}
	if carry != 0 {
		return netip.Addr{}, false
	}
	var b16 [16]byte
	binary.BigEndian.PutUint64(b16[:8], hi)
	binary.BigEndian.PutUint64(b16[8:], lo)
	return netip.AddrFrom16(b16), true
}

// Offset is how many addresses a lies above base. It answers false when a lies
// below base or belongs to the other family.
func Offset(base, a netip.Addr) (Uint128, bool) {
	if !base.IsValid() || base.BitLen() != a.BitLen() {
		return Uint128{}, false
	}
	b, n := addrNumber(base), addrNumber(a)
	lo, borrow := bits.Sub64(n.Lo, b.Lo, 0)
	hi, borrow := bits.Sub64(n.Hi, b.Hi, borrow)
	if borrow != 0 {
		return Uint128{}, false
	}
	return Uint128{Hi: hi, Lo: lo}, true
}

// addrNumber is the address as a number, 32 bits wide for IPv4.
func addrNumber(a netip.Addr) Uint128 {
	if a.Is4() {
		b := a.As4()
		return Uint128{Lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return Uint128{Hi: binary.BigEndian.Uint64(b[:8]), Lo: binary.BigEndian.Uint64(b[8:])}
}

// Uint128 is an unsigned number of 128 bits: the distance between two addresses
// of either family.
type Uint128 struct{ Hi, Lo uint64 }

// ParseUint128 reads a decimal number. It answers false for anything but the
// one text that String writes for a number: no sign, no blanks, no leading
// zeros, no number of more than 128 bits. Two keys never mean one number.
func ParseUint128(s string) (Uint128, bool) {
	if s == "" || (s[0] == '0' && s != "0") {
		return Uint128{}, false
	}
	var u Uint128
	for i := range len(s) {
		digit := uint64(s[i]) - '0' // wraps around below '0'
		if digit > 9 {
			return Uint128{}, false
		}
		carry, lo := bits.Mul64(u.Lo, 10)
		lo, c := bits.Add64(lo, digit, 0)
		over, hi := bits.Mul64(u.Hi, 10)
		hi, c = bits.Add64(hi, carry, c)
		if over != 0 || c != 0 {
			return Uint128{}, false
		}
		u = Uint128{Hi: hi, Lo: lo}
	}
	return u, true
}

// String is the number in decimal.
func (u Uint128) String() string {
	if u.Hi == 0 {
		return strconv.FormatUint(u.Lo, 10)
	}
	const chunk = 1e19 // the highest power of ten in 64 bits
	hi, rest := u.Hi/chunk, u.Hi%chunk
	lo, low := bits.Div64(rest, u.Lo, chunk)
	return Uint128{Hi: hi, Lo: lo}.String() + fmt.Sprintf("%019d", low)
}
