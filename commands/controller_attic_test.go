package commands

import (
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

// The object of a closed pool goes when its slice has not been its node's for long
// enough, and not a moment before.
func TestPoolsThatNobodyNeedsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newOrderScene(t, "b")
	s.define()
	now := time.Unix(1_000_000, 0)
	s.give("a") // which does not exist any more
	for range 6 {
		s.pass()
	}
	s.controller.now = func() time.Time { return now }
	s.controller.attic.found = nil
	there := func() bool { return s.pool("a").Version != "" }

	s.pass()
	now = now.Add(forgetAfter - time.Second)
	s.pass()
	if !there() || s.pool("a").State != slice.Closed {
		t.Fatal("the pool of a is not there, closed, before its time")
	}
	s.closing("a") // somebody has written it: the time begins anew
	s.sealed("a")
	now = now.Add(2 * time.Second)
	s.pass()
	if !there() {
		t.Fatal("the pool is removed though it was written meanwhile")
	}
	now = now.Add(forgetAfter)
	s.give("a") // by the time it is read again, the slice is the node's
	late := s.now()
	late.Lists[onlyList].Allocations[0].NodeName = "b"
	if err := s.controller.forget(t.Context(), late); err != nil || !there() {
		t.Fatalf("late watches have a pool removed whose slice is its node's: %v", err)
	}
	s.give("b")
	s.pass()
	now = now.Add(forgetAfter)
	s.pass()
	if there() {
		t.Error("the pool is never removed")
	}
	if owner := s.owner(); owner != "b" {
		t.Errorf("the slice is %q's", owner)
	}
}
