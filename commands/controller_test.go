package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

func (w *sliceWorld) controller(stale bool, life int) *sliceController {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return newSliceController(&controllerView{sliceWorld: w, stale: stale, left: life}, nil, newMetrics(), time.Now, quiet)
}

const threeSlices = `"range": "10.0.0.0/24", "node_slice_size": "/26", "exclude": ["10.0.0.192/26"]`

// Controllers that are killed at any request, plugins that are held at any, and nodes
// and definitions that come and go, in random order.
func TestControllersShareTheWorld(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { crowd(t, newSliceWorld(t, seed), seed) })
		if t.Failed() {
			return
		}
	}
}

func crowd(t *testing.T, w *sliceWorld, seed uint64) {
	w.define("net", threeSlices)
	w.nodes = map[string]bool{"a": true, "b": true}
	var over atomic.Bool
	var group sync.WaitGroup
	ctx := t.Context()
	for range 2 {
		group.Go(func() {
			w.turn.wait()
			for !over.Load() {
				c := w.controller(w.rnd.IntN(2) == 0, w.rnd.IntN(120))
				for !over.Load() {
					if err := c.pass(ctx); errors.Is(err, errKilled) {
						break
					}
				}
			}
		})
	}
	names := []string{"a", "b", "c", "d", "e"}
	for _, node := range names {
		group.Go(func() {
			for i := 0; !over.Load(); i++ {
				pod := fmt.Sprint(node, i)
				if id, ok := w.plug(node, "net", pod); ok {
					for range w.rnd.IntN(30) {
						w.turn.wait()
					}
					w.unplug(id, pod)
				}
			}
		})
	}
	group.Go(func() {
		for !over.Load() {
			for range w.rnd.IntN(80) {
				w.turn.wait()
			}
			w.turn.wait()
			name := names[w.rnd.IntN(len(names))]
			if w.nodes[name] {
				delete(w.nodes, name)
			} else {
				w.nodes[name] = true
			}
			if w.rnd.IntN(5) == 0 {
				if _, there := w.definitions["net"]; there {
					delete(w.definitions, "net")
				} else {
					w.define("net", threeSlices)
				}
			}
		}
	})
	for range 4000 {
		synctest.Wait()
		w.turn.next(w.rnd)
	}
	over.Store(true)
	for {
		synctest.Wait()
		if !w.turn.next(w.rnd) {
			break
		}
	}
	group.Wait()
	if len(w.problems) > 0 {
		t.Errorf("seed %d: %s", seed, w.problems[0])
		return
	}
	settle(t, w, seed)
}

// settle lets one controller work in peace: each node gets a slice as long as there are
// any, and then nothing is written any more.
func settle(t *testing.T, w *sliceWorld, seed uint64) {
	w.define("net", threeSlices)
	passes := func(n int) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := w.controller(false, 1<<30)
			for range n {
				if err := c.pass(context.Background()); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		}()
		for synctest.Wait(); w.turn.next(w.rnd); {
			synctest.Wait()
		}
		<-done
	}
	passes(10)
	served := map[string]bool{}
	for _, a := range w.lists["net"].Allocations {
		if a.NodeName != "" {
			served[a.NodeName] = true
			if !w.nodes[a.NodeName] {
				t.Errorf("seed %d: %s is gone, and still has %s", seed, a.NodeName, a.SliceRange)
			}
		}
	}
	if want := min(len(w.nodes), 3); len(served) != want {
		t.Errorf("seed %d: nodes with a slice are %v, want %d of %v: %v", seed, served, want, w.nodes, w.lists["net"].Allocations)
	}
	for name := range served {
		for _, a := range w.lists["net"].Allocations {
			if a.NodeName == name && !w.takeFrom(idOf(name, a.SliceRange), "proof") {
				t.Errorf("seed %d: the slice of %s is closed for it", seed, name)
			}
		}
	}
	before := w.writes
	passes(3)
	if w.writes != before {
		t.Errorf("seed %d: %d writes without need", seed, w.writes-before)
	}
}

func idOf(node, part string) ipam.PoolID {
	prefix, _ := ipam.ParsePrefix(part)
	return ipam.PoolID{Node: node, Range: prefix}
}

// Whatever a definition that cannot be read may be about has to stay.
func TestListsInDoubtStay(t *testing.T) {
	space := ""
	list := &kube.SlicePool{Name: "storage", Network: "storage", Space: &space, Version: "1", Range: "10.0.0.0/24", Size: "/26"}
	for _, test := range []struct {
		says string
		d    kube.SliceDefinition
		flat string
		stay bool
	}{
		{says: "a definition about something else", d: kube.SliceDefinition{Config: `{"name": "other"`, Unclear: true}},
		{says: "one that names it", d: kube.SliceDefinition{Config: `{"name": "Storage"`, Unclear: true}, stay: true},
		{says: "one that is called like it", d: kube.SliceDefinition{Config: ``, Unclear: true, Definition: slice.Definition{Name: "storage"}}, stay: true},
		{says: "one that is named by the flat file", d: kube.SliceDefinition{Config: `{`, Unclear: true}, flat: `{"network_name": "storage"}`, stay: true},
		{says: "one that is clear, without slices", d: kube.SliceDefinition{Config: `{"name": "storage"}`}},
	} {
		picture := kube.SlicePicture{Lists: map[string]*kube.SlicePool{"storage": list}, Definitions: []kube.SliceDefinition{test.d}}
		tasks, _ := sliceTasks(picture, []byte(test.flat))
		gone := slices.ContainsFunc(tasks, func(t *sliceTask) bool { return t.name == "storage" && t.gone() })
		if gone == test.stay {
			t.Errorf("%s: the list is to go is %t", test.says, gone)
		}
	}
}
