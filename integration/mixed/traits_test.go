package mixed

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// scene is an older plugin on one node, and a network of 10.90.0.1 to .6.
type scene struct {
	*world
	old *node
	net network
}

const (
	firstAddress  = "10.90.0.1"
	secondAddress = "10.90.0.2"
)

func newScene(t *testing.T) *scene {
	w := newWorld(t)
	return &scene{world: w, old: w.oldNode(), net: networkOf("net-a", "10.90.0.0/29", firstAddress, "10.90.0.6")}
}

// The simulated older plugin has each trait that is known of it.
func TestTraits(t *testing.T) {
	t.Parallel()
	for name, trait := range map[string]func(*scene){
		"ADD reads pool and reservation, writes the entry, then the reservation": (*scene).order,
		"a reservation of another pod means the next address":                    (*scene).taken,
		"a pool that changed meanwhile is read again":                            (*scene).again,
		"after ten seconds of refused patches it gives up":                       (*scene).givesUp,
		"after a 409 for the reservation ADD fails and the entry stays":          (*scene).staysAfter409,
		"DEL removes the entry and then whoever's reservation":                   (*scene).wrongDel,
		"DEL without an entry does nothing":                                      (*scene).nothingToDel,
		"adoption replaces the id alone":                                         (*scene).adopts,
		"a reservation with its podref is its own":                               (*scene).owns,
		"a patch that fails otherwise passes for a success":                      (*scene).reportsSuccess,
		"one lease at a time":                                                    (*scene).leases,
		"the lease of a dead holder runs out":                                    (*scene).outlives,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trait(newScene(t))
		})
	}
}

// requests are those of the node's plugin, without the lease's: verb and last part of
// the path.
func (s *scene) requests() []string {
	var all []string
	for _, r := range s.old.proxy.Requests() {
		if !strings.Contains(r.Path, "/leases") {
			all = append(all, r.Method+" "+r.Path[strings.LastIndex(r.Path, "/")+1:])
		}
	}
	return all
}

func (s *scene) asked(want ...string) {
	s.Helper()
	if got := s.requests(); !slices.Equal(got, want) {
		s.Errorf("the requests were %q, want %q", got, want)
	}
	s.old.proxy.Reset()
}

// is fails the test unless a record is exactly this.
func (s *scene) is(what string, got, want Object) {
	s.Helper()
	if encode(got) != encode(want) {
		s.Errorf("%s is %s, want %s", what, encode(got), encode(want))
	}
}

func (s *scene) entryIs(address string, want Object) {
	s.Helper()
	s.is("the entry of "+address, s.entry(s.net, address), want)
}

func (s *scene) reservationIs(address string, want Object) {
	s.Helper()
	s.is("the reservation of "+address, s.reservation(s.net, address), want)
}

func bare(podRef string) Object { return Object{"podref": podRef, "ifname": ifName} }

func entryFor(container, podRef string) Object {
	return Object{"id": container, "podref": podRef, "ifname": ifName}
}

func (s *scene) order() {
	s.adds(s.old, pod("a"), s.net, firstAddress)
	s.asked("GET 10.90.0.0-29", "POST ippools", "GET 10.90.0.1", "PATCH 10.90.0.0-29", "POST "+reservations)
	s.entryIs(firstAddress, entryFor("a-c1", "default/a"))
	s.reservationIs(firstAddress, bare("default/a"))
	s.dels(s.old, pod("a"), s.net)
	s.asked("GET 10.90.0.0-29", "PATCH 10.90.0.0-29", "DELETE 10.90.0.1")
	s.empty()
}

func (s *scene) taken() {
	s.seedReservation(s.net, firstAddress, bare("default/other"))
	s.adds(s.old, pod("a"), s.net, secondAddress)
	s.asked("GET 10.90.0.0-29", "POST ippools", "GET 10.90.0.1", "GET 10.90.0.2", "PATCH 10.90.0.0-29", "POST "+reservations)
}

func (s *scene) again() {
	s.seedPool(s.net, "10.90.0.0/29", Object{})
	s.old.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: testenv.Before(func(testenv.Request) {
		s.must().Patch(s.path(pools)+"/"+s.net.pool(), testenv.MergePatch, Object{"metadata": Object{"annotations": Object{"x": "y"}}})
	})})
	s.adds(s.old, pod("a"), s.net, firstAddress)
	patches := s.old.proxy.Find(testenv.Match{Method: http.MethodPatch})
	if len(patches) != 2 || patches[0].Upstream != http.StatusUnprocessableEntity || patches[1].Upstream != http.StatusOK {
		s.Errorf("the patches were %v, want one refused with 422 and one more", patches)
	}
	if body := string(patches[0].Body); !strings.HasPrefix(body, `[{"op":"test","path":"/metadata/resourceVersion"`) {
		s.Errorf("the patch was %s, want one that tests the resource version", body)
	}
}

func (s *scene) givesUp() {
	s.seedPool(s.net, "10.90.0.0/29", Object{})
	s.old.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: testenv.Answer(http.StatusUnprocessableEntity), Times: testenv.Always,
	})
	began := time.Now()
	s.addFails(s.old, pod("a"), s.net)
	if took := time.Since(began); took < oldPatience {
		s.Errorf("it gave up after %s, want %s", took, oldPatience)
	}
	s.empty()
}

func (s *scene) staysAfter409() {
	s.seedPool(s.net, "10.90.0.0/29", Object{})
	s.old.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPost, Path: reservations}, Action: testenv.Before(func(testenv.Request) {
		s.seedReservation(s.net, firstAddress, bare("default/other"))
	})})
	s.addFails(s.old, pod("a"), s.net)
	s.asked("GET 10.90.0.0-29", "GET 10.90.0.1", "PATCH 10.90.0.0-29", "POST "+reservations)
	s.entryIs(firstAddress, entryFor("a-c1", "default/a"))
	s.reservationIs(firstAddress, bare("default/other"))
}

func (s *scene) wrongDel() {
	s.seedPool(s.net, "10.90.0.0/29", Object{"1": entryFor("a-c1", "default/a")})
	s.seedReservation(s.net, firstAddress, bare("default/other"))
	s.dels(s.old, pod("a"), s.net)
	s.empty()

	s.seedReservation(s.net, firstAddress, bare("default/other"))
	s.old.right = true // the switch of the storm
	s.must().Patch(s.path(pools)+"/"+s.net.pool(), testenv.MergePatch, Object{"spec": Object{"allocations": Object{"1": entryFor("a-c1", "default/a")}}})
	s.dels(s.old, pod("a"), s.net)
	s.entryIs(firstAddress, nil)
	s.reservationIs(firstAddress, bare("default/other"))
}

func (s *scene) nothingToDel() {
	s.seedPool(s.net, "10.90.0.0/29", Object{"1": entryFor("a-c1", "default/a")})
	s.seedReservation(s.net, firstAddress, bare("default/a"))
	s.dels(s.old, pod("a").in("a-c2"), s.net)
	s.asked("GET 10.90.0.0-29")
	s.entryIs(firstAddress, entryFor("a-c1", "default/a"))
	s.reservationIs(firstAddress, bare("default/a"))
}

func (s *scene) adopts() {
	written := Object{"id": "a-c1", "podref": "default/a", "ifname": ifName, "gen": "g1"}
	held := Object{"podref": "default/a", "ifname": ifName, "containerid": "a-c1", "node": "elsewhere"}
	s.seedPool(s.net, "10.90.0.0/29", Object{"2": written})
	s.seedReservation(s.net, secondAddress, held)
	s.adds(s.old, pod("a").in("a-c2"), s.net, secondAddress)
	s.asked("GET 10.90.0.0-29", "GET 10.90.0.2", "PATCH 10.90.0.0-29")
	written["id"] = "a-c2"
	s.entryIs(secondAddress, written)
	s.reservationIs(secondAddress, held)
}

func (s *scene) owns() {
	held := Object{"podref": "default/a", "ifname": "other", "containerid": "of-long-ago", "uid": "another"}
	s.seedPool(s.net, "10.90.0.0/29", Object{})
	s.seedReservation(s.net, firstAddress, held)
	s.adds(s.old, pod("a"), s.net, firstAddress)
	s.asked("GET 10.90.0.0-29", "GET 10.90.0.1", "PATCH 10.90.0.0-29")
	s.reservationIs(firstAddress, held)
}

func (s *scene) reportsSuccess() {
	s.seedPool(s.net, "10.90.0.0/29", Object{})
	for _, fault := range []testenv.Action{testenv.Answer(http.StatusInternalServerError), testenv.Answer(http.StatusConflict), testenv.Refuse()} {
		s.old.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: fault})
		s.adds(s.old, pod("a"), s.net, firstAddress)
		s.entryIs(firstAddress, nil)
		s.reservationIs(firstAddress, bare("default/a"))
		s.must().Delete(s.path(reservations) + "/" + firstAddress)
		s.old.proxy.Reset()
	}
	s.adds(s.old, pod("a"), s.net, firstAddress)
	s.old.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: testenv.Answer(http.StatusInternalServerError)})
	s.dels(s.old, pod("a"), s.net)
	s.entryIs(firstAddress, entryFor("a-c1", "default/a"))
	s.reservationIs(firstAddress, nil)
}

// leases lets a second call begin while the first has the lease.
func (s *scene) leases() {
	second := s.oldNode()
	holding, goOn := make(chan struct{}), make(chan struct{})
	s.old.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: testenv.Before(func(testenv.Request) {
		close(holding)
		<-goOn
	})})
	first, err := s.old.start("ADD", pod("a"), s.net)
	if err != nil {
		s.Fatal(err)
	}
	<-holding
	other, err := second.start("ADD", pod("b"), s.net)
	if err != nil {
		s.Fatal(err)
	}
	s.eventually("the second asks for the lease more often than it runs out", func() string {
		if n := second.proxy.Count(testenv.Match{Path: "/leases/"}); n < 2*int(leaseDuration/leasePause) {
			return "not often enough"
		}
		return ""
	})
	if n := second.proxy.Count(testenv.Match{Path: "/ippools"}); n > 0 {
		s.Errorf("the second has made %d requests without the lease", n)
	}
	close(goOn)
	for _, p := range []*process{first, other} {
		if a, err := p.wait(); err != nil || !a.ok() {
			s.Errorf("ADD: %s, %v", a, err)
		}
	}
}

func (s *scene) outlives() {
	s.must().Create(leasePath(s.namespace), Object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": Object{"name": leaseName},
		"spec": Object{"holderIdentity": "dead", "leaseDurationSeconds": 2, "renewTime": time.Now().UTC().Format(microTime)},
	})
	s.adds(s.old, pod("a"), s.net, firstAddress)
}
