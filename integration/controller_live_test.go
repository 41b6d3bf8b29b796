package integration

import (
	"slices"
	"testing"
)

// The tests of this file change a network, or its nodes, while pods run on it: nobody
// gets an address that somebody holds, and whoever holds one can give it back.

func TestRangeGrowsWhilePodsRun(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b", "node-c")
	small := s.sliced("storage", "10.5.0.0/25", "/26", nil)
	s.define("default", "storage", small)
	s.control()
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b")
	a, c := newNode(t, "node-a"), newNode(t, "node-c")
	a.add(t, pod("p1"), small).gets(t, "10.5.0.1/25")
	c.add(t, pod("p2"), small).fails(t, 11)

	large := withIPAM(small, Object{"range": "10.5.0.0/24"})
	s.redefine("default", "storage", large)
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b", "10.5.0.128/26=node-c", "10.5.0.192/26=")
	a.add(t, pod("p3"), large).gets(t, "10.5.0.2/24")
	c.add(t, pod("p2"), large).gets(t, "10.5.0.128/24")
	for name, n := range map[string]node{"p1": a, "p2": c, "p3": a} {
		n.del(t, pod(name), large).ok(t)
	}
	s.empty(t)
}

func TestRangeMovesWhilePodsRun(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	before := s.sliced("storage", "10.5.0.0/25", "/26", nil)
	s.define("default", "storage", before)
	s.control()
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b")
	a, b := newNode(t, "node-a"), newNode(t, "node-b")
	a.add(t, pod("p1"), before).gets(t, "10.5.0.1/25")

	after := withIPAM(before, Object{"range": "10.6.0.0/25"})
	s.redefine("default", "storage", after)
	// What a pod holds stays listed beside the new slices until it is given back.
	s.settled("storage", "10.5.0.0/26=node-a", "10.6.0.0/26=node-a", "10.6.0.64/26=node-b")
	a.add(t, pod("p2"), after).gets(t, "10.6.0.1/25")
	b.add(t, pod("p3"), after).gets(t, "10.6.0.64/25")
	a.forgetful(t).del(t, pod("p1"), after).ok(t)
	s.settled("storage", "10.6.0.0/26=node-a", "10.6.0.64/26=node-b")
	a.del(t, pod("p2"), after).ok(t)
	b.del(t, pod("p3"), after).ok(t)
	s.empty(t)
}

func TestSizeChangesWhilePodsRun(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	large := s.sliced("storage", "10.5.0.0/24", "/26", nil)
	s.define("default", "storage", large)
	s.control()
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b", "10.5.0.128/26=", "10.5.0.192/26=")
	a, b := newNode(t, "node-a"), newNode(t, "node-b")
	a.add(t, pod("p1"), large).gets(t, "10.5.0.1/24")

	small := withIPAM(large, Object{"node_slice_size": "/27"})
	s.redefine("default", "storage", small)
	// node-a keeps the slice that is in use, and goes on with it.
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/27=node-b", "10.5.0.96/27=",
		"10.5.0.128/27=", "10.5.0.160/27=", "10.5.0.192/27=", "10.5.0.224/27=")
	a.add(t, pod("p2"), small).gets(t, "10.5.0.2/24")
	b.add(t, pod("p3"), small).gets(t, "10.5.0.64/24")
	for name, n := range map[string]node{"p1": a, "p2": a, "p3": b} {
		n.del(t, pod(name), small).ok(t)
	}
	s.eventually("the slice of the old size goes", func() bool { return !slices.Contains(s.slicesOf("storage"), "10.5.0.0/26=node-a") })
	s.empty(t)
}

// Slices are switched on for a network in use, and off again.
func TestSlicesAreSwitchedOnAndOffWhilePodsRun(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a")
	normal := s.cluster.config("storage", Object{"range": "10.5.0.0/24"})
	cut := withIPAM(normal, Object{"node_slice_size": "/26"})
	s.define("default", "storage", normal)
	s.control()
	a := newNode(t, "node-a")
	a.add(t, pod("p1"), normal).gets(t, "10.5.0.1/24")

	s.redefine("default", "storage", cut)
	s.sliceOf("storage", "node-a")
	given := []string{"10.5.0.1"}
	next := a.add(t, pod("p2"), cut)
	next.getsNear(t, mustAddr(t, "10.5.0.2/24"))
	given = append(given, next.ips()...)
	a.add(t, pod("p1").in("p1-c2"), normal).gets(t, "10.5.0.1/24") // it starts anew

	s.redefine("default", "storage", normal)
	last := a.add(t, pod("p3"), normal)
	last.getsNear(t, mustAddr(t, "10.5.0.3/24"))
	given = append(given, last.ips()...)
	slices.Sort(given)
	if n := len(slices.Compact(given)); n != 3 {
		t.Errorf("3 pods hold %d addresses: %v", n, given)
	}
	if got := s.ownersOf("storage"); got["10.5.0.0/26"] != "node-a" {
		t.Errorf("a slice in use is not listed any more: %v", got)
	}
	a.forgetful(t).del(t, pod("p2"), cut).ok(t)
	s.eventually("the list is deleted", func() bool { return s.slicesOf("storage") == nil })
	a.del(t, pod("p1").in("p1-c2"), normal).ok(t)
	a.del(t, pod("p3"), normal).ok(t)
	s.empty(t)
}

// A node that comes back by another name is another node; its pods give back what they
// hold by the old one.
func TestNodeIsRenamedWhilePodsRun(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("old-name")
	network := s.sliced("storage", "10.5.0.0/25", "/26", nil)
	s.define("default", "storage", network)
	s.control()
	s.settled("storage", "10.5.0.0/26=old-name", "10.5.0.64/26=")
	machine := newNode(t, "old-name")
	machine.add(t, pod("p1"), network).gets(t, "10.5.0.1/25")
	result := machine.add(t, pod("p2"), network).gets(t, "10.5.0.2/25").result

	s.removeNode("old-name")
	s.addNodes("new-name")
	s.settled("storage", "10.5.0.0/26=old-name", "10.5.0.64/26=new-name")
	machine.name = "new-name"
	machine.add(t, pod("p3"), network).gets(t, "10.5.0.64/25")
	machine.del(t, pod("p1"), network).ok(t)
	machine.forgetful(t).del(t, pod("p2"), with(network, Object{"prevResult": result})).ok(t)
	s.settled("storage", "10.5.0.0/26=", "10.5.0.64/26=new-name")
	machine.del(t, pod("p3"), network).ok(t)
	s.empty(t)
}
