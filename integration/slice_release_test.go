package integration

import (
	"fmt"
	"maps"
	"testing"
)

// A DEL does not need the list, and does not fail when it is gone.
func TestDelWithoutTheList(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	n.add(t, pod("a"), config).gets(t, "10.5.0.1/20")
	result := n.add(t, pod("b"), config).gets(t, "10.5.0.2/20").result
	n.add(t, pod("d"), config).gets(t, "10.5.0.3/20")
	c.cp.Must(t).Delete(c.path("nodeslicepools") + "/net-a")
	n.del(t, pod("a"), config).ok(t)
	n = n.forgetful(t)
	n.del(t, pod("b"), with(config, Object{"prevResult": result})).ok(t)
	n.del(t, pod("d"), config).ok(t)
	c.holds(t, map[string]string{"node-1-10.5.0.0-24/3": "d-c1"}) // which is left to reconcile
	c.twoNodes()
	n.del(t, pod("d"), config).ok(t)
	c.empty(t)
}

// A forgetful node looks into all its slices, whatever the addressing says now.
func TestDelInSlicesAfterAnEdit(t *testing.T) {
	t.Parallel()
	for name, edited := range map[string]Object{
		"another range":     {"range": "10.7.0.0/20"},
		"another size":      {"node_slice_size": "/26"},
		"another exclude":   {"exclude": []string{"10.5.0.0/24"}},
		"broken exclude":    {"exclude": []string{"what?"}},
		"another protector": {"enable_overlapping_ranges": false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sliced(t)
			c.twoNodes()
			n := newNode(t, "node-1")
			n.add(t, pod("a"), c.fast(nil)).gets(t, "10.5.0.1/20")
			n.forgetful(t).del(t, pod("a"), c.fast(edited)).ok(t)
			c.empty(t)
		})
	}
}

// A release that cannot reach the API server is queued, and finds its slice later.
func TestQueuedReleaseFindsItsSlice(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	n.add(t, pod("a"), config).gets(t, "10.5.0.1/20")
	n = n.forgetful(t)
	c.proxy.Down()
	n.del(t, pod("a"), config).ok(t)
	if err := c.proxy.Up(); err != nil {
		t.Fatal(err)
	}
	n.add(t, pod("b"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)
	c.empty(t)
}

func TestGarbageCollectionInSlices(t *testing.T) {
	t.Parallel()
	for _, protected := range []bool{true, false} {
		t.Run(fmt.Sprint("protected ", protected), func(t *testing.T) {
			t.Parallel()
			c := sliced(t)
			c.unprotected = !protected
			c.twoNodes()
			config := with(c.fast(Object{"enable_overlapping_ranges": protected}), Object{"cniVersion": "1.1.0"})
			n, m := newNode(t, "node-1"), newNode(t, "node-2")
			n.add(t, pod("kept"), config).ok(t)
			n.add(t, pod("gone"), config).ok(t)
			m.add(t, pod("other"), config).ok(t)
			if protected {
				c.age("10.5.0.1", "10.5.0.2", "10.5.1.1")
			} else {
				for pool, keys := range map[string][]string{"node-1-10.5.0.0-24": {"1", "2"}, "node-2-10.5.1.0-24": {"1"}} {
					for _, key := range keys {
						c.patchPool(pool, Object{"op": "replace", "path": "/spec/allocations/" + key + "/details/since", "value": longAgo()})
					}
				}
			}
			n.gc(t, config, validAttachments, []Object{attachment("kept-c1", "net1")}).ok(t)
			want := map[string]string{"node-1-10.5.0.0-24/1": "kept-c1", "node-2-10.5.1.0-24/1": "other-c1"}
			c.holds(t, want)
			n.del(t, pod("kept"), config).ok(t)
			m.del(t, pod("other"), config).ok(t)
			c.empty(t)
		})
	}
}

func TestCheckInSlices(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	result := n.add(t, pod("a"), config).gets(t, "10.5.0.1/20").result
	for _, n := range []node{n, n.forgetful(t)} {
		n.check(t, pod("a"), config, result).ok(t)
		mentions(t, n.check(t, pod("a").in("a-c2"), config, result).failsSomehow(t), "10.5.0.1", "default/a")
		mentions(t, n.check(t, pod("a").on("net2"), config, result).failsSomehow(t), "10.5.0.1")
	}
	before := maps.Clone(c.entry("node-1-10.5.0.0-24", "1"))
	c.patchPool("node-1-10.5.0.0-24", Object{"op": "remove", "path": "/spec/allocations/1"})
	mentions(t, n.check(t, pod("a"), config, result).failsSomehow(t), "10.5.0.1", "nobody")
	c.patchPool("node-1-10.5.0.0-24", Object{"op": "add", "path": "/spec/allocations/1", "value": before})
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}
