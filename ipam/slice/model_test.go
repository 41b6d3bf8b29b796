package slice

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// situation is a random input of one small range, with the plainest means to judge
// a plan by: it asks every slice, and every address.
type situation struct {
	in         Input
	specs      []ipam.RangeSpec
	consistent bool // no two listed slices overlap
	states     map[Key]State
	listed     map[Key]bool
}

func newSituation(t *testing.T, rnd *rand.Rand) *situation {
	s := &situation{states: map[Key]State{}, listed: map[Key]bool{}}
	spec := ipam.RangeSpec{Range: "10.0.0.0/26"}
	at := func() string { return fmt.Sprintf("10.0.0.%d", rnd.IntN(64)) }
	if rnd.IntN(3) == 0 {
		spec.Start = at()
	}
	for range rnd.IntN(3) {
		spec.Exclude = append(spec.Exclude, fmt.Sprintf("%s/%d", at(), 27+rnd.IntN(4)))
	}
	s.specs = []ipam.RangeSpec{spec}
	size := 27 + rnd.IntN(4)
	s.in = Input{Cut: mustCut(t, size, s.specs...), Max: rnd.IntN(4)}
	names := []string{"a", "b", "c", "d", "e", "f"}
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:rnd.IntN(len(names)+1)] {
		s.in.Nodes = append(s.in.Nodes, Node{Name: name, Slices: rnd.IntN(4)})
	}
	anySlice := func() netip.Prefix {
		bits := size
		if rnd.IntN(4) == 0 {
			bits = 27 + rnd.IntN(4)
		}
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(10) / 9), byte(rnd.IntN(64))}), bits).Masked()
	}
	s.consistent = rnd.IntN(4) > 0
	var used area
	for range rnd.IntN(8) {
		key := Key{names[rnd.IntN(len(names))], anySlice()}
		if _, overlaps := used.overlapping(key.Slice); overlaps && s.consistent {
			continue
		}
		used.add(key.Slice)
		s.listed[key] = true
		s.in.Listed = append(s.in.Listed, Allocation{key.Node, key.Slice.String()})
		if rnd.IntN(3) > 0 {
			s.states[key] = State(1 + rnd.IntN(4))
		}
	}
	for range rnd.IntN(8) {
		key := Key{names[rnd.IntN(len(names))], anySlice()}
		if _, given := s.states[key]; !given && !s.listed[key] {
			s.states[key] = State(1 + rnd.IntN(4))
		}
	}
	for key, state := range s.states {
		s.in.Pools = append(s.in.Pools, Pool{key, state})
	}
	return s
}

func (s *situation) state(key Key) State {
	if state, exists := s.states[key]; exists {
		return state
	}
	return Empty
}

func (s *situation) target(node string) int {
	for _, n := range s.in.Nodes {
		if n.Name == node {
			return min(max(n.Slices, 1), max(s.in.Max, 1))
		}
	}
	return 0
}

// available reports whether a plan could have given a node one more slice.
func (s *situation) available(node string, slice netip.Prefix, assigned []Key) bool {
	if s.state(Key{node, slice}) == Closing {
		return false
	}
	open := func(key Key) bool {
		state := s.state(key)
		return key.Slice.Overlaps(slice) && (state == Empty || state == InUse)
	}
	for key := range s.states {
		if open(key) {
			return false
		}
	}
	for key := range s.listed {
		if open(key) {
			return false
		}
	}
	return !slices.ContainsFunc(assigned, func(key Key) bool { return key.Slice.Overlaps(slice) })
}

func (s *situation) every() []netip.Prefix {
	var list []netip.Prefix
	for i := uint64(0); ; i++ {
		slice, ok := s.in.Cut.At(ipam.Uint128{Lo: i})
		if !ok {
			return list
		}
		list = append(list, slice)
	}
}

// judge answers what is wrong with a plan.
func (s *situation) judge(t *testing.T, plan Plan) string {
	assigned := keys(owned(plan.Allocations))
	for _, check := range []func() string{
		func() string { return s.oneOwner(plan) },
		func() string { return s.nothingMoves(assigned) },
		func() string { return s.actions(plan, assigned) },
		func() string { return s.served(t, plan, assigned) },
		func() string { return s.lowest(assigned) },
	} {
		if problem := check(); problem != "" {
			return problem
		}
	}
	return ""
}

// oneOwner looks at each address by itself.
func (s *situation) oneOwner(plan Plan) string {
	owner := map[netip.Addr]Allocation{}
	for _, allocation := range plan.Allocations {
		slice := netip.MustParsePrefix(allocation.SliceRange)
		for a := slice.Addr(); slice.Contains(a); a = a.Next() {
			if other, given := owner[a]; given {
				return fmt.Sprintf("%s is in %v and %v", a, other, allocation)
			}
			owner[a] = allocation
		}
	}
	return ""
}

// nothingMoves wants what is listed to stay as long as it is not given up, and so
// what is in use by one node alone.
func (s *situation) nothingMoves(assigned []Key) string {
	for key := range s.listed {
		if s.consistent && s.state(key) != Closing && !slices.Contains(assigned, key) {
			return fmt.Sprintf("%v was taken away", key)
		}
		if s.state(key) == Closing && slices.Contains(assigned, key) {
			return fmt.Sprintf("%v is Closing and still listed", key)
		}
	}
	for key, state := range s.states {
		alone := state == InUse && key.Slice.Overlaps(s.in.Cut.Prefix())
		for other := range s.listed {
			alone = alone && (other == key || !other.Slice.Overlaps(key.Slice) || s.state(other) == Closing)
		}
		for other, state := range s.states {
			alone = alone && (other == key || !other.Slice.Overlaps(key.Slice) || state != InUse)
		}
		if alone && !slices.Contains(assigned, key) {
			return fmt.Sprintf("%v is in use and not listed", key)
		}
	}
	return ""
}

func (s *situation) actions(plan Plan, assigned []Key) string {
	for _, key := range plan.Close {
		if state := s.state(key); state != Empty && state != Closed {
			return fmt.Sprintf("close %v, which is in state %d", key, state)
		}
	}
	for _, key := range plan.Seal {
		if s.state(key) != Closing || s.listed[key] || slices.Contains(assigned, key) {
			return fmt.Sprintf("seal %v, which is in state %d", key, s.state(key))
		}
	}
	for _, key := range plan.Open {
		if s.state(key) != Closed || !slices.Contains(assigned, key) || slices.Contains(plan.Close, key) {
			return fmt.Sprintf("open %v, which is in state %d", key, s.state(key))
		}
	}
	return ""
}

// served counts what each node has, and whether it could have had more.
func (s *situation) served(t *testing.T, plan Plan, assigned []Key) string {
	for _, node := range s.in.Nodes {
		has, empty := 0, 0
		for _, key := range assigned {
			if key.Node == node.Name && serves(t, s.specs, key.Slice) {
				has++
				if s.state(key) != InUse && !slices.Contains(plan.Close, key) {
					empty++
				}
			}
		}
		leaving := 0
		for _, key := range plan.Close {
			if key.Node == node.Name && slices.Contains(assigned, key) && serves(t, s.specs, key.Slice) {
				leaving++
			}
		}
		target := s.target(node.Name)
		if has-leaving > target && empty > 0 {
			return fmt.Sprintf("%s keeps %d slices, some of them empty, and asks for %d", node.Name, has-leaving, target)
		}
		if unserved := slices.Contains(plan.Unserved, node.Name); unserved != (has == 0) {
			return fmt.Sprintf("%s has %d and is called unserved: %t", node.Name, has, unserved)
		}
		if short := slices.Contains(plan.Short, node.Name); short != (has > 0 && has < target) {
			return fmt.Sprintf("%s has %d of %d and is called short: %t", node.Name, has, target, short)
		}
		for _, slice := range s.every() {
			if has < target && serves(t, s.specs, slice) && s.available(node.Name, slice, assigned) {
				return fmt.Sprintf("%s has %d of %d, and %s is there to have", node.Name, has, target, slice)
			}
		}
	}
	return ""
}

// lowest wants each new slice to be of use and the lowest that was there to have.
func (s *situation) lowest(assigned []Key) string {
	for _, key := range assigned {
		state, exists := s.states[key]
		if s.listed[key] || exists && state != Closed {
			continue
		}
		if !s.in.Cut.Has(key.Slice) || !s.available(key.Node, key.Slice, slices.DeleteFunc(slices.Clone(assigned), func(k Key) bool { return k == key })) {
			return fmt.Sprintf("%v was not there to have", key)
		}
		for _, lower := range s.every() {
			if lower.Addr().Less(key.Slice.Addr()) && s.in.Cut.Has(lower) && s.available(key.Node, lower, assigned) {
				return fmt.Sprintf("%v is not the lowest, %s is free", key, lower)
			}
		}
	}
	return ""
}

// carryOut does all that a plan says.
func (s *situation) carryOut(plan Plan) {
	s.in.Listed = plan.Allocations
	for _, key := range plan.Close {
		s.states[key] = Closing
	}
	for _, key := range plan.Seal {
		s.states[key] = Closed
	}
	for _, key := range plan.Open {
		s.states[key] = Empty
	}
	s.in.Pools = nil
	for key, state := range s.states {
		s.in.Pools = append(s.in.Pools, Pool{key, state})
	}
}

// settle carries plans out until there is nothing left to do.
func (s *situation) settle() (last Plan, ok bool) {
	const rounds = 10
	for range rounds {
		plan := Assign(s.in)
		if all(plan.Allocations) == all(s.in.Listed) && plan.Close == nil && plan.Seal == nil && plan.Open == nil {
			return plan, true
		}
		s.carryOut(plan)
		last = plan
	}
	return last, false
}

// TestPlansMatchTheModel also wants a plan to be the same for the same input in
// another order, to change nothing more while its pools are still to be written, and
// to come to an end.
func TestPlansMatchTheModel(t *testing.T) {
	const situations = 2500
	for seed := range uint64(situations) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := newSituation(t, rnd)
		plan := Assign(s.in)
		if problem := s.judge(t, plan); problem != "" {
			t.Fatalf("seed %d: %+v\nplan %+v\n%s", seed, s.in, plan, problem)
		}
		rnd.Shuffle(len(s.in.Pools), func(i, j int) { s.in.Pools[i], s.in.Pools[j] = s.in.Pools[j], s.in.Pools[i] })
		if again := Assign(s.in); !reflect.DeepEqual(again, plan) {
			t.Fatalf("seed %d: pools in another order: %+v, want %+v", seed, again, plan)
		}
		repeated := s.in
		repeated.Listed = plan.Allocations
		if again := Assign(repeated); s.consistent && !reflect.DeepEqual(again.Allocations, plan.Allocations) {
			t.Fatalf("seed %d: %+v\nthe second time %s", seed, plan, all(again.Allocations))
		}
		if last, ok := s.settle(); !ok {
			t.Fatalf("seed %d: %+v does not settle: %+v", seed, s.in, last)
		}
		for key, state := range s.states {
			if state == Closing && key.Slice.Overlaps(s.in.Cut.Prefix()) {
				t.Fatalf("seed %d: %v stays Closing", seed, key)
			}
		}
	}
}
