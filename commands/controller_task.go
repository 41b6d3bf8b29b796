package commands

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// sliceTask is one list of slices that is to be kept up to date.
type sliceTask struct {
	name        string // of the list's object
	list        ipam.SliceList
	cut         slice.Cut // the zero Cut when no definition wants the list any more
	max         int       // most slices of a node
	definitions []string  // that want it, as namespace/name
	stored      kube.SlicePool

	// held is set for a list that a definition which cannot be understood may be about:
	// whose slices are whose stays as it is.
	held bool
}

// gone reports whether no definition wants the list any more.
func (t *sliceTask) gone() bool { return !t.held && !t.cut.Prefix().IsValid() }

// listed is the slices that nodes have by the list as it was read.
func (t *sliceTask) listed() []slice.Key {
	var keys []slice.Key
	for _, a := range t.stored.Allocations {
		if prefix, err := ipam.ParsePrefix(a.SliceRange); err == nil && a.NodeName != "" {
			keys = append(keys, slice.Key{Node: a.NodeName, Slice: prefix.Masked()})
		}
	}
	return keys
}

// poolID is where the records of a node's slice are.
func (t *sliceTask) poolID(k slice.Key) ipam.PoolID {
	return ipam.PoolID{Network: t.list.Space, Node: k.Node, Range: k.Slice}
}

// sliceTasks are the lists that definitions want, and those that exist though none does
// or may.
func sliceTasks(p kube.SlicePicture, flat []byte) ([]*sliceTask, []slice.Problem) {
	definitions := make([]slice.Definition, 0, len(p.Definitions))
	for _, d := range p.Definitions {
		definitions = append(definitions, d.Definition)
	}
	networks, problems := slice.Networks(definitions)
	byName := map[string]*sliceTask{}
	var tasks []*sliceTask
	for _, n := range networks {
		for i, cut := range n.Cuts {
			if !cut.Prefix().IsValid() {
				continue
			}
			t := newSliceTask(n, i, cut, p.Lists)
			if other := byName[t.name]; other != nil {
				problems = append(problems, nameProblems(t, other, definitions)...)
				continue
			}
			byName[t.name] = t
			tasks = append(tasks, t)
		}
	}
	doubt := newSliceDoubt(p.Definitions, problems, flat)
	for name, stored := range p.Lists {
		if byName[name] == nil {
			t := abandonedTask(stored, p.Heads)
			t.held = doubt.mayName(stored)
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b *sliceTask) int { return strings.Compare(a.name, b.name) })
	return tasks, problems
}

func newSliceTask(n slice.Network, i int, cut slice.Cut, lists map[string]*kube.SlicePool) *sliceTask {
	t := &sliceTask{
		list: ipam.SliceList{Space: n.Space, Network: n.Name, Range: cut.Prefix(), First: i == 0},
		cut:  cut, max: n.Max, definitions: n.Definitions,
	}
	t.name = kube.SlicePoolName(t.list)
	if stored := lists[t.name]; stored != nil {
		t.stored = *stored
	}
	return t
}

// nameProblems is for two lists that would be one object: one network is called like
// another with a range of it behind.
func nameProblems(t, other *sliceTask, definitions []slice.Definition) []slice.Problem {
	var problems []slice.Problem
	for _, d := range definitions {
		if slices.Contains(t.definitions, d.String()) {
			problems = append(problems, slice.Problem{Definition: d, Text: fmt.Sprintf(
				"network_name: the slice pool %s of this network is that of network %s too; choose another name", t.name, other.list.Network)})
		}
	}
	return problems
}

// abandonedTask is a list that no definition wants. An old one does not say in which
// address space its pools are: it is the one that has more of them.
func abandonedTask(stored *kube.SlicePool, heads []*kube.PoolHead) *sliceTask {
	t := &sliceTask{name: stored.Name, stored: *stored, list: ipam.SliceList{Network: stored.Network, First: true}}
	if stored.Space != nil {
		t.list.Space = *stored.Space
		return t
	}
	t.list.Network = stored.Name
	known := map[string]bool{}
	for _, h := range heads {
		known[h.Name] = true
	}
	balance := 0
	for _, k := range t.listed() {
		if known[kube.PoolName(ipam.PoolID{Node: k.Node, Range: k.Slice})] {
			balance--
		}
		if known[kube.PoolName(ipam.PoolID{Network: stored.Name, Node: k.Node, Range: k.Slice})] {
			balance++
		}
	}
	if balance > 0 {
		t.list.Space = stored.Name
	}
	return t
}

// sliceDoubt is the definitions that cannot be understood: whatever they may name has to
// stay as it is until they can.
type sliceDoubt struct {
	texts []string
	names map[string]bool
	flat  string
}

func newSliceDoubt(definitions []kube.SliceDefinition, problems []slice.Problem, flat []byte) sliceDoubt {
	broken := map[string]bool{}
	for _, p := range problems {
		broken[p.Definition.String()] = true
	}
	d := sliceDoubt{names: map[string]bool{}, flat: strings.ToLower(string(flat))}
	for _, definition := range definitions {
		if definition.Unclear || broken[definition.String()] {
			d.texts = append(d.texts, strings.ToLower(definition.Config))
			d.names[definition.Name] = true
		}
	}
	return d
}

// mayName reports whether one of the definitions may be about a list. A name that is
// written with escapes in JSON is not found; nobody does that.
func (d sliceDoubt) mayName(stored *kube.SlicePool) bool {
	network := stored.Network
	if stored.Space == nil {
		network = stored.Name
	}
	if d.names[network] {
		return true
	}
	network = strings.ToLower(network)
	contains := func(text string) bool { return strings.Contains(text, network) }
	return slices.ContainsFunc(d.texts, contains) || len(d.texts) > 0 && contains(d.flat)
}

// wanted is the list's object with new allocations.
func (t *sliceTask) wanted(allocations []slice.Allocation) kube.SlicePool {
	p := t.stored
	p.Name, p.Allocations = t.name, allocations
	if t.gone() || t.held {
		return p
	}
	p.Network, p.Space = t.list.Network, &t.list.Space
	if !samePrefix(p.Range, t.cut.Prefix()) {
		p.Range = t.cut.Prefix().String()
	}
	if bits, err := strconv.Atoi(strings.TrimPrefix(p.Size, "/")); err != nil || bits != t.cut.Size() {
		p.Size = fmt.Sprintf("/%d", t.cut.Size())
	}
	return p
}

func samePrefix(text string, p netip.Prefix) bool {
	written, err := ipam.ParsePrefix(text)
	return err == nil && written.Masked() == p
}

// differs reports whether a list has to be written.
func differs(have, want kube.SlicePool) bool {
	return have.Version == "" || have.Range != want.Range || have.Size != want.Size || have.Network != want.Network ||
		have.Space == nil != (want.Space == nil) || have.Space != nil && *have.Space != *want.Space ||
		!slices.Equal(have.Allocations, want.Allocations) || !reflect.DeepEqual(have.Summary, want.Summary)
}
