package ipam

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// model is the rules about ranges once more, written to be plainly right instead
// of fast: addresses are big integers, excludes stay an unsorted list, and what
// is next is found by walking. It shares no code with what it checks.
type model struct {
	width    int // bits of the family
	length   int // of the prefix
	net      *big.Int
	dotZero  bool
	bounds   [][2]*big.Int // pairs of start and end in the order they apply, nil when not set
	never    []modelSpan   // excludes, gateway, reserved
	held     map[string]bool
	slice    *modelSpan
	low, top *big.Int // the answer: first and last address
}

type modelSpan struct{ from, to *big.Int }

func (s modelSpan) has(a *big.Int) bool { return s.from.Cmp(a) <= 0 && a.Cmp(s.to) <= 0 }

func plus(a *big.Int, n int64) *big.Int { return new(big.Int).Add(a, big.NewInt(n)) }

func (m *model) all() modelSpan {
	size := new(big.Int).Lsh(big.NewInt(1), uint(m.width-m.length))
	return modelSpan{m.net, plus(new(big.Int).Add(m.net, size), -1)}
}

func (m *model) forbidden(a *big.Int) bool {
	if m.width != 32 || m.length > 30 || m.dotZero {
		return false
	}
	return new(big.Int).Mod(a, big.NewInt(256)).Sign() == 0
}

// settle computes first and last.
func (m *model) settle() {
	usable := m.all()
	if m.length < m.width-1 {
		usable = modelSpan{plus(usable.from, 1), plus(usable.to, -1)}
	}
	for _, pair := range m.bounds {
		before := usable
		if pair[0] != nil && before.has(pair[0]) {
			usable.from = pair[0]
		}
		if pair[1] != nil && before.has(pair[1]) && pair[1].Cmp(usable.from) >= 0 {
			usable.to = pair[1]
		}
	}
	if m.slice != nil {
		if m.slice.from.Cmp(usable.from) > 0 {
			usable.from = m.slice.from
		}
		if m.slice.to.Cmp(usable.to) < 0 {
			usable.to = m.slice.to
		}
	}
	m.low, m.top = usable.from, usable.to
	for m.low.Cmp(m.top) < 0 && m.forbidden(m.low) {
		m.low = plus(m.low, 1)
	}
	for m.low.Cmp(m.top) < 0 && m.forbidden(m.top) {
		m.top = plus(m.top, -1)
	}
}

func (m *model) inBounds(a *big.Int) bool {
	return modelSpan{m.low, m.top}.has(a) && !m.forbidden(a)
}

func (m *model) eligible(a *big.Int) bool {
	return m.inBounds(a) && !slices.ContainsFunc(m.never, func(s modelSpan) bool { return s.has(a) })
}

// next walks from the first address, leaping over one exclude at a time.
func (m *model) next(n int) []*big.Int {
	var found []*big.Int
walk:
	for a := m.low; a.Cmp(m.top) <= 0 && len(found) < n; a = plus(a, 1) {
		for _, span := range m.never {
			if span.has(a) {
				a = span.to
				continue walk
			}
		}
		if !m.forbidden(a) && !m.held[a.String()] {
			found = append(found, a)
		}
	}
	return found
}

// enumerable bounds how many addresses the model counts one by one.
const enumerable = 300

// count answers how many addresses are in bounds and how many of them are never
// handed out: one by one where there are few, else (IPv6, where .0 is like any
// other) by cutting the range at every end of an exclude.
func (m *model) count() (size, never *big.Int, ok bool) {
	size, never = new(big.Int), new(big.Int)
	if span := new(big.Int).Sub(m.top, m.low); span.Cmp(big.NewInt(enumerable)) < 0 {
		for a := m.low; a.Cmp(m.top) <= 0; a = plus(a, 1) {
			if m.inBounds(a) {
				size = plus(size, 1)
				if !m.eligible(a) {
					never = plus(never, 1)
				}
			}
		}
		return size, never, true
	}
	if m.width == 32 {
		return nil, nil, false
	}
	end := plus(m.top, 1)
	cuts := []*big.Int{m.low, end}
	for _, span := range m.never {
		cuts = append(cuts, span.from, plus(span.to, 1))
	}
	cuts = slices.DeleteFunc(cuts, func(c *big.Int) bool { return c.Cmp(m.low) < 0 || c.Cmp(end) > 0 })
	slices.SortFunc(cuts, (*big.Int).Cmp)
	for i := range cuts[1:] {
		piece := new(big.Int).Sub(cuts[i+1], cuts[i])
		if piece.Sign() > 0 && !m.eligible(cuts[i]) {
			never.Add(never, piece)
		}
	}
	return size.Sub(end, m.low), never, true
}

// text writes an address without help of the packages under test, now and then
// as sloppily as people do.
func (m *model) text(rnd *rand.Rand, a *big.Int) string {
	b := a.FillBytes(make([]byte, m.width/8))
	if m.width == 32 {
		switch rnd.IntN(12) {
		case 0:
			return fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3])
		case 1:
			return fmt.Sprintf(" %d.%d.%d.%d ", b[0], b[1], b[2], b[3])
		case 2:
			return fmt.Sprintf("::ffff:%d.%d.%d.%d", b[0], b[1], b[2], b[3])
		}
		return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3])
	}
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("%x", int(b[2*i])<<8|int(b[2*i+1]))
	}
	return strings.Join(groups, ":")
}

func (m *model) addr(a *big.Int) netip.Addr {
	out, _ := netip.AddrFromSlice(a.FillBytes(make([]byte, m.width/8)))
	return out
}

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

// scenario is a random range, as the model sees it and as an operator writes it.
type scenario struct {
	*model
	rnd     *rand.Rand
	anchors []*big.Int // addresses around which things happen
	spec    RangeSpec
	reserve []netip.Addr
	cut     netip.Prefix // a slice; invalid when there is none
}

func newScenario(rnd *rand.Rand) *scenario {
	s := &scenario{model: &model{width: 32, held: map[string]bool{}}, rnd: rnd}
	s.length = 20 + rnd.IntN(13)
	if rnd.IntN(2) == 0 {
		s.width, s.length = 128, 32+rnd.IntN(97)
	}
	s.dotZero = rnd.IntN(4) == 0
	s.spec.AllowDotZero = s.dotZero
	address := new(big.Int)
	for range s.width / 32 {
		address.Lsh(address, 32).Or(address, big.NewInt(int64(rnd.Uint32())))
	}
	if rnd.IntN(8) == 0 { // the end of the family
		address = plus(new(big.Int).Lsh(big.NewInt(1), uint(s.width)), -1-int64(rnd.IntN(4)))
	}
	host := uint(s.width - s.length)
	s.net = new(big.Int).Lsh(new(big.Int).Rsh(address, host), host)
	all := s.all()
	s.anchors = []*big.Int{all.from, all.to, address, plus(all.from, 256)}
	s.write(address)
	s.exclude()
	s.hold()
	s.cutSlice()
	s.settle()
	return s
}

// near is an address close to something interesting, sometimes outside the net.
func (s *scenario) near() *big.Int {
	last := plus(new(big.Int).Lsh(big.NewInt(1), uint(s.width)), -1)
	a := plus(s.anchors[s.rnd.IntN(len(s.anchors))], int64(s.rnd.IntN(25))-8)
	if a.Sign() < 0 {
		return new(big.Int)
	}
	if a.Cmp(last) > 0 {
		return last
	}
	return a
}

func (s *scenario) maybe(chance int) *big.Int {
	if s.rnd.IntN(chance) > 0 {
		return nil
	}
	a := s.near()
	s.anchors = append(s.anchors, a)
	return a
}

// prefix writes a net and tells its addresses.
func (s *scenario) prefix(a *big.Int, length int) (string, modelSpan) {
	net := &model{width: s.width, length: length}
	host := uint(s.width - length)
	net.net = new(big.Int).Lsh(new(big.Int).Rsh(a, host), host)
	text := s.text(s.rnd, a)
	if strings.HasPrefix(text, "::ffff:") && s.width == 32 {
		length += 96
	}
	return fmt.Sprintf("%s/%d", text, length), net.all()
}

// write is the range with its bounds.
func (s *scenario) write(address *big.Int) {
	if s.rnd.IntN(4) == 0 {
		first, last := address, s.near()
		if s.all().has(last) {
			text, _ := s.prefix(last, s.length)
			s.spec.Range = s.text(s.rnd, first) + "-" + text
			s.bounds = append(s.bounds, [2]*big.Int{first, last})
		}
	}
	if s.spec.Range == "" {
		s.spec.Range, _ = s.prefix(address, s.length)
	}
	start, end := s.maybe(3), s.maybe(3)
	if start != nil {
		s.spec.Start = s.text(s.rnd, start)
	}
	if end != nil {
		s.spec.End = s.text(s.rnd, end)
	}
	s.bounds = append(s.bounds, [2]*big.Int{start, end})
}

func (s *scenario) exclude() {
	for range s.rnd.IntN(6) {
		from := s.near()
		span := modelSpan{from, from}
		text := s.text(s.rnd, from)
		switch s.rnd.IntN(4) {
		case 0: // a small net
			text, span = s.prefix(from, s.width-s.rnd.IntN(6))
		case 1: // a net of any size, often a huge one
			text, span = s.prefix(from, s.rnd.IntN(s.width-s.length+1)+s.length)
		case 2:
			if to := s.near(); from.Cmp(to) <= 0 {
				span.to = to
				text += "-" + s.text(s.rnd, to)
			}
		}
		s.spec.Exclude = append(s.spec.Exclude, text)
		s.never = append(s.never, span)
		s.anchors = append(s.anchors, span.from, span.to)
	}
	if gateway := s.maybe(3); gateway != nil {
		s.spec.Gateway = s.text(s.rnd, gateway)
		s.never = append(s.never, modelSpan{gateway, gateway})
	}
	for range s.rnd.IntN(3) {
		a := s.near()
		s.reserve = append(s.reserve, s.addr(a))
		s.never = append(s.never, modelSpan{a, a})
	}
}

func (s *scenario) hold() {
	for range s.rnd.IntN(40) {
		s.held[s.near().String()] = true
	}
}

func (s *scenario) cutSlice() {
	if s.rnd.IntN(3) > 0 {
		return
	}
	length := s.length + s.rnd.IntN(s.width-s.length+1)
	a := s.near()
	_, span := s.prefix(a, length)
	s.cut = netip.PrefixFrom(s.addr(a), length)
	s.slice = &span
}

func (s *scenario) String() string { return fmt.Sprintf("%+v, slice %s", s.spec, s.cut) }

// TestRangesMatchTheModel compares what a range means, and which addresses of it
// are next, with the model.
func TestRangesMatchTheModel(t *testing.T) {
	const scenarios = 12_000
	counted := 0
	for seed := range uint64(scenarios) {
		s := newScenario(rand.New(rand.NewPCG(seed, 0)))
		r, _, err := ParseRange(s.spec)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, s, err)
		}
		r = r.Reserve(s.reserve...)
		if s.slice != nil {
			var ok bool
			left := s.low.Cmp(s.top) <= 0 && (s.low.Cmp(s.top) < 0 || !s.forbidden(s.low))
			if r, ok = r.Within(s.cut); ok != left {
				t.Fatalf("seed %d: %s: something is left: %t, want %t", seed, s, ok, left)
			}
			if !ok {
				continue
			}
		}
		if problem := s.compare(r); problem != "" {
			t.Fatalf("seed %d: %s: %s", seed, s, problem)
		}
		size, never, ok := s.count()
		if !ok {
			continue
		}
		counted++
		if r.Size().Cmp(size) != 0 || r.Excluded().Cmp(never) != 0 {
			t.Fatalf("seed %d: %s: %s of %s excluded, want %s of %s", seed, s, r.Excluded(), r.Size(), never, size)
		}
	}
	if counted < scenarios/2 {
		t.Errorf("only %d of %d ranges were counted", counted, scenarios)
	}
}

func (s *scenario) compare(r Range) string {
	if got := number(r.First); got.Cmp(s.low) != 0 {
		return fmt.Sprintf("first is %s, want %s", r.First, s.addr(s.low))
	}
	if got := number(r.Last); got.Cmp(s.top) != 0 {
		return fmt.Sprintf("last is %s, want %s", r.Last, s.addr(s.top))
	}
	var want []netip.Addr
	for _, a := range s.next(3) {
		want = append(want, s.addr(a))
	}
	free := Free(r, func(a netip.Addr) bool { return s.held[number(a).String()] }, 3)
	if !slices.Equal(free, want) {
		return fmt.Sprintf("free are %s, want %s", free, want)
	}
	for range 10 {
		a := s.near()
		if got, want := r.Eligible(s.addr(a)), s.eligible(a); got != want {
			return fmt.Sprintf("%s is eligible: %t, want %t", s.addr(a), got, want)
		}
		if got, want := r.Contains(s.addr(a)), s.all().has(a); got != want {
			return fmt.Sprintf("%s is contained: %t, want %t", s.addr(a), got, want)
		}
	}
	return ""
}
