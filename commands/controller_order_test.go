package commands

import (
	"net/http"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// lostAndFound takes the slice from node a, whose pool is closing, gives it back to it,
// and has a pod of a take an address.
func (s *orderScene) lostAndFound() {
	s.t.Helper()
	s.give("")
	s.sealed("a")
	s.give("a")
	s.opened("a")
	s.check(s.take("a"))
}

// A mark that was read before the list may be that of an earlier time: the node has
// its slice again, and a pod in it.
func TestPoolsAreReadAfterTheList(t *testing.T) {
	t.Parallel()
	s := newOrderScene(t, "a", "b")
	s.define()
	s.give("a")
	s.closing("a")
	hit := s.between(s.lostAndFound)
	s.pass()
	if hit.Hits() != 1 {
		t.Fatal("nobody came between the two reads")
	}
	if owner := s.owner(); owner != "a" {
		t.Errorf("the slice is %q's, and a pod of a holds an address of it", owner)
	}
}

// The same with watches that are late: they only say that there may be something to do.
func TestWatchesThatAreLateAreNotTrusted(t *testing.T) {
	t.Parallel()
	s := newOrderScene(t, "a", "b")
	s.define()
	s.give("a")
	s.closing("a")
	late := s.now()
	s.lostAndFound()
	s.cluster.picture = func() kube.SlicePicture {
		picture := s.now()
		picture.Heads = late.Heads
		return picture
	}
	s.pass()
	if owner := s.owner(); owner != "a" {
		t.Errorf("the slice is %q's, and a pod of a holds an address of it", owner)
	}
}

// A mark that was read after the list may be that of a later time: the slice is
// another node's, and the pool of the former one must not be opened.
func TestListIsReadAgainBeforeAPoolIsOpened(t *testing.T) {
	t.Parallel()
	s := newOrderScene(t, "a", "b")
	s.define()
	s.give("")
	s.closing("a")
	s.sealed("a")
	s.give("a")
	hit := s.between(func() {
		s.closing("a")
		s.give("b")
		s.sealed("a")
		s.check(s.take("b"))
	})
	s.pass()
	if hit.Hits() != 1 {
		t.Fatal("nobody came between the two reads")
	}
	if state := s.pool("a").State; state != slice.Closed {
		t.Errorf("the pool of a is in state %d, and the slice is b's", state)
	}
	if err := s.take("a"); err == nil {
		t.Error("a late plugin on a took an address that b holds")
	}
}

// A list goes when nobody can write by it any more: a plugin that has read it may still
// be on its way.
func TestListIsDeletedOnceItsPoolsAreClosed(t *testing.T) {
	t.Parallel()
	s := newOrderScene(t, "a")
	s.give("a")
	deleting := testenv.Match{Method: http.MethodDelete, Path: "/nodeslicepools/"}
	hit := s.proxy.Inject(testenv.Rule{Match: deleting, Action: testenv.Before(func(testenv.Request) {
		if state := s.pool("a").State; state != slice.Closing && state != slice.Closed {
			t.Errorf("the list is deleted while the pool of a is in state %d", state)
		}
	})})
	for range 10 { // a few are needed
		s.pass()
	}
	if hit.Hits() == 0 || s.owner() != "no list" {
		t.Fatalf("the list was not deleted: the slice is %q's", s.owner())
	}
	if err := s.take("a"); err == nil {
		t.Error("a late plugin on a took an address by a list that is gone")
	}
}
