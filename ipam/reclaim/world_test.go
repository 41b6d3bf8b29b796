package reclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
)

var (
	narrow = ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}
	wide   = ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/16")}
)

// world is a store in a file, a cluster and a Reclaimer.
type world struct {
	*testing.T
	path   string
	store  ipam.Store
	known  *fakeCluster // by default the same as live
	live   *fakeCluster
	nets   *fakeNetworks
	events *fakeEvents
	now    time.Time
	*Reclaimer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T: t, path: filepath.Join(t.TempDir(), "whereabouts.db"), live: &fakeCluster{pods: map[string]*Pod{}, nodes: map[string]*Node{}},
		nets: &fakeNetworks{on: true, known: true, named: true}, events: &fakeEvents{}, now: noon,
	}
	w.known = w.live
	w.store = w.open()
	w.Reclaimer = w.another(w.store)
	return w
}

func (w *world) open() ipam.Store {
	w.Helper()
	s, err := local.Open(w.path)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// another is a second Reclaimer of the same world.
func (w *world) another(s ipam.Store) *Reclaimer {
	return &Reclaimer{
		Store: s, Known: w.known, Live: w.live, Networks: w.nets, Events: w.events, Grace: testGrace,
		Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	}
}

func (w *world) snapshot() *ipam.Snapshot {
	w.Helper()
	s, err := w.store.Snapshot(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// pass runs a pass on what is stored now, a while after the last one.
func (w *world) pass(after time.Duration) Report {
	w.Helper()
	w.now = w.now.Add(after)
	return w.Pass(w.Context(), w.snapshot())
}

// found wants a report of these numbers, in the order of what is most looked for.
func (w *world) found(r Report, want Report) {
	w.Helper()
	if r.Freed != want.Freed || r.Completed != want.Completed || r.Removed != want.Removed || r.Waiting != want.Waiting ||
		r.Changed != want.Changed || r.Failed != want.Failed || !r.Due.Equal(want.Due) {
		w.Errorf("got %+v, want %+v", r, want)
	}
}

func (w *world) must(changes ...ipam.Change) {
	w.Helper()
	if err := errors.Join(w.store.Commit(context.Background(), changes)...); err != nil {
		w.Fatal(err)
	}
}

func take(id ipam.PoolID, a netip.Addr, r ipam.Record) ipam.Change {
	return ipam.Change{Pool: id, Address: a, After: &r, Overlap: true}
}

func unprotected(c ipam.Change) ipam.Change {
	c.Overlap = false
	return c
}

// held wants an address to be held by this record, and reserved for it.
func (w *world) held(id ipam.PoolID, a netip.Addr, want ipam.Record) {
	w.Helper()
	pool, err := w.store.Read(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	if got, ok := pool.Records[a]; !ok || !got.Same(want) || got.PodRef != want.PodRef {
		w.Errorf("%s in %s is held by %+v, want %+v", a, id, got, want)
	}
}

func (w *world) free(id ipam.PoolID, a netip.Addr) {
	w.Helper()
	pool, err := w.store.Read(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	if got, ok := pool.Records[a]; ok {
		w.Errorf("%s in %s is held by %s, want it free", a, id, got.Holder())
	}
}

func (w *world) reservation(a netip.Addr) *ipam.Reservation {
	w.Helper()
	r, err := w.store.Reservation(context.Background(), "", a)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) reserved(a netip.Addr, owner string) {
	w.Helper()
	if r := w.reservation(a); r == nil || r.PodRef != owner {
		w.Errorf("%s is reserved for %+v, want %s", a, r, owner)
	}
}

func (w *world) unreserved(a netip.Addr) {
	w.Helper()
	if r := w.reservation(a); r != nil {
		w.Errorf("%s is reserved for %s, want no reservation", a, r.Holder())
	}
}

// sound is the last line of tests: nothing that is stored contradicts itself.
func (w *world) sound() {
	w.Helper()
	always := func(ipam.PoolID, ipam.Record) bool { return true }
	for _, f := range ipam.Check(w.snapshot(), ipam.CheckOptions{NeedsReservation: always}) {
		w.Errorf("%s: %s", f.Kind, f.Text)
	}
}

// write puts a value into the file past the store, as a crash or an old version
// leaves it; the store has to have been written before.
func (w *world) write(value any, path ...string) {
	w.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		w.Fatal(err)
	}
	db, err := bbolt.Open(w.path, 0o600, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		w.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		last := len(path) - 1
		b, err := tx.CreateBucketIfNotExists([]byte(path[0]))
		for _, key := range path[1:last] {
			if err == nil {
				b, err = b.CreateBucketIfNotExists([]byte(key))
			}
		}
		if err != nil {
			return err
		}
		return b.Put([]byte(path[last]), data)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		w.Fatal(err)
	}
}

// reserve writes a reservation without an entry.
func (w *world) reserve(a netip.Addr, r ipam.Record, cidr string) {
	w.Helper()
	w.write(map[string]any{
		"id": r.ContainerID, "ifname": r.IfName, "podref": r.PodRef, "uid": r.UID, "since": r.Since, "range": cidr,
	}, "networks", "network_name=", "reservations", a.String())
}

// exist makes the file, without anything of interest in it.
func (w *world) exist() {
	w.Helper()
	at := netip.MustParseAddr("10.0.0.200")
	r := ipam.Record{ContainerID: ipam.ReservedID("nothing")}
	w.must(take(narrow, at, r))
}

// fakeCluster answers from maps.
type fakeCluster struct {
	mu    sync.Mutex
	pods  map[string]*Pod
	nodes map[string]*Node
	err   map[string]error // by pod
	asked int
}

func (c *fakeCluster) Pod(_ context.Context, namespace, name string) (*Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	ref := namespace + "/" + name
	return c.pods[ref], c.err[ref]
}

func (c *fakeCluster) Node(_ context.Context, name string) (*Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name], c.err[name]
}

// with answers like the cluster, but for one pod, which may be nil.
func (c *fakeCluster) with(ref string, p *Pod) *fakeCluster {
	other := &fakeCluster{pods: map[string]*Pod{}, nodes: c.nodes}
	for ref, p := range c.pods {
		other.pods[ref] = p
	}
	if other.pods[ref] = p; p == nil {
		delete(other.pods, ref)
	}
	return other
}

func (c *fakeCluster) add(p *Pod) { c.pods[p.Namespace+"/"+p.Name] = p }

type fakeNetworks struct{ on, known, named bool }

func (n *fakeNetworks) Protection(ipam.PoolID) (on, known bool) { return n.on, n.known }
func (n *fakeNetworks) Named(ipam.PoolID) bool                  { return n.named }

type fakeEvents struct {
	mu  sync.Mutex
	all []Event
}

func (e *fakeEvents) Event(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// told wants these reasons of events, in order.
func (w *world) told(reasons ...string) {
	w.Helper()
	got := make([]string, 0, len(w.events.all))
	for _, e := range w.events.all {
		got = append(got, e.Reason)
	}
	if fmt.Sprint(got) != fmt.Sprint(reasons) {
		w.Errorf("events %v were recorded, want %v", got, reasons)
	}
}

// meddler is a store in which something happens just before a commit, and of which
// some addresses cannot be written.
type meddler struct {
	ipam.Store
	before  func()
	fails   map[netip.Addr]error
	commits int
	largest int
}

// meddle makes a change now, or late: just before the Reclaimer's own first commit.
func (w *world) meddle(late bool, change ipam.Change) *meddler {
	w.Helper()
	store := &meddler{Store: w.store, before: func() { w.must(change) }}
	if !late {
		store.before()
		store.before = nil
	}
	w.Store = store
	return store
}

func (m *meddler) Commit(ctx context.Context, changes []ipam.Change) []error {
	m.commits++
	m.largest = max(m.largest, len(changes))
	if m.before != nil {
		m.before()
		m.before = nil
	}
	var sound []ipam.Change
	errs := make([]error, len(changes))
	var at []int
	for i, c := range changes {
		if errs[i] = m.fails[c.Address]; errs[i] == nil {
			sound, at = append(sound, c), append(at, i)
		}
	}
	for i, err := range m.Store.Commit(ctx, sound) {
		errs[at[i]] = err
	}
	return errs
}
