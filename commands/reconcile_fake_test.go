package commands

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// fakeCluster is a cluster with records in some namespaces, and what passes over
// them come to. It lives in a synctest bubble, whose time is the test's.
type fakeCluster struct {
	t       *testing.T
	began   time.Time
	changed chan struct{}
	book    *logBook
	metrics *metrics

	mutex   sync.Mutex // of what follows
	ready   error
	listErr error
	partly  bool // listErr concerns only what is not in spaces
	spaces  []string

	// clean is what a pass of a namespace does; nil is nothing.
	clean func(ctx context.Context, namespace string) report

	lists []string // when snapshots were read, since the beginning
	fresh []bool   // whether they had to be
	made  []string // namespaces for which a cleaner was made
}

func newFakeCluster(t *testing.T) *fakeCluster {
	return &fakeCluster{
		t: t, began: time.Now(), changed: make(chan struct{}, 1), spaces: []string{"kube-system"},
		book: &logBook{}, metrics: newMetrics(),
	}
}

func (f *fakeCluster) Snapshots(_ context.Context, fresh bool) (map[string]*ipam.Snapshot, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.lists = append(f.lists, time.Since(f.began).String())
	f.fresh = append(f.fresh, fresh)
	all := map[string]*ipam.Snapshot{}
	for _, namespace := range f.spaces {
		all[namespace] = &ipam.Snapshot{}
	}
	if f.listErr != nil && !f.partly {
		return nil, f.listErr
	}
	return all, f.listErr
}

func (f *fakeCluster) Changed() <-chan struct{} { return f.changed }

func (f *fakeCluster) Ready() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.ready
}

// set changes what the cluster is like while the loop runs.
func (f *fakeCluster) set(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
}

// looks is when snapshots were read.
func (f *fakeCluster) looks() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return slices.Clone(f.lists)
}

// change is something that happens in the cluster.
func (f *fakeCluster) change() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

type fakeCleaner struct {
	*fakeCluster
	namespace string
}

func (c fakeCleaner) Pass(ctx context.Context, _ *ipam.Snapshot) report {
	if c.clean == nil {
		return report{}
	}
	return c.clean(ctx, c.namespace)
}

// never is a schedule that is not due as long as a test runs.
const never = "0 0 1 1 *"

func (f *fakeCluster) reconciler(expression string) *reconciler {
	log := f.book.logger(slog.LevelInfo)
	return &reconciler{
		ranges: noRanges,
		stored: f, now: time.Now, log: log, heart: newHeart(time.Now), figures: newReconcileFigures(f.metrics),
		schedule: newSchedule(scheduleSources{flag: expression}, time.Now, slog.New(slog.DiscardHandler)),
		newClean: func(namespace string) cleaner {
			f.made = append(f.made, namespace)
			return fakeCleaner{f, namespace}
		},
	}
}

// running starts the loop, has the script play, and ends the loop.
func (f *fakeCluster) running(r *reconciler, script func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	synctest.Wait()
	script()
	synctest.Wait()
	cancel()
	<-done
}

func (f *fakeCluster) wantLists(want ...string) {
	f.t.Helper()
	if got := f.looks(); !slices.Equal(got, want) {
		f.t.Errorf("looked at %v, want %v", got, want)
	}
}

func (f *fakeCluster) wantLog(want ...string) {
	f.t.Helper()
	var got []string
	for line := range strings.Lines(f.book.String()) {
		_, message, _ := strings.Cut(line, " msg=")
		if rest, quoted := strings.CutPrefix(message, `"`); quoted {
			message, _, _ = strings.Cut(rest, `"`)
		}
		got = append(got, strings.TrimSpace(message))
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("log %q, want %q", got, want)
	}
}

// inBubble runs a test whose clock begins at midnight and runs when all wait.
func inBubble(t *testing.T, test func(t *testing.T, f *fakeCluster)) {
	synctest.Test(t, func(t *testing.T) { test(t, newFakeCluster(t)) })
}
