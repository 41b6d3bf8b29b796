package mixed

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// way is what happens to records between nodes of both kinds.
type way struct {
	*scene
	our *node
}

// Records go to and fro between the two plugins, as in an upgrade and on the way back:
// each reads, adopts and releases those of the other, and nothing is left.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*way){
		"the older one releases ours":                                        (*way).releasesOurs,
		"the older one adopts and releases ours":                             (*way).adoptsOurs,
		"we release the older one's":                                         (*way).releasesOld,
		"we adopt and release the older one's":                               (*way).adoptsOld,
		"to and fro":                                                         (*way).toAndFro,
		"our late DEL after the older one's adoption":                        (*way).lateDel,
		"our late DEL on a node that forgot, after the older one's adoption": (*way).lateDelOfAForgetfulNode,
		"our queued DEL after the older one's adoption":                      (*way).queuedDel,
		"our late DEL of a half record that the older one took":              (*way).lateDelOfAHalf,
		"each keeps off what the other holds":                                (*way).keepsOff,
		"an entry that a failed ADD of the older one left":                   (*way).leftEntry,
		"a reservation that a patch without success left":                    (*way).leftReservation,
		"the reservation of a released pod of the same name":                 (*way).sameName,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			run(&way{s, s.ourNode()})
		})
	}
}

func (w *way) releasesOurs() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.dels(w.old, pod("a"), w.net)
	w.empty()
}

func (w *way) adoptsOurs() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.empty()
}

func (w *way) releasesOld() {
	w.adds(w.old, pod("a"), w.net, firstAddress)
	w.dels(w.our, pod("a"), w.net)
	w.empty()
}

func (w *way) adoptsOld() {
	w.adds(w.old, pod("a"), w.net, firstAddress)
	w.adds(w.our, pod("a").in("a-c2"), w.net, firstAddress)
	w.dels(w.old, pod("a"), w.net) // late
	w.holds(firstAddress, "a-c2")
	w.dels(w.our, pod("a").in("a-c2"), w.net)
	w.empty()
}

func (w *way) toAndFro() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	w.adds(w.our, pod("a").in("a-c3"), w.net, firstAddress)
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.dels(w.our, pod("a").with(firstAddress), w.net)
	w.holds(firstAddress, "a-c3")
	w.adds(w.old, pod("a").in("a-c4"), w.net, firstAddress)
	w.dels(w.our, pod("a").in("a-c3"), w.net)
	w.holds(firstAddress, "a-c4")
	w.dels(w.our, pod("a").in("a-c4"), w.net)
	w.empty()
}

// holds fails the test unless the address is a container's, with a reservation of its
// pod.
func (w *way) holds(address, container string) {
	w.Helper()
	if id := w.entry(w.net, address).String("id"); id != container {
		w.Errorf("the entry of %s is %q's, want %q's", address, id, container)
	}
	if got := w.reservation(w.net, address).String("podref"); got != "default/a" {
		w.Errorf("the reservation of %s is of %q, want of the pod that holds it", address, got)
	}
}

// lateDel: what the reservation says of a container describes one that is gone.
func (w *way) lateDel() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	w.dels(w.our, pod("a").with(firstAddress), w.net)
	w.holds(firstAddress, "a-c2")
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.empty()
}

func (w *way) lateDelOfAForgetfulNode() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	w.our.runDir, w.our.stateDir = w.TempDir(), w.TempDir()
	w.dels(w.our, pod("a").with(firstAddress), w.net)
	w.holds(firstAddress, "a-c2")
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.empty()
}

func (w *way) queuedDel() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.our.proxy.Down()
	w.dels(w.our, pod("a").with(firstAddress), w.net) // into the queue
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	if err := w.our.proxy.Up(); err != nil {
		w.Fatal(err)
	}
	w.adds(w.our, pod("b"), w.net, secondAddress) // carries out what is queued
	w.dels(w.our, pod("b"), w.net)
	w.holds(firstAddress, "a-c2")
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.empty()
}

// lateDelOfAHalf: our ADD dies between its two writes; the pod comes again under the
// same name on an older node, which takes the reservation for its own.
func (w *way) lateDelOfAHalf() {
	var p *process
	started := make(chan struct{})
	died := make(chan struct{})
	w.our.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: testenv.Before(func(testenv.Request) {
		<-started
		p.kill()
		close(died)
	})})
	w.seedPool(w.net, "10.90.0.0/29", Object{})
	var err error
	if p, err = w.our.start("ADD", pod("a"), w.net); err != nil {
		w.Fatal(err)
	}
	close(started)
	<-died
	if a, _ := p.wait(); !a.killed {
		w.Fatalf("our ADD was to be killed: %s", a)
	}
	w.eventually("the patch of the dead has landed or not", func() string {
		for _, r := range w.our.proxy.Requests() {
			if !r.Done {
				return r.String()
			}
		}
		return ""
	})
	if w.entry(w.net, firstAddress) != nil {
		w.dels(w.old, pod("a"), w.net) // it has landed: make it half a record
		w.seedReservation(w.net, firstAddress, Object{"podref": "default/a", "ifname": ifName, "containerid": "a-c1", "range": "10.90.0.0/29"})
	}
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	w.dels(w.our, pod("a").with(firstAddress), w.net)
	w.holds(firstAddress, "a-c2")
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.empty()
}

func (w *way) keepsOff() {
	other := networkOf("net-b", "10.90.0.0/28", firstAddress, "10.90.0.6")
	given := map[netip.Addr]string{}
	kinds, nets := []*node{w.old, w.our}, []network{w.net, other}
	add := func(name string, i int) {
		a := w.addsAny(kinds[i%2], pod(name), nets[i/2%2])
		if given[a] != "" {
			w.Errorf("%s was given to %s and to %s", a, given[a], name)
		}
		given[a] = name
	}
	names := []string{"a", "b", "c", "d", "e", "f"} // for six addresses
	for i, name := range names {
		add(name, i)
	}
	for i := range 4 {
		w.addFails(kinds[i%2], pod("too-many"), nets[i/2])
	}
	for i, name := range names {
		w.dels(kinds[(i+1)%2], pod(name), nets[i/2%2])
	}
	w.empty()
}

func (w *way) leftEntry() {
	w.staysAfter409()
	w.old.proxy.Reset()
	b := w.addsAny(w.our, pod("b"), w.net)
	a := w.addsAny(w.our, pod("a").in("a-c2"), w.net) // the first is another pod's by its reservation
	if first := netip.MustParseAddr(firstAddress); a == first || b == first || a == b {
		w.Errorf("given out were %s and %s, and %s is held", a, b, first)
	}
	w.dels(w.our, pod("a").with(firstAddress), w.net)
	w.reservationIs(firstAddress, bare("default/other"))
	w.dels(w.our, pod("a").in("a-c2"), w.net)
	w.dels(w.our, pod("b"), w.net)
	w.must().Delete(w.path(reservations) + "/" + firstAddress)
	w.empty()
}

// leftReservation: the older one was told that its patch failed, and told its runtime
// that all is well.
func (w *way) leftReservation() {
	w.seedPool(w.net, "10.90.0.0/29", Object{})
	w.old.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"}, Action: testenv.Answer(http.StatusInternalServerError)})
	w.adds(w.old, pod("a"), w.net, firstAddress)
	w.entryIs(firstAddress, nil)
	if b := w.addsAny(w.our, pod("b"), w.net); b.String() == firstAddress {
		w.Errorf("%s was given out, and it is reserved", b)
	}
	w.dels(w.our, pod("b"), w.net)
	w.our = w.ourNode()                                     // which knows of no collision, and so tries the lowest
	w.adds(w.our, pod("a").in("a-c2"), w.net, firstAddress) // its own
	w.holds(firstAddress, "a-c2")
	w.dels(w.our, pod("a").in("a-c2"), w.net)
	w.empty()
}

// sameName: the older one takes a reservation for its own, whichever pod of that name it
// was made for, and we do not.
func (w *way) sameName() {
	w.adds(w.our, pod("a"), w.net, firstAddress)
	w.must().Patch(w.path(pools)+"/"+w.net.pool(), testenv.JSONPatch, []Object{{"op": "remove", "path": "/spec/allocations/1"}})
	w.adds(w.old, pod("a").in("a-c2"), w.net, firstAddress)
	w.dels(w.our, pod("a").with(firstAddress), w.net) // of the container that the reservation names
	w.holds(firstAddress, "a-c2")
	w.dels(w.old, pod("a").in("a-c2"), w.net)
	w.empty()
}
