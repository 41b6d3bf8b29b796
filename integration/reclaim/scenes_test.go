package reclaim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// scene is one situation in a cluster, with a network and a namespace of its own.
type scene struct {
	*world
	about     situation
	net       network
	namespace string // of its pods
	number    int
	node      machine
	more      func() string // what else is wrong at the end
	alone     bool          // what is kept are reservations without entries
}

// situation says what a scene is about. A pool of 14 addresses (16 of IPv6) is the
// scene's; addresses are named by their place in it.
type situation struct {
	name  string
	space bool // a network_name
	v6    bool
	bare  bool // without overlap protection

	set   func(s *scene)
	keeps []int // what is recorded after the run; the rest is free

	// withOld is what is recorded at the end with the definitions of old versions,
	// which prune uid, range and age. It counts if otherwise is set.
	withOld   []int
	otherwise bool
}

func situations() []situation {
	return slices.Concat(endedPods(), lostNodes(), statuses(), identities(), halves(), leftovers(), networks())
}

func (w *world) newScene(number int, about situation) *scene {
	w.Helper()
	s := &scene{world: w, about: about, number: number}
	s.namespace = w.cp.Namespace(w.TB)
	s.node = w.node(fmt.Sprintf("node-%d", number))
	s.net = network{name: fmt.Sprintf("net-%d", number), cidr: fmt.Sprintf("10.100.%d.0/28", number), kubeconfig: w.kubeconfig, unprotected: about.bare}
	if about.v6 {
		s.net.cidr = fmt.Sprintf("fd00:%x::/124", number)
	}
	if about.space {
		s.net.space = fmt.Sprintf("space-%d", number)
	}
	w.define(s.namespace, s.net)
	return s
}

// pod makes a pod on the scene's node.
func (s *scene) pod(name string, annotations ...Object) *pod {
	s.Helper()
	return s.world.pod(s.namespace, name, s.node.name, annotations...)
}

// takes gives a pod an address an hour ago.
func (s *scene) takes(p *pod) netip.Addr {
	s.Helper()
	a := s.mustAdd(s.node, p, s.net)
	s.makeOld(s.net)
	return a
}

// runner is a pod that runs and shows its address.
func (s *scene) runner(name string) (*pod, netip.Addr) {
	s.Helper()
	p := s.pod(name)
	a := s.takes(p)
	return p.runs(a), a
}

// keep has one address recorded at the end, whichever it is.
func (s *scene) keep(a netip.Addr) {
	for nth := range 16 {
		if s.net.host(nth) == a {
			s.about.keeps, s.about.otherwise = []int{nth}, false
		}
	}
}

// check says what is not as it has to be at the end.
func (s *scene) check() string {
	s.Helper()
	want := s.about.keeps
	if s.old && s.about.otherwise {
		want = s.about.withOld
	}
	entries, reserved := s.held(s.world.namespace, s.net)
	wantEntries, wantReserved := want, want
	if s.alone {
		wantEntries = nil
	}
	if s.about.bare {
		wantReserved = nil
	}
	wrong := unequal("entries", entries, wantEntries) + unequal("reservations", reserved, wantReserved)
	if s.more != nil {
		wrong += s.more()
	}
	return wrong
}

// All situations side by side, and one run of clean-up.
func TestOneRun(t *testing.T) {
	t.Parallel()
	runScenes(t, newWorld(t))
}

func TestOneRunWithOldDefinitions(t *testing.T) {
	t.Parallel()
	runScenes(t, newOldWorld(t))
}

func runScenes(t *testing.T, w *world) {
	t.Helper()
	var all []*scene
	for i, about := range situations() {
		s := w.newScene(i, about)
		about.set(s)
		entries, reserved := s.held(w.namespace, s.net)
		if len(entries)+len(reserved) == 0 {
			t.Fatalf("%s: nothing is recorded before the run", about.name)
		}
		all = append(all, s)
	}
	begin := time.Now()
	log := w.onceWell("2s")
	t.Logf("%d situations, one run: %s", len(all), time.Since(begin).Round(time.Millisecond))
	failed := 0
	for _, s := range all {
		t.Run(s.about.name, func(t *testing.T) {
			if wrong := s.check(); wrong != "" {
				failed++
				t.Errorf("%s\nclean-up said\n%s", wrong, about(log, s))
			}
		})
	}
	w.judge(t, failed)
	w.cleanAgain(t)
}

// about picks the lines of a log that name the scene's pool or pods.
func about(log string, s *scene) string {
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, s.net.host(0).String()) || strings.Contains(line, s.namespace+"/") || strings.Contains(line, s.net.host(1).String()) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// judge looks at everything that is stored for contradictions.
func (w *world) judge(t *testing.T, failed int) {
	t.Helper()
	if failed > 0 {
		return // they would be told twice
	}
	for _, text := range w.contradictions(w.namespace, w.unprotected()...) {
		if !strings.HasPrefix(text, "unreadable") && !w.excuses(text) {
			t.Error(text)
		}
	}
}

// excuses is for what cannot be told or mended with old definitions: half records
// without a container, and whose slice a pool is.
func (w *world) excuses(text string) bool {
	return w.old && (strings.HasPrefix(text, "bare-reservation") || strings.Contains(text, "(range "+sliceRange+" of"))
}

// unprotected are the ranges of situations without overlap protection.
func (w *world) unprotected() []string {
	var ranges []string
	for i, about := range situations() {
		if about.bare {
			ranges = append(ranges, fmt.Sprintf("10.100.%d.0/28", i))
		}
	}
	return ranges
}

// cleanAgain runs once more: what was kept is kept, and nothing is written but that
// an empty pool may go whose definition is gone.
func (w *world) cleanAgain(t *testing.T) {
	t.Helper()
	before := w.everything()
	w.onceWell("1s")
	after := w.everything()
	for name := range after {
		before[name] += "" // those that are new, too
	}
	for name, was := range before {
		gone := after[name] == "" && strings.Contains(was, `"allocations":{}`)
		if after[name] != was && !gone {
			t.Errorf("a second run changed %s:\nbefore %s\nafter  %s", name, was, after[name])
		}
	}
}

// everything is the specs of all records by kind and name, in one line each.
func (w *world) everything() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, plural := range []string{pools, reservations} {
		for _, object := range w.must().List(w.path(plural)) {
			all[plural+"/"+object.Name()] = encode(w, object["spec"])
		}
	}
	return all
}
