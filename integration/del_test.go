package integration

import "testing"

func TestDelFreesAllRangesOfItsInterfaceOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.5.0.0/24", "ipRanges": []Object{{"range": "fd00:5::/64"}, {"range": "10.6.0.0/24"}}})
	n.add(t, pod("a"), config).gets(t, "10.5.0.1/24", "fd00:5::1/64", "10.6.0.1/24")
	n.add(t, pod("a").on("net2"), config).gets(t, "10.5.0.2/24", "fd00:5::2/64", "10.6.0.2/24")
	n.del(t, pod("a"), config).ok(t)
	c.holds(t, map[string]string{"10.5.0.0-24/2": "a-c1", "fd00-5---64/2": "a-c1", "10.6.0.0-24/2": "a-c1"})
	n.del(t, pod("a").on("net2"), config).ok(t)
	c.empty(t)
	n.del(t, pod("a").on("net2"), config).ok(t) // again
	if pools := len(c.pools()); pools != 3 {
		t.Errorf("%d pools are left, want the 3 that were there", pools)
	}
}

func TestDelOfNobodyCreatesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	n.del(t, pod("a"), c.ranged("10.5.0.0/24")).ok(t)
	if found := c.proxy.Find(writes()); len(found) > 0 {
		t.Errorf("DEL of an unknown container wrote something: %v", found)
	}
	if pools := c.pools(); len(pools) > 0 {
		t.Errorf("DEL of an unknown container made pools: %v", pools)
	}
}

func TestDelWithoutANetworkNamespace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]call{
		"empty":      {env: map[string]string{"CNI_NETNS": ""}},
		"not set":    {unset: []string{"CNI_NETNS"}},
		"not there":  {env: map[string]string{"CNI_NETNS": "/nowhere/at/all"}, unset: []string{"CNI_NETNS_OVERRIDE"}},
		"no CNI_ARG": {unset: []string{"CNI_ARGS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.ranged("10.5.0.0/24")
			n.add(t, pod("a"), config).ok(t)
			change.command, change.sandbox, change.config = "DEL", pod("a"), config
			n.run(t, change).ok(t)
			c.empty(t)
		})
	}
}

func TestDelAfterTheRangeWasEditedAway(t *testing.T) {
	t.Parallel()
	for name, edited := range map[string]Object{
		"another range":         {"range": "10.7.0.0/24"},
		"no range":              {"range": ""},
		"broken range":          {"range": "what?"},
		"another address space": {"range": "10.5.0.0/24", "network_name": "other"},
		"without protection":    {"range": "10.5.0.0/24", "enable_overlapping_ranges": false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			n.add(t, pod("a"), c.ranged("10.5.0.0/24")).ok(t)
			n.del(t, pod("a"), withIPAM(c.ranged(""), edited)).ok(t)
			c.empty(t)
		})
	}
}

func TestDelOfAnotherContainerOrInterfaceFreesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.5.0.0/24")
	n.add(t, pod("a"), config).ok(t)
	n.del(t, pod("a").in("a-c0"), config).ok(t)
	n.del(t, pod("a").on("net2"), config).ok(t)
	c.holds(t, map[string]string{"10.5.0.0-24/1": "a-c1"})
	n.forgetful(t).del(t, pod("a"), config).ok(t)
	c.empty(t)
}

// What the node knows of its addresses outlives a reboot, which empties the run
// directory.
func TestDelAfterARebootAndAnEdit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	n.add(t, pod("a"), c.ranged("10.5.0.0/24")).ok(t)
	n.runDir = t.TempDir()
	n.del(t, pod("a"), c.ranged("10.7.0.0/24")).ok(t)
	c.empty(t)
}

// What a node remembers saves requests; it does not decide whose an address is.
func TestDelOnANodeWhoseMemoryIsOutOfDate(t *testing.T) {
	t.Parallel()
	for name, protected := range map[string]bool{"with overlap protection": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.unprotected = !protected
			n := newNode(t, "node-1")
			config := c.config("net-a", Object{"range": "10.5.0.0/24", "enable_overlapping_ranges": protected})
			n.add(t, pod("a"), config).gets(t, "10.5.0.1/24")
			n.forgetful(t).add(t, pod("a"), config).gets(t, "10.5.0.1/24")
			n.del(t, pod("a"), config).ok(t)
			c.empty(t)
		})
	}
}
