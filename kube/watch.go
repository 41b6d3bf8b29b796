package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// Watcher knows a cluster by watches: its pods, nodes, definitions and reservations,
// and which pools there are. What it knows lags behind a little, and while the API
// server cannot be reached, much; whoever frees something asks Live about it first.
type Watcher struct {
	client  *Client
	cluster *cluster
	changed chan struct{}

	heads        *mirror[poolHead, *poolHead, string] // versions of the pools
	reservations *mirror[reservation, *reservation, *ipam.Reservation]
	collections  recordCollections

	followers []func(context.Context)
	pods      *health
	nodes     *health
	defined   *health
	reserved  *health
	pooled    *health

	mu       sync.Mutex // held while pools are read
	contents map[objectKey]*poolContent
	now      func() time.Time
}

var (
	_ reclaim.Cluster  = (*Watcher)(nil)
	_ reclaim.Networks = (*Watcher)(nil)
)

// NewWatcher makes no request. flat is the content of the nodes' flat file, "{}" if
// there is none; nil when it is not known, and then definitions say only what they
// write out themselves.
func NewWatcher(client *Client, flat []byte) *Watcher {
	w := &Watcher{
		client: client, changed: make(chan struct{}, 1), contents: map[objectKey]*poolContent{}, now: time.Now,
		collections: newRecords(client, "").from,
	}
	w.cluster = newCluster(flat, w.signal)
	w.heads = newMirror(func(o *poolHead) (string, bool) { return o.Metadata.ResourceVersion, true }, nil)
	w.reservations = newMirror(keepReservation(interner{}), func(before, after **ipam.Reservation) {
		if after == nil && !keptTurn(*before) {
			w.signal()
		}
	})
	heads := w.collections.pools
	heads.slim, heads.page = true, 0
	w.reserved = addFollower(w, w.collections.reservations, w.reservations)
	w.pooled = addFollower(w, heads, w.heads)
	w.pods = addFollower(w, podCollection, w.cluster.pods)
	w.nodes = addFollower(w, nodeCollection, w.cluster.nodes)
	w.defined = addFollower(w, definitionCollection, w.cluster.definitions)
	return w
}

func addFollower[T any, P wire[T]](w *Watcher, from collection, into sink[P]) *health {
	f := &follower[T, P]{client: w.client, from: from, into: into, health: newHealth(from.name)}
	w.followers = append(w.followers, f.run)
	return f.health
}

// Run watches until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, follow := range w.followers {
		wg.Go(func() { follow(ctx) })
	}
	wg.Wait()
}

func (w *Watcher) all() []*health {
	return []*health{w.reserved, w.pooled, w.pods, w.nodes, w.defined}
}

// Synced waits until everything has been read once. If the context ends before, the
// error says what was in the way and wraps ipam.ErrUnavailable or ipam.ErrDenied.
func (w *Watcher) Synced(ctx context.Context) error {
	for _, h := range w.all() {
		select {
		case <-h.ready:
		case <-ctx.Done():
			if err := h.synced(); err != nil {
				return fmt.Errorf("%w: %w", ctx.Err(), err)
			}
		}
	}
	return nil
}

// Ready answers nil if everything has been read and no watch has been down for more
// than a minute. Errors are those of Synced.
func (w *Watcher) Ready() error {
	for _, h := range w.all() {
		if err := h.fresh(); err != nil {
			return err
		}
	}
	return nil
}

// Changed receives when something has happened that may make clean-up necessary: a
// pod ended or went, a node went or is in trouble, a reservation went, a definition
// changed. Many of them in a row are one. What was so from the start is not told.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

func (w *Watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // there is one to be received
	}
}

// Pod returns nil if there is no such pod as far as is known. The answer is shared: it
// must not be changed. Before the pods have been read once it answers an error.
func (w *Watcher) Pod(_ context.Context, namespace, name string) (*reclaim.Pod, error) {
	if err := w.pods.synced(); err != nil {
		return nil, err
	}
	return w.cluster.pod(namespace, name), nil
}

// Node returns nil if there is no such node as far as is known. Before the nodes have
// been read once it answers an error.
func (w *Watcher) Node(_ context.Context, name string) (*reclaim.Node, error) {
	if err := w.nodes.synced(); err != nil {
		return nil, err
	}
	return w.cluster.node(name), nil
}

// Protection reports whether overlap protection is on for a pool.
func (w *Watcher) Protection(id ipam.PoolID) (on, known bool) {
	if w.defined.synced() != nil {
		return false, false
	}
	return w.cluster.nets().Protection(id)
}

// Named reports whether a definition names a pool, or may.
func (w *Watcher) Named(id ipam.PoolID) bool {
	return w.defined.synced() != nil || w.cluster.nets().Named(id)
}

// rereadAfter is how long the content of a pool counts as new. A busy pool is
// written many times a second.
const rereadAfter = 2 * time.Second

// Snapshots are the records by the namespace of their objects; they must not be
// changed. Reservations are as the watch shows them; of pools only those that have
// changed are read, each at most once in two seconds.
//
// Records should be read before the pods they are compared with, so that every living
// holder is found. Here the pods may be older than the records, by as much as their
// watch lags: a holder may be missing. That is why nothing may be freed by what a
// Watcher says alone: Live, asked after the record was read, settles it.
//
// A namespace with a pool that could not be read is left out, since its reservations
// would look as if they belonged to nobody; the others are there beside the error.
func (w *Watcher) Snapshots(ctx context.Context) (map[string]*ipam.Snapshot, error) {
	return w.snapshots(ctx, rereadAfter)
}

// Fresh is Snapshots with every pool read again that is known to have changed, however
// lately it was read.
func (w *Watcher) Fresh(ctx context.Context) (map[string]*ipam.Snapshot, error) {
	return w.snapshots(ctx, 0)
}

func (w *Watcher) snapshots(ctx context.Context, age time.Duration) (map[string]*ipam.Snapshot, error) {
	if err := errors.Join(w.pooled.synced(), w.reserved.synced(), w.defined.synced()); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	failed, err := w.reread(ctx, age)
	byNamespace := map[string][]*storedPool{}
	for key, content := range w.contents {
		byNamespace[key.namespace] = append(byNamespace[key.namespace], content.stored)
	}
	w.reservations.each(func(key objectKey, _ *ipam.Reservation) {
		if _, ok := byNamespace[key.namespace]; !ok {
			byNamespace[key.namespace] = nil
		}
	})
	all := map[string]*ipam.Snapshot{}
	nets := w.cluster.nets()
	for namespace, pools := range byNamespace {
		if !failed[namespace] {
			all[namespace] = assemble(namespace, pools, w.reservations, nets)
		}
	}
	return all, err
}
