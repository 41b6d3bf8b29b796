package slice

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// cluster is a datastore with one slice pool, and who writes to it: controllers,
// plugins that work from a status they read long ago, pods that end, and somebody who
// takes nodes away and changes the definition. Every write stands for one request,
// and between any two requests of one writer the others may do anything.
type cluster struct {
	status  []Allocation
	version int // of the status
	pools   map[Key]object
	ever    map[Key]bool // what has been listed as a node's

	spec    ipam.RangeSpec
	size    int
	nodes   []Node
	writers []*process
	clock   int
	given   int // ADDs that succeeded
	moved   int // slices that changed hands
}

// object is a pool object; the zero one does not exist.
type object struct {
	version int
	mark    State // Empty, Closing or Closed
	records map[netip.Addr]bool
}

func (o object) state() State {
	if len(o.records) > 0 {
		return InUse
	}
	return o.mark
}

// writer does one request, and answers what comes next, nil for nothing.
type writer func(t *testing.T, c *cluster) (next writer)

// process is a writer that may stall between two requests.
type process struct {
	next  writer
	wakes int
}

func (c *cluster) write(key Key, o object) {
	o.version = c.pools[key].version + 1
	c.pools[key] = o
}

// controller does one round as the package's comment says.
func controller(t *testing.T, c *cluster) writer {
	listed, version := slices.Clone(c.status), c.version
	in := Input{Cut: mustCut(t, c.size, c.spec), Max: 2, Nodes: slices.Clone(c.nodes), Listed: listed}
	keys := slices.SortedFunc(maps.Keys(c.pools), compareKeys)
	seen := map[Key]object{}
	var read, decide, confirm, act writer
	read = func(_ *testing.T, c *cluster) writer {
		if len(keys) == 0 {
			return decide
		}
		key := keys[0]
		keys = keys[1:]
		seen[key] = c.pools[key]
		in.Pools = append(in.Pools, Pool{key, seen[key].state()})
		return read
	}
	var plan Plan
	decide = func(_ *testing.T, c *cluster) writer {
		plan = Assign(in)
		if all(plan.Allocations) == all(listed) {
			return confirm
		}
		if c.version != version {
			return nil
		}
		c.moved += moves(c.status, plan.Allocations)
		c.status = plan.Allocations
		c.version++
		return act
	}
	confirm = func(_ *testing.T, c *cluster) writer {
		if c.version != version {
			return nil
		}
		return act
	}
	act = func(_ *testing.T, c *cluster) writer {
		for _, list := range []struct {
			keys *[]Key
			mark State
		}{{&plan.Close, Closing}, {&plan.Seal, Closed}, {&plan.Open, Empty}} {
			if len(*list.keys) == 0 {
				continue
			}
			key := (*list.keys)[0]
			*list.keys = (*list.keys)[1:]
			if now := c.pools[key]; now.version == seen[key].version && len(now.records) == 0 {
				c.write(key, object{mark: list.mark})
			}
			return act
		}
		return nil
	}
	return read
}

func moves(before, after []Allocation) (n int) {
	owner := map[string]string{}
	for _, a := range before {
		owner[a.SliceRange] = a.NodeName
	}
	for _, a := range after {
		if was := owner[a.SliceRange]; was != "" && was != a.NodeName {
			n++
		}
	}
	return n
}

// plugin is an ADD on a node that may be gone by now.
func plugin(node string, rnd *rand.Rand) writer {
	return func(t *testing.T, c *cluster) writer {
		var mine []Key
		for _, key := range keys(owned(c.status)) {
			if key.Node == node {
				mine = append(mine, key)
			}
		}
		if len(mine) == 0 {
			return nil
		}
		key := mine[rnd.IntN(len(mine))]
		r := mustRange(t, c.spec)
		return func(_ *testing.T, c *cluster) writer {
			now := c.pools[key]
			if now.mark == Closing || now.mark == Closed {
				return nil
			}
			part, ok := r.Within(key.Slice)
			free := ipam.Free(part, func(a netip.Addr) bool { return now.records[a] }, 1)
			if !ok || len(free) == 0 {
				return nil
			}
			records := maps.Clone(now.records)
			if records == nil {
				records = map[netip.Addr]bool{}
			}
			records[free[0]] = true
			c.write(key, object{mark: Empty, records: records})
			c.given++
			return nil
		}
	}
}

// release ends all pods of a node that are on one slice.
func release(rnd *rand.Rand) writer {
	return func(_ *testing.T, c *cluster) writer {
		keys := slices.SortedFunc(maps.Keys(c.pools), compareKeys)
		keys = slices.DeleteFunc(keys, func(key Key) bool { return len(c.pools[key].records) == 0 })
		if len(keys) > 0 {
			key := keys[rnd.IntN(len(keys))]
			c.write(key, object{mark: c.pools[key].mark})
		}
		return nil
	}
}

// check answers what is wrong: an address with two holders, records in a pool that is
// closed, or a slice that was a node's, is not any more, and still can be written to.
func (c *cluster) check() string {
	listed := map[Key]bool{}
	for _, key := range keys(owned(c.status)) {
		listed[key], c.ever[key] = true, true
	}
	for key := range c.ever {
		if !listed[key] && c.pools[key].mark <= Empty {
			return fmt.Sprintf("%v is not listed, and a plugin that does not know could write to it", key)
		}
	}
	holder := map[netip.Addr]Key{}
	for key, o := range c.pools {
		if len(o.records) > 0 && (o.mark != Empty || !listed[key]) {
			return fmt.Sprintf("%v holds records; mark %d, listed: %t", key, o.mark, listed[key])
		}
		for a := range o.records {
			if other, held := holder[a]; held {
				return fmt.Sprintf("%s was given out by %v and %v", a, key, other)
			}
			holder[a] = key
		}
	}
	return ""
}

// change takes a node away, brings one back, or edits the definition.
func (c *cluster) change(rnd *rand.Rand, edits bool) {
	node := Node{Name: name(rnd), Slices: 1 + rnd.IntN(2)}
	at := slices.IndexFunc(c.nodes, func(n Node) bool { return n.Name == node.Name })
	switch kind := rnd.IntN(10); {
	case kind == 0 && edits:
		c.size = 27 + rnd.IntN(2)
	case kind == 1 && edits:
		c.spec.Exclude = []string{fmt.Sprintf("10.0.0.%d/29", rnd.IntN(64))}
	case kind == 2 && edits:
		c.spec.Range = []string{"10.0.0.0/26", "10.0.0.0/25"}[rnd.IntN(2)]
	case at >= 0 && kind < 5:
		c.nodes[at] = node
	case at >= 0:
		c.nodes = slices.Delete(c.nodes, at, at+1)
	default:
		c.nodes = append(c.nodes, node)
	}
}

// step lets one writer do one request, or makes a new writer.
func (c *cluster) step(t *testing.T, rnd *rand.Rand, edits bool) {
	c.clock++
	if len(c.writers) > 0 && rnd.IntN(4) > 0 {
		p := c.writers[rnd.IntN(len(c.writers))]
		if p.wakes > c.clock {
			return
		}
		if rnd.IntN(8) == 0 {
			p.wakes = c.clock + rnd.IntN(stall)
			return
		}
		if p.next = p.next(t, c); p.next == nil {
			c.writers = slices.DeleteFunc(c.writers, func(other *process) bool { return other == p })
		}
		return
	}
	switch kind := rnd.IntN(20); {
	case kind < 3:
		c.change(rnd, edits)
	case kind < 7:
		c.start(plugin(name(rnd), rnd))
	case kind < 12:
		c.start(release(rnd))
	case len(c.writers) < 12:
		c.start(controller)
	}
}

// stall is how many requests others do at most while a writer stalls.
const stall = 300

func (c *cluster) start(w writer) { c.writers = append(c.writers, &process{next: w}) }

func name(rnd *rand.Rand) string { return string(rune('a' + rnd.IntN(3))) }

// rest lets all pods end and one controller work until it finds nothing to do.
func (c *cluster) rest(t *testing.T) Plan {
	t.Helper()
	for key, o := range c.pools {
		c.pools[key] = object{version: o.version, mark: max(o.mark, Empty)}
	}
	const rounds = 12
	for range rounds {
		var in []Pool
		for key, o := range c.pools {
			in = append(in, Pool{key, o.state()})
		}
		plan := Assign(Input{Cut: mustCut(t, c.size, c.spec), Max: 2, Nodes: c.nodes, Listed: c.status, Pools: in})
		if all(plan.Allocations) == all(c.status) && plan.Close == nil && plan.Seal == nil && plan.Open == nil {
			return plan
		}
		for next := controller(t, c); next != nil; {
			next = next(t, c)
		}
	}
	t.Fatalf("does not come to rest: %s", all(c.status))
	return Plan{}
}

// TestLife plays random lives of a small cluster with several controllers, and checks
// after each request that nothing is given out twice and nothing in use moves. In the
// end everybody is served if there are enough slices.
func TestLife(t *testing.T) {
	const lives, steps = 200, 1000
	given, moved := 0, 0
	for seed := range uint64(lives) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		c := &cluster{pools: map[Key]object{}, ever: map[Key]bool{}, spec: ipam.RangeSpec{Range: "10.0.0.0/26"}, size: 27, nodes: nodes("a b c")}
		for i := range steps {
			c.step(t, rnd, seed%2 == 0)
			if problem := c.check(); problem != "" {
				t.Fatalf("seed %d, step %d: %s\nstatus %s", seed, i, problem, all(c.status))
			}
		}
		given, moved = given+c.given, moved+c.moved
		c.writers = nil
		plan := c.rest(t)
		if len(plan.Unserved) > 0 && !plan.Full || len(plan.Short) > 0 && !plan.Full || plan.Problems != nil {
			t.Fatalf("seed %d: at rest: %+v", seed, plan)
		}
		for _, key := range keys(owned(c.status)) {
			if !mustCut(t, c.size, c.spec).Has(key.Slice) || c.pools[key].mark > Empty {
				t.Fatalf("seed %d: at rest %v is listed with mark %d", seed, key, c.pools[key].mark)
			}
		}
	}
	if given < 20*lives || moved < lives*2/3 {
		t.Errorf("only %d addresses were given out and %d slices changed hands", given, moved)
	}
}

// TestLostStatus forgets the status between two rounds: what is in use is found again.
func TestLostStatus(t *testing.T) {
	const lives, steps = 60, 400
	for seed := range uint64(lives) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		c := &cluster{pools: map[Key]object{}, ever: map[Key]bool{}, spec: ipam.RangeSpec{Range: "10.0.0.0/26"}, size: 27, nodes: nodes("a b c")}
		for range steps {
			c.step(t, rnd, false)
		}
		c.writers = nil
		var used []string
		for _, key := range slices.SortedFunc(maps.Keys(c.pools), compareKeys) {
			if len(c.pools[key].records) > 0 {
				used = append(used, key.Node+"="+key.Slice.String())
			}
		}
		c.status = []Allocation{{"", "10.0.0.0/28"}, {"x", "lost"}}
		for next := controller(t, c); next != nil; {
			next = next(t, c)
		}
		if problem := c.check(); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
		for _, entry := range used {
			if !strings.Contains(" "+owned(c.status)+" ", " "+entry+" ") {
				t.Fatalf("seed %d: %s is in use, and not in %s", seed, entry, owned(c.status))
			}
		}
	}
}
