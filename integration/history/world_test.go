package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const (
	numberOfNodes   = 6
	numberOfWorkers = 24
)

// world is everything a run consists of.
type world struct {
	t        *testing.T
	seed     uint64
	store    datastore
	networks []*network
	nodes    []*node

	ledger    *ledger
	wire      *wireLog
	stats     *stats
	register  *register
	survivors survivors

	ended      atomic.Bool    // pods begin no new life
	calm       atomic.Bool    // no process is killed any more
	audited    atomic.Int64   // records that were looked at
	background sync.WaitGroup // what goes on beside the workers
}

// survivors are the sandboxes that live when all others have ended.
type survivors struct {
	mu   sync.Mutex
	list []*sandbox
}

func (w *world) survive(s *sandbox) {
	w.survivors.mu.Lock()
	defer w.survivors.mu.Unlock()
	w.survivors.list = append(w.survivors.list, s)
}

func newWorld(t *testing.T, seed uint64, open func(*testing.T, *atlas) datastore) *world {
	all := networks()
	atlas := newAtlas(all)
	store := open(t, atlas)
	began := time.Now()
	w := &world{
		t: t, seed: seed, store: store, networks: all,
		ledger: newLedger(func() time.Duration { return time.Since(began) }),
		stats:  newStats(), register: &register{known: map[*sandbox]bool{}},
	}
	for i := range numberOfNodes {
		w.nodes = append(w.nodes, w.newNode(t, i))
	}
	w.wire = &wireLog{nodes: w.nodes, store: store, atlas: atlas, start: began, faults: map[string]int{}}
	w.ledger.wire = w.wire.mentioning
	w.ledger.report = func(what string) { t.Error(what) }
	return w
}

func (w *world) newNode(t *testing.T, i int) *node {
	n := newNode(t, w.store, i)
	n.faults = &faults{
		rng:     rand.New(rand.NewPCG(w.seed, 1000+uint64(i))),
		isWrite: w.store.isWrite,
		late:    func(r testenv.Request) { w.late(n, r) },
	}
	for _, p := range n.proxies {
		n.faults.install(p)
	}
	return n
}

// late deals with a write that will reach the datastore whatever becomes of its
// sender: all processes of the node are killed, as happens when a node loses power.
func (w *world) late(n *node, r testenv.Request) {
	_, body := w.store.say(r)
	for _, container := range containersIn(body) {
		if w.store.lateTraces() {
			w.ledger.excuse(container, lateWrite)
		}
	}
	w.stats.happened(lateWrites, 1)
	if !w.calm.Load() {
		n.killAll()
	}
}

func (w *world) over() bool { return w.ended.Load() }

// worker makes one whose choices depend on the seed and its number.
func (w *world) worker(number int) *worker {
	return &worker{world: w, number: number, rng: rand.New(rand.NewPCG(w.seed, uint64(number)))}
}

// later does something in the background after a while.
func (w *worker) later(after time.Duration, f func(*worker)) {
	other := *w
	other.rng = rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64()))
	w.background.Go(func() {
		time.Sleep(after)
		f(&other)
	})
}

// run lets pods come and go until the time is over, and answers when all has come to
// rest.
func (w *world) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	var disturbers, workers sync.WaitGroup
	disturbers.Go(func() { w.disturb(ctx) })
	disturbers.Go(func() { w.partition(ctx) })
	disturbers.Go(func() { w.collect(ctx) })
	var watchers sync.WaitGroup
	watching, stopWatching := context.WithCancel(w.t.Context())
	defer stopWatching()
	watchers.Go(func() { w.watch(watching) })
	watchers.Go(func() { w.tell(watching) })
	for i := range numberOfWorkers {
		workers.Go(func() {
			for worker := w.worker(i); !w.over(); {
				worker.live()
			}
		})
	}
	disturbers.Wait() // leaves all servers up
	w.ended.Store(true)
	w.calm.Store(true)
	for _, n := range w.nodes {
		n.faults.rate.Store(0)
	}
	workers.Wait()
	w.background.Wait()
	stopWatching()
	watchers.Wait()
}

// tell prints a summary now and then, and forgets details that are too old to be of
// use.
func (w *world) tell(ctx context.Context) {
	const every, details = 30 * time.Second, 5 * time.Minute
	for sleep(ctx, every) {
		fmt.Println(w.summary())
		w.ledger.trim(w.ledger.now() - details)
		w.wire.trim(w.ledger.now() - details)
	}
}

// sleep reports whether the context lasted to the end of it.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// newNode is a node with a way of its own to the datastore.
func newNode(t *testing.T, store datastore, i int) *node {
	n := &node{name: fmt.Sprintf("node-%d", i+1), runDir: t.TempDir(), stateDir: t.TempDir(), running: map[*process]bool{}}
	store.reach(t, n)
	return n
}
