package ipam

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// RangeSpec is one range as the operator wrote it: the top-level keys, or one
// entry of ipRanges.
type RangeSpec struct {
	Range        string   // CIDR or first-last/length; host bits are allowed
	Start, End   string   // bounds inside Range; "" when not set
	Exclude      []string // each a CIDR, an address or first-last
	Gateway      string   // "" when not set
	AllowDotZero bool     // hand out IPv4 addresses that end in .0

	// Key is where the keys stand, for messages: "" at top level, "ipRanges[2]"
	// in an entry.
	Key string
}

func (s RangeSpec) key(name string) string {
	if s.Key == "" {
		return name
	}
	return s.Key + "." + name
}

func (s RangeSpec) invalid(name string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrInvalid, s.key(name), err)
}

// Range is a set of addresses to hand out, all of one network. Ranges are made
// by ParseRange, and narrowed by copies: a Range never changes.
type Range struct {
	Prefix       netip.Prefix // masked: it names the pool, and its length is the mask of returned addresses
	First, Last  netip.Addr   // the lowest and the highest address inside the bounds
	Gateway      netip.Addr   // of this range; zero when there is none
	AllowDotZero bool
	SliceSize    int // prefix length of a node's slice; 0 is off

	// blocked is never handed out dynamically: excludes, gateways and other
	// reserved addresses; sorted, without overlaps.
	blocked []netipx.IPRange
}

// ParseRange understands a range. Its errors wrap ErrInvalid: a range that is
// not a CIDR, first-last/length with first outside its own net, an exclude or a
// gateway that does not parse.
//
// The strings are warnings about bounds, which never stopped a pod: a start or
// end that does not parse or is no usable address of the range is ignored, and
// so is an end before the start.
func ParseRange(s RangeSpec) (Range, []string, error) {
	net, first, err := parseNet(s.Range)
	if err != nil {
		return Range{}, nil, s.invalid("range", err)
	}
	r := Range{Prefix: net.Masked(), AllowDotZero: s.AllowDotZero}
	b := bounds{IPRange: usable(r.Prefix)}
	if first.IsValid() {
		b.narrow(s.key("range"), first, s.key("range"), net.Addr())
	}
	b.narrow(s.key("range_start"), b.parse(s.key("range_start"), s.Start),
		s.key("range_end"), b.parse(s.key("range_end"), s.End))
	r.First, r.Last = r.trim(b.From(), b.To())
	if r.Size().Sign() == 0 {
		b.warn("%s: nothing but %s, which ends in .0, lies between start and end; widen them or set allow_dot_zero",
			s.key("range"), r.First)
	}
	if err := r.block(s); err != nil {
		return Range{}, nil, err
	}
	return r, b.warnings, nil
}

// parseNet reads a CIDR, or first-last/length. First is zero for a CIDR; the
// prefix has last as its address otherwise.
func parseNet(s string) (net netip.Prefix, first netip.Addr, err error) {
	lower, rest, isSpan := strings.Cut(s, "-")
	if !isSpan {
		rest = s
	} else if first, err = ParseAddr(lower); err != nil {
		return net, first, fmt.Errorf("start of %q: %w", s, err)
	}
	if net, err = ParsePrefix(rest); err != nil {
		return net, first, err
	}
	if isSpan && !net.Contains(first) {
		return net, first, fmt.Errorf("%q starts at %s, outside its own net %s; "+
			"write two addresses of one net, or a shorter prefix length", s, first, net.Masked())
	}
	return net, first, nil
}

// usable is what a net has without its first and last address, which are the
// net's own, except where there would be nothing left.
func usable(net netip.Prefix) netipx.IPRange {
	all := netipx.RangeOfPrefix(net)
	if net.Addr().BitLen()-net.Bits() <= 1 {
		return all
	}
	return netipx.IPRangeFrom(all.From().Next(), all.To().Prev())
}

// bounds are the addresses from start to end, and what was odd about them.
type bounds struct {
	netipx.IPRange
	warnings []string
}

func (b *bounds) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

// parse answers the zero address for a bound that is not set or unreadable.
func (b *bounds) parse(key, s string) netip.Addr {
	if strings.TrimSpace(s) == "" {
		return netip.Addr{}
	}
	a, err := ParseAddr(s)
	if err != nil {
		b.warn("%s is ignored: %v", key, err)
	}
	return a
}

// narrow moves the bounds to start and end, where these are set and inside.
func (b *bounds) narrow(startKey string, start netip.Addr, endKey string, end netip.Addr) {
	within, first, last := b.IPRange, b.From(), b.To()
	if within.Contains(start) {
		first = start
	} else if start.IsValid() {
		b.warn("%s is ignored: start %s is not among the usable addresses %s; correct or remove it",
			startKey, start, within)
	}
	switch {
	case !end.IsValid():
	case !within.Contains(end):
		b.warn("%s is ignored: end %s is not among the usable addresses %s; correct or remove it",
			endKey, end, within)
	case end.Less(first):
		b.warn("%s is ignored: end %s is before the start %s; correct or remove it", endKey, end, first)
	default:
		last = end
	}
	b.IPRange = netipx.IPRangeFrom(first, last)
}

// block reads the excludes and the gateway.
func (r *Range) block(s RangeSpec) error {
	var never []netipx.IPRange
	for i, entry := range s.Exclude {
		span, err := parseExclude(entry)
		if err != nil {
			return s.invalid(fmt.Sprintf("exclude[%d]", i), err)
		}
		never = append(never, span)
	}
	if strings.TrimSpace(s.Gateway) != "" {
		gateway, err := ParseAddr(s.Gateway)
		if err != nil {
			return s.invalid("gateway", err)
		}
		r.Gateway = gateway
		never = append(never, netipx.IPRangeFrom(gateway, gateway))
	}
	r.blocked = r.merge(never)
	return nil
}

func parseExclude(s string) (netipx.IPRange, error) {
	lower, upper, isSpan := strings.Cut(s, "-")
	switch {
	case isSpan:
		return parseSpan(s, lower, upper)
	case strings.Contains(s, "/"):
		p, err := ParsePrefix(s)
		return netipx.RangeOfPrefix(p), err
	default:
		a, err := ParseAddr(s)
		return netipx.IPRangeFrom(a, a), err
	}
}

func parseSpan(s, lower, upper string) (netipx.IPRange, error) {
	from, err := ParseAddr(lower)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("start of %q: %w", s, err)
	}
	to, err := ParseAddr(upper)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("end of %q: %w", s, err)
	}
	span := netipx.IPRangeFrom(from, to)
	if !span.IsValid() {
		return span, fmt.Errorf("%q does not run upwards within one address family; write the lower address first", s)
	}
	return span, nil
}

// merge is the range's blocked addresses and more, sorted, without overlaps and
// without what lies outside the range anyway.
func (r Range) merge(more []netipx.IPRange) []netipx.IPRange {
	var b netipx.IPSetBuilder
	all := netipx.RangeOfPrefix(r.Prefix)
	for _, span := range slices.Concat(r.blocked, more) {
		if span.Overlaps(all) {
			b.AddRange(span)
		}
	}
	set, _ := b.IPSet() // fails for invalid addresses only, and those overlap nothing
	return set.Ranges()
}

// Reserve is the same range, but the addresses are never handed out dynamically.
// Addresses outside the range have no effect.
func (r Range) Reserve(addrs ...netip.Addr) Range {
	spans := make([]netipx.IPRange, len(addrs))
	for i, a := range addrs {
		spans[i] = netipx.IPRangeFrom(a.Unmap(), a.Unmap())
	}
	r.blocked = r.merge(spans)
	return r
}

// Within is the same range narrowed to a slice of it. The slice is used in full:
// it has no network and broadcast address of its own. It answers false if
// nothing between First and Last is left.
func (r Range) Within(slice netip.Prefix) (Range, bool) {
	part, ok := intersect(netipx.RangeOfPrefix(slice), netipx.IPRangeFrom(r.First, r.Last))
	if !ok {
		return Range{}, false
	}
	r.First, r.Last = r.trim(part.From(), part.To())
	if r.Size().Sign() == 0 {
		return Range{}, false
	}
	return r, true
}

// trim moves the ends off addresses that end in .0, so that First and Last are
// what an operator can see in use. A lone .0 stays: then Size is 0.
func (r Range) trim(first, last netip.Addr) (netip.Addr, netip.Addr) {
	if r.skipsDotZero(first) && first.Less(last) {
		first = first.Next()
	}
	if r.skipsDotZero(last) && first.Less(last) {
		last = last.Prev()
	}
	return first, last
}

// dotZeroRule reports whether addresses that end in .0 are left out.
func (r Range) dotZeroRule() bool {
	return !r.AllowDotZero && r.Prefix.Addr().Is4() && r.Prefix.Bits() < 31
}

func (r Range) skipsDotZero(a netip.Addr) bool {
	return r.dotZeroRule() && a.Is4() && a.As4()[3] == 0
}

// Contains reports whether the address is in the range's network at all.
func (r Range) Contains(a netip.Addr) bool { return r.Prefix.Contains(a) }

// Size is how many addresses lie from First to Last, .0 left out where the rule
// says so: the usable ones.
func (r Range) Size() *big.Int { return r.count(r.First, r.Last) }

// Excluded is how many of the addresses that Size counts are never handed out
// dynamically: excluded, a gateway or otherwise reserved.
func (r Range) Excluded() *big.Int {
	sum := new(big.Int)
	bounds := netipx.IPRangeFrom(r.First, r.Last)
	for _, span := range r.blocked {
		if part, ok := intersect(span, bounds); ok {
			sum.Add(sum, r.count(part.From(), part.To()))
		}
	}
	return sum
}

// count is how many addresses lie from first to last without those that the .0
// rule leaves out.
func (r Range) count(first, last netip.Addr) *big.Int {
	span, ok := Offset(first, last)
	if !ok {
		return new(big.Int)
	}
	n := new(big.Int).SetUint64(span.Hi)
	n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(span.Lo)).Add(n, big.NewInt(1))
	if r.dotZeroRule() {
		const perZero = 256
		below := func(end uint64) int64 { return int64((end + perZero - 1) / perZero) } // in [0, end)
		n.Sub(n, big.NewInt(below(addrNumber(last).Lo+1)-below(addrNumber(first).Lo)))
	}
	return n
}

func intersect(a, b netipx.IPRange) (netipx.IPRange, bool) {
	from, to := a.From(), a.To()
	if from.Less(b.From()) {
		from = b.From()
	}
	if b.To().Less(to) {
		to = b.To()
	}
	both := netipx.IPRangeFrom(from, to)
	return both, both.IsValid()
}

// String is the range as a CIDR, or as first-last/length when bounds or a slice
// narrow it.
func (r Range) String() string {
	if netipx.IPRangeFrom(r.First, r.Last) == usable(r.Prefix) {
		return r.Prefix.String()
	}
	return fmt.Sprintf("%s-%s/%d", r.First, r.Last, r.Prefix.Bits())
}
