package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

// SliceWatcher knows by watches what slices are given out by: nodes, definitions, the
// lists of slices, and the pools of nodes. What it knows lags behind and is good for one
// thing: to tell whether there may be anything to do. What is done is decided by
// SliceReader.
type SliceWatcher struct {
	client  *Client
	changed chan struct{}
	awaited atomic.Pointer[map[string]bool]

	sets      sliceSets
	followers []func(context.Context)
	healths   []*health
}

// sliceSets are the objects by which slices are given out.
type sliceSets struct {
	nodes       *mirror[nodeHead, *nodeHead, time.Time]
	definitions *mirror[sliceDefinition, *sliceDefinition, SliceDefinition]
	lists       *mirror[nodeSlicePool, *nodeSlicePool, *SlicePool]
	heads       *mirror[poolHead, *poolHead, *PoolHead]
}

// SlicePicture is what slices are given out by. It is not to be changed.
type SlicePicture struct {
	Lists       map[string]*SlicePool // by name
	Heads       []*PoolHead
	Nodes       []slice.Node // the oldest first
	Definitions []SliceDefinition
}

// nodeHead is a node without all that changes with its heart-beats.
type nodeHead struct {
	Metadata struct {
		Name    string `json:"name"`
		Version string `json:"resourceVersion"`
		Created string `json:"creationTimestamp"`
	} `json:"metadata"`
}

func (o *nodeHead) ident() identity { return identity{"", o.Metadata.Name, o.Metadata.Version} }

// NewSliceWatcher makes no request. flat is the content of the nodes' flat file; nil if
// there is none. Lists and pools are those of the client's namespace.
func NewSliceWatcher(client *Client, flat []byte) *SliceWatcher {
	w := &SliceWatcher{client: client, changed: make(chan struct{}, 1)}
	w.sets = newSliceSets(flat)
	w.sets.nodes.changed = func(before, after *time.Time) {
		if before == nil || after == nil || !before.Equal(*after) {
			w.signal()
		}
	}
	w.sets.definitions.changed = func(before, after *SliceDefinition) {
		if before == nil || after == nil || before.UID != after.UID || before.Config != after.Config {
			w.signal()
		}
	}
	w.sets.lists.changed = func(_, _ **SlicePool) { w.signal() }
	w.sets.heads.changed = func(before, after **PoolHead) {
		if w.headConcerns(value(before), value(after)) {
			w.signal()
		}
	}
	in := sliceCollections(client)
	followSet(w, in.lists, w.sets.lists)
	followSet(w, in.heads, w.sets.heads)
	followSet(w, in.nodes, w.sets.nodes)
	followSet(w, in.definitions, w.sets.definitions)
	return w
}

func newSliceSets(flat []byte) sliceSets {
	return sliceSets{
		nodes: newMirror(func(o *nodeHead) (time.Time, bool) { return parseTime(o.Metadata.Created), true }, nil),
		definitions: newMirror(func(o *sliceDefinition) (SliceDefinition, bool) {
			return o.read(flat), true
		}, nil),
		lists: newMirror(func(o *nodeSlicePool) (*SlicePool, bool) { return o.slicePool(), true }, nil),
		heads: newMirror(func(o *poolHead) (*PoolHead, bool) {
			head := newPoolHead(o.Metadata)
			return head, len(head.tails) > 0
		}, nil),
	}
}

// sliceSources are where the objects are.
type sliceSources struct{ lists, heads, nodes, definitions collection }

func sliceCollections(client *Client) sliceSources {
	store := &Store{client: client}
	nodes := nodeCollection
	nodes.slim = true
	return sliceSources{
		lists:       collection{name: "slice pools", path: store.path(slicePoolResource, ""), page: poolPageSize},
		heads:       collection{name: "pools", path: store.path(poolResource, ""), slim: true},
		nodes:       nodes,
		definitions: definitionCollection,
	}
}

func followSet[T any, P wire[T], V any](w *SliceWatcher, from collection, into *mirror[T, P, V]) {
	f := &follower[T, P]{client: w.client, from: from, into: into, health: newHealth(from.name)}
	w.followers = append(w.followers, f.run)
	w.healths = append(w.healths, f.health)
}

// headConcerns reports whether a change of a pool may lead to another plan. What a
// node's pool holds matters only while somebody waits for it.
func (w *SliceWatcher) headConcerns(before, after *PoolHead) bool {
	if before == nil || after == nil || before.UID != after.UID || before.State != after.State {
		return true
	}
	awaited := w.awaited.Load()
	return awaited != nil && (*awaited)[after.Name] && before.Version != after.Version
}

// Await names the pools of which every write is told by Changed.
func (w *SliceWatcher) Await(names map[string]bool) { w.awaited.Store(&names) }

// Run watches until the context ends.
func (w *SliceWatcher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, follow := range w.followers {
		wg.Go(func() { follow(ctx) })
	}
	wg.Wait()
}

// Ready answers nil if everything has been read and no watch has been down for more
// than a minute. The error wraps ipam.ErrUnavailable or ipam.ErrDenied.
func (w *SliceWatcher) Ready() error {
	for _, h := range w.healths {
		if err := h.fresh(); err != nil {
			return err
		}
	}
	return nil
}

// Changed receives when something has changed that may lead to another plan. Many
// changes in a row are one; what was so from the start is not told.
func (w *SliceWatcher) Changed() <-chan struct{} { return w.changed }

func (w *SliceWatcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // there is one to be received
	}
}

// Picture is what is known.
func (w *SliceWatcher) Picture() SlicePicture { return w.sets.picture() }

// ReadSlices reads from the API server, again and again until the context ends. Pools,
// nodes and definitions are read after the lists: a slice in a list is then not taken for
// that of a node or network that does not exist because it is too new. Errors wrap
// ipam.ErrUnavailable or ipam.ErrDenied.
func ReadSlices(ctx context.Context, client *Client, flat []byte) (SlicePicture, error) {
	sets, in := newSliceSets(flat), sliceCollections(client)
	if err := listAgain(ctx, client, in.lists, sets.lists); err != nil {
		return SlicePicture{}, err
	}
	var errs [3]error
	parallel(len(errs), func(i int) {
		switch i {
		case 0:
			errs[i] = listAgain(ctx, client, in.heads, sets.heads)
		case 1:
			errs[i] = listAgain(ctx, client, in.nodes, sets.nodes)
		case 2:
			errs[i] = listAgain(ctx, client, in.definitions, sets.definitions)
		}
	})
	if err := errors.Join(errs[:]...); err != nil {
		return SlicePicture{}, fmt.Errorf("read what slices are given out by: %w", err)
	}
	return sets.picture(), nil
}

func (s sliceSets) picture() SlicePicture {
	p := SlicePicture{Lists: map[string]*SlicePool{}}
	s.lists.each(func(_ objectKey, list *SlicePool) { p.Lists[list.Name] = list })
	s.heads.each(func(_ objectKey, head *PoolHead) { p.Heads = append(p.Heads, head) })
	created := map[string]time.Time{}
	s.nodes.each(func(key objectKey, at time.Time) {
		created[key.name] = at
		p.Nodes = append(p.Nodes, slice.Node{Name: key.name, Slices: 1})
	})
	slices.SortFunc(p.Nodes, func(a, b slice.Node) int {
		return cmp.Or(created[a.Name].Compare(created[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	s.definitions.each(func(_ objectKey, d SliceDefinition) { p.Definitions = append(p.Definitions, d) })
	slices.SortFunc(p.Definitions, func(a, b SliceDefinition) int { return cmp.Compare(a.String(), b.String()) })
	return p
}
