package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

// wornStore is the local store with something done to its writes.
type wornStore struct {
	*local.Store
	commit func(ctx context.Context, changes []ipam.Change, commit func() []error) []error
}

func (s *wornStore) Commit(ctx context.Context, changes []ipam.Change) []error {
	commit := func() []error { return s.Store.Commit(ctx, changes) }
	if s.commit == nil {
		return commit()
	}
	return s.commit(ctx, changes, commit)
}

func allFail(changes []ipam.Change, err error) []error {
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// team is a process that works for others, without those others.
type team struct {
	*host
	store   *wornStore
	answers map[string]answer // by container
	gone    map[string]bool   // containers whose processes do not hear the answer
}

func newTeam(t *testing.T) *team {
	t.Helper()
	h := newHost(t, oneRange)
	s, err := local.Open(h.path)
	if err != nil {
		t.Fatal(err)
	}
	return &team{host: h, store: &wornStore{Store: s}, answers: map[string]answer{}, gone: map[string]bool{}}
}

func (m *team) getenv(name string) string {
	return map[string]string{"NODENAME": "node", "WHEREABOUTS_RUN_DIR": m.run, "WHEREABOUTS_STATE_DIR": m.state}[name]
}

func (m *team) task(verb, container string) *task {
	return &task{
		Verb: verb, Stdin: json.RawMessage(m.config), Began: time.Now(),
		Owner: ipam.Owner{ContainerID: container, IfName: "eth0", Node: "node", Network: "net"},
	}
}

// work carries out a task together with others.
func (m *team) work(timeout time.Duration, own *task, others ...*task) answer {
	m.t.Helper()
	v := verbs{Process{Getenv: m.getenv, ReadFile: os.ReadFile, Stderr: io.Discard, Now: time.Now}}
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: own.Stdin, Getenv: v.Getenv, ReadFile: v.ReadFile})
	if err != nil {
		m.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	c := &call{cfg: cfg, owner: own.Owner, log: log, work: log, allocator: &ipam.Allocator{
		Store: m.store, Journal: node.NewJournal(m.state), Now: time.Now, Rand: func(int) int { return 0 }, Log: log,
	}}
	var waiting []node.Request
	for _, t := range others {
		body, err := json.Marshal(t)
		if err != nil {
			m.t.Fatal(err)
		}
		waiting = append(waiting, node.Request{Body: body})
	}
	w := &worker{verbs: v, call: c, deliver: m.deliver}
	return w.work(m.t.Context(), own, waiting, timeout)
}

func (m *team) deliver(r node.Request, data []byte) bool {
	var t task
	if err := json.Unmarshal(r.Body, &t); err != nil {
		t.Owner.ContainerID = string(r.Body)
	}
	if m.gone[t.Owner.ContainerID] {
		return false
	}
	m.answers[t.Owner.ContainerID] = unmarshalAnswer(data)
	return true
}

func (m *team) mustWork(own *task, others ...*task) {
	m.t.Helper()
	if a := m.work(hang, own, others...); a.Error != nil {
		m.t.Errorf("%s %s: %v", own.Verb, own.Owner.ContainerID, a.Error)
	}
}

func TestEveryoneGetsTheAnswerToItsOwnRequest(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.mustWork(m.task("ADD", "d"))
	a := m.work(hang, m.task("ADD", "a"), m.task("ADD", "b"), m.task("DEL", "d"), m.task("ADD", "c"))
	m.answers["a"] = a
	held := m.stored()
	for _, container := range []string{"a", "b", "c"} {
		got := m.answers[container]
		if got.Error != nil || len(got.Assigned) != 1 || held[got.Assigned[0].Address.Addr().String()] != container {
			t.Errorf("%s was told %+v; held: %v", container, got, held)
		}
	}
	if got, told := m.answers["d"]; !told || got.Error != nil || got.Assigned != nil {
		t.Errorf("d was told %+v", got)
	}
	if len(held) != 3 {
		t.Errorf("held: %v", held)
	}
}

func TestRequestThatMakesNoSenseFailsNobodyElse(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	bad := m.task("ADD", "bad")
	bad.Stdin = json.RawMessage(`{"ipam": {"datastore": 7}}`)
	worse := m.task("ADD", "worse")
	worse.Stdin = json.RawMessage(`[]`)
	m.mustWork(m.task("ADD", "a"), bad, worse, m.task("ADD", "b"))
	for container, code := range map[string]uint{"bad": 7, "worse": 7} {
		if got := m.answers[container]; got.Error == nil || got.Error.Code != code {
			t.Errorf("%s was told %+v", container, got)
		}
	}
	m.holds("10.0.0.1", "a", "10.0.0.2", "b")
}

func TestWhatNobodyHearsOfIsUndone(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.mustWork(m.task("ADD", "d"))
	m.gone["b"], m.gone["d"] = true, true
	m.mustWork(m.task("ADD", "a"), m.task("ADD", "b"), m.task("ADD", "c"), m.task("DEL", "d"))
	held := m.stored()
	for _, container := range held {
		if container == "b" || container == "d" {
			t.Errorf("%s still holds an address: %v", container, held)
		}
	}
	if len(held) != 2 {
		t.Errorf("held: %v", held)
	}
}

// What a container has had since an earlier ADD is not undone, and its DEL finds it.
func TestUndoneAddOfAContainerThatHasItsAddress(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.mustWork(m.task("ADD", "c"))
	m.gone["c"] = true
	m.mustWork(m.task("DEL", "nobody"), m.task("ADD", "c"))
	m.holds("10.0.0.1", "c")
	m.mustWork(m.task("DEL", "c"))
	m.holds()
}

// The answer of the store to a second ADD got lost: the ADD fails, and the DEL that
// follows finds what either ADD wrote.
func TestDelAfterASecondAddWhoseOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newTeam(t)
			m.mustWork(m.task("ADD", "c"))
			m.store.commit = func(_ context.Context, changes []ipam.Change, commit func() []error) []error {
				if written {
					commit()
				}
				return allFail(changes, fmt.Errorf("%w: the answer got lost", ipam.ErrUnavailable))
			}
			if a := m.work(hang, m.task("ADD", "c")); a.Error == nil || !a.Unreachable {
				t.Errorf("told %+v", a)
			}
			m.store.commit = nil
			m.mustWork(m.task("DEL", "c"))
			m.holds()
		})
	}
}

// A process dies between noting a second ADD and writing it, or right after it.
func TestDelAfterASecondAddThatWasKilled(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]bool{"after the write": true, "before the write": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newTeam(t)
			m.mustWork(m.task("ADD", "c"))
			m.store.commit = func(_ context.Context, _ []ipam.Change, commit func() []error) []error {
				if written {
					commit()
				}
				panic("killed")
			}
			func() {
				defer func() { _ = recover() }()
				m.work(hang, m.task("ADD", "c"))
				t.Error("not killed")
			}()
			m.store.commit = nil
			m.mustWork(m.task("DEL", "c"))
			m.holds()
		})
	}
}

// Our time is over before the store answers: what others asked for stays in the
// queue, for a process that has time.
func TestTimeOfOneProcessIsNotTheTimeOfOthers(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.store.commit = func(ctx context.Context, changes []ipam.Change, _ func() []error) []error {
		if ctx.Err() == nil && changes[0].After != nil {
			<-ctx.Done()
		}
		return allFail(changes, fmt.Errorf("%w: %w", ipam.ErrUnavailable, context.Cause(ctx)))
	}
	a := m.work(50*time.Millisecond, m.task("ADD", "a"), m.task("ADD", "b"))
	if a.Error == nil || a.Error.Code != 11 || !a.Unreachable {
		t.Errorf("a was told %+v", a)
	}
	if len(m.answers) != 0 {
		t.Errorf("others were told %+v", m.answers)
	}
}

// A DEL must be over in time whatever it does for others meanwhile: to take back
// what their ADDs may have got has to wait, or to be short.
func TestDelIsNotHeldUpByTheAddsOfOthers(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.store.commit = func(ctx context.Context, changes []ipam.Change, _ func() []error) []error {
		<-ctx.Done() // no answer
		return allFail(changes, fmt.Errorf("%w: %w", ipam.ErrUnavailable, context.Cause(ctx)))
	}
	const timeout = 50 * time.Millisecond
	began := time.Now()
	m.work(timeout, m.task("DEL", "a"), m.task("ADD", "b"), m.task("ADD", "c"))
	if took := time.Since(began); took > timeout+4*time.Second {
		t.Errorf("took %v with %v for the work", took.Round(time.Millisecond), timeout)
	}
}

// Releases that fail again and again must not keep others from their turn.
func TestQueuedReleasesThatFailAreInNobodysWay(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	m.mustWork(m.task("ADD", "z"))
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: []byte(m.config), Getenv: m.getenv})
	if err != nil {
		t.Fatal(err)
	}
	queue := node.NewReleases(m.state, storeName(cfg))
	for _, container := range append(containerNames(60), "z") {
		r := ipam.NewRemoval(node.NewJournal(m.state), cfg, ipam.Owner{ContainerID: container, IfName: "eth0"}, nil)
		if container != "z" {
			r.Pools[0].Network = "broken"
			r.Holdings = []ipam.Holding{{Pool: r.Pools[0], Address: r.Pools[0].Range.Addr().Next(), Record: ipam.Record{ContainerID: container}}}
		}
		if err := queue.Put(r, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	m.store.commit = func(_ context.Context, changes []ipam.Change, commit func() []error) []error {
		errs := commit()
		for i, c := range changes {
			if c.Pool.Network == "broken" {
				errs[i] = fmt.Errorf("%w: test", ipam.ErrCorrupt)
			}
		}
		return errs
	}
	for range 40 { // each has a go at some of them
		m.mustWork(m.task("DEL", "nobody"))
	}
	if files := m.glob(m.state, "releases", "z@eth0"); len(files) != 0 {
		t.Errorf("%s waits behind releases that fail", filepath.Base(files[0]))
	}
	m.holds()
}

func containerNames(n int) []string {
	var list []string
	for i := range n {
		list = append(list, containerName(i))
	}
	return list
}
