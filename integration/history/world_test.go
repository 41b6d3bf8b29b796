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
	groupVersion    = "whereabouts.cni.cncf.io/v1alpha1"
	numberOfNodes   = 6
	numberOfWorkers = 24
)

// world is everything a run consists of.
type world struct {
	t         *testing.T
	seed      uint64
	cp        *testenv.ControlPlane
	namespace string
	networks  []*network
	atlas     *atlas
	nodes     []*node

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

func newWorld(t *testing.T, seed uint64) *world {
	cp := testenv.Start(t)
	if err := cp.InstallCRDs(t.Context(), "../../manifests/crds"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w := &world{
		t: t, seed: seed, cp: cp, namespace: cp.Namespace(t), networks: networks(),
		ledger: newLedger(func() time.Duration { return time.Since(began) }),
		stats:  newStats(), register: &register{known: map[*sandbox]bool{}},
	}
	w.atlas = newAtlas(w.networks)
	for i := range numberOfNodes {
		w.nodes = append(w.nodes, w.newNode(t, i))
	}
	w.wire = &wireLog{nodes: w.nodes, atlas: w.atlas, start: began, faults: map[string]int{}}
	w.ledger.wire = w.wire.mentioning
	w.ledger.report = func(what string) { t.Error(what) }
	return w
}

func (w *world) newNode(t *testing.T, i int) *node {
	n := newNode(t, w.cp, w.namespace, i)
	n.faults = &faults{
		rng:  rand.New(rand.NewPCG(w.seed, 1000+uint64(i))),
		late: func(r testenv.Request) { w.late(n, r) },
	}
	n.faults.install(n.proxy)
	return n
}

// late deals with a write that will reach the API server whatever becomes of its
// sender: all processes of the node are killed, as happens when a node loses power.
func (w *world) late(n *node, r testenv.Request) {
	for _, container := range containersIn(string(r.Body)) {
		w.ledger.excuse(container, lateWrite)
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

// newNode is a node of the control plane with a proxy of its own.
func newNode(t *testing.T, cp *testenv.ControlPlane, namespace string, i int) *node {
	n := &node{name: fmt.Sprintf("node-%d", i+1), runDir: t.TempDir(), stateDir: t.TempDir(), running: map[*process]bool{}}
	n.proxy = cp.Proxy(t)
	n.kubeconfig = cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Via: n.proxy})
	return n
}
