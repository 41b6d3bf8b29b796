package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// sliceWorld is a cluster in memory. Whatever anybody does in it waits for its turn.
type sliceWorld struct {
	t    *testing.T
	rnd  *rand.Rand
	turn *turns

	version     int
	lists       map[string]*kube.SlicePool
	pools       map[string]*fakeNodePool
	nodes       map[string]bool
	definitions map[string]kube.SliceDefinition
	past        []kube.SlicePicture // from the beginning
	problems    []string
	writes      int
}

type fakeNodePool struct {
	kube.NodePool
	entries map[string]bool
}

func newSliceWorld(t *testing.T, seed uint64) *sliceWorld {
	return &sliceWorld{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), turn: &turns{},
		lists: map[string]*kube.SlicePool{}, pools: map[string]*fakeNodePool{},
		nodes: map[string]bool{}, definitions: map[string]kube.SliceDefinition{},
	}
}

// turns lets one of all who wait go on at a time.
type turns struct {
	mutex   sync.Mutex
	waiting []chan struct{}
}

func (t *turns) wait() {
	c := make(chan struct{})
	t.mutex.Lock()
	t.waiting = append(t.waiting, c)
	t.mutex.Unlock()
	<-c
}

// next lets somebody go on, and answers false when nobody waits. All others must be
// blocked.
func (t *turns) next(rnd *rand.Rand) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.waiting) == 0 {
		return false
	}
	i := rnd.IntN(len(t.waiting))
	close(t.waiting[i])
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

func (w *sliceWorld) stamp() string {
	w.version++
	w.writes++
	return strconv.Itoa(w.version)
}

func (w *sliceWorld) define(name, keys string) {
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "ipam": {"type": "whereabouts", %s}}`, name, keys)
	parsed, err := ipam.ParseConfig(ipam.Sources{Stdin: []byte(config), Getenv: func(string) string { return "" }})
	w.definitions[name] = kube.SliceDefinition{
		Definition: slice.Definition{Namespace: "ns", Name: name, Created: time.Unix(1, 0), Configs: []slice.Parsed{{Config: parsed, Err: err}}},
		Config:     config, UID: w.stamp(),
	}
}

// readLists and readRest are the two parts of what a controller reads.
func (w *sliceWorld) readLists(p *kube.SlicePicture) {
	p.Lists = map[string]*kube.SlicePool{}
	for name, list := range w.lists {
		clone := *list
		p.Lists[name] = &clone
	}
}

func (w *sliceWorld) readRest(p *kube.SlicePicture) {
	for _, name := range slices.Sorted(maps.Keys(w.pools)) {
		p.Heads = append(p.Heads, kube.HeadOf(w.pools[name].NodePool))
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		p.Nodes = append(p.Nodes, slice.Node{Name: name, Slices: 1})
	}
	for _, name := range slices.Sorted(maps.Keys(w.definitions)) {
		p.Definitions = append(p.Definitions, w.definitions[name])
	}
}

func (w *sliceWorld) picture() kube.SlicePicture {
	var p kube.SlicePicture
	w.readLists(&p)
	w.readRest(&p)
	return p
}

// judge looks for what must never be: two nodes that hold addresses of one slice, and
// one whose slice is listed for another.
func (w *sliceWorld) judge() {
	holders := map[netip.Prefix]string{}
	for name, pool := range w.pools {
		if len(pool.entries) == 0 {
			continue
		}
		if other := holders[pool.ID.Range]; other != "" {
			w.problems = append(w.problems, fmt.Sprintf("pools %s and %s hold addresses of one slice", name, other))
		}
		holders[pool.ID.Range] = name
		for _, list := range w.lists {
			for _, a := range list.Allocations {
				if a.NodeName != "" && a.SliceRange == pool.ID.Range.String() && a.NodeName != pool.ID.Node {
					w.problems = append(w.problems, fmt.Sprintf("slice %s is listed for %s, but %s holds addresses of it", a.SliceRange, a.NodeName, pool.ID.Node))
				}
			}
		}
	}
}

// controllerView is the world as one controller sees it, until it is killed.
type controllerView struct {
	*sliceWorld
	stale  bool // its watches show the past
	left   int  // how many more requests it lives for
	killed bool
}

var errKilled = errors.New("killed")

// request waits for its turn. The last request of a killed controller may be carried out
// or not; answered says whether its answer arrives.
func (v *controllerView) request(f func() error) error {
	v.turn.wait()
	if v.killed {
		return errKilled
	}
	v.left--
	v.killed = v.left < 0
	if v.killed && v.rnd.IntN(2) == 0 {
		return errKilled
	}
	err := f()
	v.judge()
	if v.killed {
		return errKilled
	}
	return err
}

func (v *controllerView) Picture() kube.SlicePicture {
	v.turn.wait()
	now := v.picture()
	v.past = append(v.past, now)
	if v.stale {
		return v.past[max(0, len(v.past)-1-v.rnd.IntN(5))]
	}
	return now
}

func (v *controllerView) Read(context.Context) (p kube.SlicePicture, err error) {
	if err := v.request(func() error { v.readLists(&p); return nil }); err != nil {
		return p, err
	}
	return p, v.request(func() error { v.readRest(&p); return nil })
}

func (v *controllerView) Changed() <-chan struct{} { return nil }
func (v *controllerView) Await(map[string]bool)    {}
func (v *controllerView) Ready() error             { return nil }

func (v *controllerView) SlicePool(_ context.Context, name string) (p *kube.SlicePool, err error) {
	err = v.request(func() error {
		if list := v.lists[name]; list != nil {
			clone := *list
			p = &clone
		}
		return nil
	})
	return p, err
}

func (v *controllerView) WriteSlicePool(_ context.Context, p kube.SlicePool) (*kube.SlicePool, error) {
	return &p, v.request(func() error {
		if now := v.lists[p.Name]; now == nil != (p.Version == "") || now != nil && now.Version != p.Version {
			return kube.ErrChanged
		}
		p.Version = v.stamp()
		if p.UID == "" {
			p.UID = p.Version
		}
		v.lists[p.Name] = &p
		return nil
	})
}

func (v *controllerView) DeleteSlicePool(_ context.Context, p kube.SlicePool) error {
	return v.request(func() error {
		if now := v.lists[p.Name]; now != nil && now.Version != p.Version {
			return kube.ErrChanged
		}
		v.stamp()
		delete(v.lists, p.Name)
		return nil
	})
}

func (v *controllerView) NodePool(_ context.Context, id ipam.PoolID) (p kube.NodePool, err error) {
	err = v.request(func() error { p = v.read(id); return nil })
	return p, err
}

func (w *sliceWorld) read(id ipam.PoolID) kube.NodePool {
	pool := w.pools[kube.PoolName(id)]
	if pool == nil {
		return kube.NodePool{ID: id, State: slice.Empty}
	}
	p := pool.NodePool
	p.Used = len(pool.entries)
	if p.State == slice.Unknown {
		p.State = slice.Empty
		if p.Used > 0 {
			p.State = slice.InUse
		}
	}
	return p
}

// mark is a compare-and-swap of a pool.
func (v *controllerView) mark(p kube.NodePool, state slice.State, allowed func(now kube.NodePool) bool) error {
	return v.request(func() error {
		now := v.read(p.ID)
		if now.Version != p.Version || now.UID != p.UID || !allowed(now) {
			return kube.ErrChanged
		}
		name := kube.PoolName(p.ID)
		if v.pools[name] == nil {
			v.pools[name] = &fakeNodePool{NodePool: kube.NodePool{ID: p.ID, UID: v.stamp()}, entries: map[string]bool{}}
		}
		v.pools[name].State, v.pools[name].Version = state, v.stamp()
		return nil
	})
}

func (v *controllerView) CloseNodePool(_ context.Context, p kube.NodePool) error {
	return v.mark(p, slice.Closing, func(now kube.NodePool) bool { return now.Used == 0 })
}

func (v *controllerView) SealNodePool(_ context.Context, p kube.NodePool) error {
	return v.mark(p, slice.Closed, func(kube.NodePool) bool { return p.State == slice.Closing })
}

func (v *controllerView) OpenNodePool(_ context.Context, p kube.NodePool) error {
	return v.mark(p, slice.Unknown, func(kube.NodePool) bool { return p.State == slice.Closed })
}

func (v *controllerView) ForgetNodePool(_ context.Context, p kube.NodePool) error {
	return v.request(func() error {
		if now := v.read(p.ID); now.Version != p.Version || now.UID != p.UID || now.Used > 0 {
			return kube.ErrChanged
		}
		v.stamp()
		delete(v.pools, kube.PoolName(p.ID))
		return nil
	})
}

// plug is a plugin that takes an address on a node: it reads the list, and writes later.
func (w *sliceWorld) plug(node, list, pod string) (ipam.PoolID, bool) {
	w.turn.wait()
	stored := w.lists[list]
	if stored == nil {
		return ipam.PoolID{}, false
	}
	for _, a := range stored.Allocations {
		if a.NodeName == node {
			id := ipam.PoolID{Node: node, Range: netip.MustParsePrefix(a.SliceRange)}
			for range w.rnd.IntN(20) * w.rnd.IntN(12) { // it is held
				w.turn.wait()
			}
			w.turn.wait()
			return id, w.takeFrom(id, pod)
		}
	}
	return ipam.PoolID{}, false
}

func (w *sliceWorld) takeFrom(id ipam.PoolID, pod string) bool {
	defer w.judge()
	name := kube.PoolName(id)
	pool := w.pools[name]
	if pool == nil {
		version := w.stamp()
		w.pools[name] = &fakeNodePool{NodePool: kube.NodePool{ID: id, UID: version, Version: version}, entries: map[string]bool{pod: true}}
		return true
	}
	if pool.State != slice.Unknown {
		return false
	}
	pool.entries[pod], pool.Version = true, w.stamp()
	return true
}

func (w *sliceWorld) unplug(id ipam.PoolID, pod string) {
	w.turn.wait()
	pool := w.pools[kube.PoolName(id)]
	delete(pool.entries, pod)
	pool.Version = w.stamp()
}
