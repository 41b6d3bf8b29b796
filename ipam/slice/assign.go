package slice

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Allocation is one entry of the status of a slice pool, as it is stored.
type Allocation struct {
	NodeName   string `json:"nodeName"`   // "" when the slice is free
	SliceRange string `json:"sliceRange"` // CIDR
}

// Node is a node that exists.
type Node struct {
	Name string
	// Slices is how many slices the node asks for in all: at least 1 and at most
	// Input.Max, whatever is written here.
	Slices int
}

// State is what is known of the pool of one node for one slice.
type State int

// The states of a pool, see the package's comment. A pool without an object is
// Empty.
const (
	Unknown State = iota // no mark; whether it holds anything has not been read
	Empty                // no mark, no entries
	InUse                // no mark, and entries, readable or not
	Closing              // marked, and given up by its node
	Closed               // marked, and its slice was not the node's afterwards
)

// Key names the pool of one node for one slice.
type Key struct {
	Node  string
	Slice netip.Prefix // masked
}

func compareKeys(a, b Key) int {
	return cmp.Or(comparePrefixes(a.Slice, b.Slice), cmp.Compare(a.Node, b.Node))
}

// comparePrefixes orders by address, and what contains another comes before it.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Pool is a pool object that exists.
type Pool struct {
	Key
	State State
}

// Input is what Assign decides from: one range of one network.
type Input struct {
	Cut    Cut
	Max    int          // most slices of a node; below 1 is 1
	Nodes  []Node       // in the order in which they are served, the oldest first
	Listed []Allocation // the status as read
	// Pools is every pool object of nodes in the network, read after the status.
	// Those without a node, or with a slice elsewhere, have no effect.
	Pools []Pool
}

// Plan is what is to be done. The lists are sorted and nil when empty.
type Plan struct {
	// Look is the pools whose state decides and is Unknown. When there are any,
	// nothing else is in the plan.
	Look []Key

	Allocations []Allocation // the new status, in address order
	Whole       bool         // it has all free slices of use, and not just the next ones

	Close []Key // if they still hold nothing: mark them Closing
	Seal  []Key // Closing: mark them Closed
	Open  []Key // Closed: take the mark away

	Unserved []string // nodes without a slice that is of use
	Short    []string // nodes with fewer slices than they ask for, but some
	Full     bool     // there is no free slice of use left

	Problems []string // what is odd in what was read, in words for a log
}

// Assign decides which node gets which slice. The same input has the same plan, and
// once a plan is carried out, the next one changes nothing.
//
//   - A node keeps its slices while it exists or they are in use. It gives up those
//     that were cut otherwise as soon as they are empty, and then the highest empty
//     ones above what it asks for. A slice is listed as its node's until its pool is
//     Closing.
//   - A node that has fewer than it asks for gets the lowest free slices, in the
//     order of nodes; first each node gets one.
//   - A pool that is open although its slice is not listed means that the status was
//     lost or is old: the node gets the slice back. Where several nodes have open
//     pools for the same addresses, none of them does, and nobody else.
//   - No slice that is listed as a node's overlaps another.
func Assign(in Input) Plan {
	p := newPlanner(in)
	p.readListed()
	p.readClaims()
	p.giveUp()
	if len(p.look) > 0 {
		return Plan{Look: slices.SortedFunc(maps.Keys(p.look), compareKeys)}
	}
	p.deal()
	p.list()
	slices.SortFunc(p.plan.Close, compareKeys)
	slices.SortFunc(p.plan.Seal, compareKeys)
	slices.SortFunc(p.plan.Open, compareKeys)
	return p.plan
}

// planner is the plan in the making.
type planner struct {
	Input
	target map[string]int // how many slices each node that exists is to have
	states map[Key]State  // of the pools that exist
	listed map[Key]bool   // as read
	held   []Key          // slices that stay or become their nodes', disjoint
	taken  area           // where nothing may be given to anyone
	serves map[string]int // how many held slices are of use to their node
	look   map[Key]bool
	plan   Plan
}

func newPlanner(in Input) *planner {
	p := &planner{
		Input: in, target: map[string]int{}, states: map[Key]State{}, listed: map[Key]bool{},
		serves: map[string]int{}, look: map[Key]bool{},
	}
	for _, node := range in.Nodes {
		if node.Name != "" {
			p.target[node.Name] = min(max(node.Slices, 1), max(in.Max, 1))
		}
	}
	for _, pool := range in.Pools {
		if pool.Node != "" && pool.Slice.IsValid() {
			pool.Slice = pool.Slice.Masked()
			p.states[pool.Key] = pool.State
		}
	}
	return p
}

// state is a pool's state where it decides. One that nobody has looked into counts
// as in use until then.
func (p *planner) state(key Key) State {
	state, exists := p.states[key]
	switch {
	case !exists:
		return Empty
	case state == Unknown:
		p.look[key] = true
		return InUse
	}
	return state
}

// hold makes a slice its node's.
func (p *planner) hold(key Key) {
	p.held = append(p.held, key)
	p.taken.add(key.Slice)
	if p.Cut.Serves(key.Slice) {
		p.serves[key.Node]++
	}
}

// giveUp decides which of the held slices their nodes keep.
func (p *planner) giveUp() {
	slices.SortFunc(p.held, compareKeys)
	leaving := map[string]int{}
	for _, key := range p.held {
		if p.target[key.Node] > 0 && p.Cut.Has(key.Slice) {
			continue
		}
		if p.close(key) && p.Cut.Serves(key.Slice) {
			leaving[key.Node]++
		}
	}
	for _, key := range slices.Backward(p.held) {
		target := p.target[key.Node]
		if target == 0 || !p.Cut.Has(key.Slice) {
			continue
		}
		surplus := p.serves[key.Node] - leaving[key.Node] - target
		if surplus > 0 && p.close(key) {
			leaving[key.Node]++
		} else if p.states[key] == Closed {
			p.plan.Open = append(p.plan.Open, key)
		}
	}
}

// close asks for a pool to be closed if nothing is in the way.
func (p *planner) close(key Key) bool {
	if p.state(key) == InUse {
		return false
	}
	p.plan.Close = append(p.plan.Close, key)
	return true
}

// deal gives free slices to nodes that have too few: a first one to each, then
// second ones.
func (p *planner) deal() {
	most := 0
	for _, target := range p.target {
		most = max(most, target)
	}
	deck := newDeck(p.Cut, p.taken)
	room := maxBytes - sizeOf(p.held)
	for round := 1; round <= most; round++ {
		for _, node := range p.Nodes {
			lacks := p.serves[node.Name] < round && round <= p.target[node.Name]
			if lacks && entrySize(node.Name) <= room && p.draw(deck, node.Name) {
				room -= entrySize(node.Name)
			}
		}
	}
	p.plan.Full = !deck.more()
	p.tell()
}

// draw gives a node the lowest free slice. Where its own pool is Closing, that has to
// be sealed first.
func (p *planner) draw(d *deck, node string) bool {
	s, ok := d.draw(func(s netip.Prefix) bool { return p.states[Key{node, s}] != Closing })
	if !ok {
		return false
	}
	key := Key{node, s}
	p.hold(key)
	if p.states[key] == Closed {
		p.plan.Open = append(p.plan.Open, key)
	}
	return true
}

// tell lists the nodes that have too few slices.
func (p *planner) tell() {
	told := map[string]bool{"": true}
	for _, node := range p.Nodes {
		has := p.serves[node.Name]
		switch {
		case told[node.Name]:
		case has == 0:
			p.plan.Unserved = append(p.plan.Unserved, node.Name)
		case has < p.target[node.Name]:
			p.plan.Short = append(p.plan.Short, node.Name)
		}
		told[node.Name] = true
	}
}
