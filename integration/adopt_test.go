package integration

import (
	"testing"
)

func TestRestartedPodKeepsItsAddressInAFullPool(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.2.0.0/30")
	n.add(t, pod("a"), config).gets(t, "10.2.0.1/30")
	n.add(t, pod("b"), config).gets(t, "10.2.0.2/30")
	gen := c.entry("10.2.0.0-30", "1").String("gen")

	other := newNode(t, "node-2") // the pod may also come back elsewhere
	other.add(t, pod("a").in("a-c2"), config).gets(t, "10.2.0.1/30")
	entry, spec := c.entry("10.2.0.0-30", "1"), c.reservations()["10.2.0.1"]
	if entry.String("id") != "a-c2" || entry.String("gen") == gen || entry.String("gen") == "" {
		t.Errorf("the entry was not rewritten for the new container: %v", entry)
	}
	if spec.String("containerid") != "a-c2" || spec.String("node") != "node-2" {
		t.Errorf("the reservation was not rewritten for the new container: %v", spec)
	}

	n.del(t, pod("a"), config).ok(t) // late
	c.holds(t, map[string]string{"10.2.0.0-30/1": "a-c2", "10.2.0.0-30/2": "b-c1"})
	if len(c.reservations()) != 2 {
		t.Errorf("the late DEL freed a reservation: %v", c.reservations())
	}

	message := n.add(t, pod("a").in("a-c3").withUID("another"), config).fails(t, 11)
	mentions(t, message, "10.2.0.0/30", "2")

	n.del(t, pod("a").in("a-c2"), config).ok(t)
	n.add(t, pod("a").in("a-c3").withUID("another"), config).gets(t, "10.2.0.1/30")
	n.del(t, pod("a").in("a-c3"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)
	c.empty(t)
}

func TestAnotherPodOfTheSameNameWithoutOverlapProtection(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.unprotected = true
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.2.0.0/32", "enable_overlapping_ranges": false})
	n.add(t, pod("a"), config).gets(t, "10.2.0.0/32")
	n.add(t, pod("a").in("a-c2").withUID("another"), config).fails(t, 11)
	n.add(t, pod("a").in("a-c3"), config).gets(t, "10.2.0.0/32")
	n.del(t, pod("a").in("a-c3"), config).ok(t)
	c.empty(t)
}

func TestSameContainerAgainGetsTheSameAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.2.0.0/29", "ipRanges": []Object{{"range": "fd00:2::/64"}}})
	n.add(t, pod("a"), config).gets(t, "10.2.0.1/29", "fd00:2::1/64")
	n.add(t, pod("a"), config).gets(t, "10.2.0.1/29", "fd00:2::1/64")
	n.del(t, pod("a"), config).ok(t)
	n.add(t, pod("a"), config).gets(t, "10.2.0.1/29", "fd00:2::1/64")
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}

// A new container does not continue an address that the configuration does not
// hand out any more; the pod would keep it for ever.
func TestAddressNoLongerHandedOutIsReleasedAtARestart(t *testing.T) {
	t.Parallel()
	for name, changed := range map[string]Object{
		"excluded":          {"exclude": []string{"10.2.0.1/32"}},
		"gateway":           {"gateway": "10.2.0.1"},
		"below range_start": {"range_start": "10.2.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.ranged("10.2.0.0/29")
			n.add(t, pod("a"), config).gets(t, "10.2.0.1/29")
			config = withIPAM(config, changed)
			n.add(t, pod("a"), config).gets(t, "10.2.0.1/29") // the running container keeps it
			n.add(t, pod("a").in("a-c2"), config).gets(t, "10.2.0.2/29")
			c.holds(t, map[string]string{"10.2.0.0-29/2": "a-c2"})
			n.del(t, pod("a").in("a-c2"), config).ok(t)
			c.empty(t)
		})
	}
}

// An older plugin that adopts an entry rewrites its id and nothing else.
func adoptedByAnOlderPlugin(t *testing.T) (*cluster, node, Object) {
	t.Helper()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := with(c.ranged("10.13.0.0/28"), Object{"cniVersion": "1.1.0"})
	n.add(t, pod("a"), config).gets(t, "10.13.0.1/28")
	c.patchPool("10.13.0.0-28", Object{"op": "replace", "path": "/spec/allocations/1/id", "value": "a-old"})
	c.age("10.13.0.1")
	return c, n, config
}

func TestDelOfWhatAnOlderPluginAdopted(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"on the same node", "on another node"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			c, n, config := adoptedByAnOlderPlugin(t)
			if where == "on another node" {
				n = newNode(t, "node-2")
			}
			n.del(t, pod("a").in("a-old"), config).ok(t)
			c.empty(t)
		})
	}
}

func TestLateDelOfWhatAnOlderPluginAdopted(t *testing.T) {
	t.Parallel()
	c, n, config := adoptedByAnOlderPlugin(t)
	n.del(t, pod("a"), config).ok(t)
	c.holds(t, map[string]string{"10.13.0.0-28/1": "a-old"})
	// Whether or not the reservation is gone, the address is not given away.
	c.halves["10.13.0.1"] = true
	n.add(t, pod("b"), config).gets(t, "10.13.0.2/28")
	n.del(t, pod("b"), config).ok(t)
	n.del(t, pod("a").in("a-old"), config).ok(t)
	c.empty(t)
}

func TestAddOfWhatAnOlderPluginAdopted(t *testing.T) {
	t.Parallel()
	c, n, config := adoptedByAnOlderPlugin(t)
	n.add(t, pod("a").in("a-c3"), config).gets(t, "10.13.0.1/28")
	if got := c.reservations()["10.13.0.1"].String("containerid"); got != "a-c3" {
		t.Errorf("the reservation is container %q's, want a-c3's", got)
	}
	n.del(t, pod("a").in("a-old"), config).ok(t)
	c.holds(t, map[string]string{"10.13.0.0-28/1": "a-c3"})
	n.del(t, pod("a").in("a-c3"), config).ok(t)
	c.empty(t)
}

func TestGarbageCollectionKeepsWhatAnOlderPluginAdopted(t *testing.T) {
	t.Parallel()
	c, n, config := adoptedByAnOlderPlugin(t)
	n.gc(t, config, validAttachments, nil).ok(t)
	c.holds(t, map[string]string{"10.13.0.0-28/1": "a-old"})
	if len(c.reservations()) != 1 {
		t.Errorf("the reservation of an unknown container was freed")
	}
	n.del(t, pod("a").in("a-old"), config).ok(t)
	c.empty(t)
}

func TestGarbageCollectionKeepsWhatAnOlderPluginAdoptedWithoutOverlapProtection(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.unprotected = true
	n := newNode(t, "node-1")
	config := with(c.config("net-a", Object{"range": "10.13.0.0/28", "enable_overlapping_ranges": false}), Object{"cniVersion": "1.1.0"})
	n.add(t, pod("a"), config).gets(t, "10.13.0.1/28")
	c.patchPool("10.13.0.0-28",
		Object{"op": "replace", "path": "/spec/allocations/1/id", "value": "a-old"},
		Object{"op": "replace", "path": "/spec/allocations/1/details/since", "value": longAgo()})
	n.gc(t, config, validAttachments, nil).ok(t)
	c.holds(t, map[string]string{"10.13.0.0-28/1": "a-old"})
	n.del(t, pod("a").in("a-old"), config).ok(t)
	c.empty(t)
}
