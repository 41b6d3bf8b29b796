package integration

import (
	"encoding/json"
	"net/netip"
	"testing"
)

// Objects as old plugins left them.

// badEntries cannot be read. They stay as they are.
func badEntries() Object {
	return Object{
		"abc":                     Object{"id": "bad-1", "podref": "default/bad-1"},
		"":                        Object{"id": "bad-2", "podref": "default/bad-2"},
		"-1":                      Object{"id": "bad-3", "podref": "default/bad-3"},
		"1.5":                     Object{"id": "bad-4", "podref": "default/bad-4"},
		"256":                     Object{"id": "bad-5", "podref": "default/bad-5"}, // outside the /24
		"4294967297":              Object{"id": "bad-6", "podref": "default/bad-6"}, // 1 in 32 bits
		"99999999999999999999999": Object{"id": "bad-7", "podref": "default/bad-7", "ifname": "net1"},
	}
}

func TestOldPoolWithUnreadableEntries(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := with(c.ranged("10.6.0.0/24"), Object{"cniVersion": "1.1.0"})
	seeded := badEntries()
	c.seedPool("10.6.0.0-24", "10.6.0.0/24", seeded)

	n.add(t, pod("a"), config).gets(t, "10.6.0.1/24")
	n.add(t, pod("b"), config).gets(t, "10.6.0.2/24")
	n.add(t, pod("a").in("a-c2"), config).gets(t, "10.6.0.1/24")
	n.gc(t, config, validAttachments, nil).ok(t)
	n.del(t, pod("a").in("bad-1"), config).ok(t)
	n.del(t, pod("bad-7").in("bad-7"), config).ok(t)
	n.del(t, pod("a").in("a-c2"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)

	left, err := json.Marshal(c.pools()["10.6.0.0-24"]["allocations"])
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(seeded)
	if string(left) != string(want) {
		t.Errorf("the unreadable entries are now\n%s, were\n%s", left, want)
	}
}

func TestOldEntriesAreHeldAndCanBeReleased(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ entry, reservation Object }{
		"no interface name": {
			Object{"id": "old-c1", "podref": "default/old"}, Object{"podref": "default/old"},
		},
		"no interface name in the reservation": {
			Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}, Object{"podref": "default/old", "containerid": "old-c1"},
		},
		"no container in the reservation": {
			Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}, Object{"podref": "default/old", "ifname": "net1"},
		},
		"no pod": {
			Object{"id": "old-c1", "podref": "", "ifname": "net1"}, Object{"podref": "", "containerid": "old-c1", "ifname": "net1"},
		},
		"podref missing": {
			Object{"id": "old-c1"}, nil,
		},
		"no reservation": {
			Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.halves["10.6.0.1"] = test.reservation == nil
			n := newNode(t, "node-1")
			config := c.ranged("10.6.0.0/24")
			c.seedPool("10.6.0.0-24", "10.6.0.0/24", Object{"1": test.entry})
			if test.reservation != nil {
				c.seedReservation("10.6.0.1", test.reservation)
			}
			n.add(t, pod("new"), config).gets(t, "10.6.0.2/24")
			n.add(t, pod("elsewhere").in("elsewhere-c1"), c.ranged("10.6.2.0/24")).ok(t)
			n.del(t, pod("old").in("old-c0"), config).ok(t) // another container
			if c.entry("10.6.0.0-24", "1").String("id") != "old-c1" {
				t.Fatal("DEL of another container freed the old entry")
			}
			n.del(t, pod("old"), config).ok(t)
			n.del(t, pod("new"), config).ok(t)
			n.del(t, pod("elsewhere"), c.ranged("10.6.2.0/24")).ok(t)
			c.empty(t)
		})
	}
}

func TestOldEntriesAreAdoptedByTheirPod(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ entry, reservation Object }{
		"same interface": {
			Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}, Object{"podref": "default/old", "ifname": "net1"},
		},
		"no interface": {
			Object{"id": "old-c1", "podref": "default/old"}, Object{"podref": "default/old"},
		},
		"no interface in the reservation": {
			Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}, Object{"podref": "default/old", "containerid": "old-c1"},
		},
		"no reservation": {
			Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.ranged("10.6.0.0/24")
			c.seedPool("10.6.0.0-24", "10.6.0.0/24", Object{"5": test.entry})
			if test.reservation != nil {
				c.seedReservation("10.6.0.5", test.reservation)
			}
			n.add(t, pod("old").in("old-c2"), config).gets(t, "10.6.0.5/24")
			n.add(t, pod("old").in("old-c2").on("net2"), config).gets(t, "10.6.0.1/24")
			entry, spec := c.entry("10.6.0.0-24", "5"), c.reservations()["10.6.0.5"]
			if entry.String("id") != "old-c2" || entry.String("ifname") != "net1" {
				t.Errorf("the entry is %v, want that of old-c2, net1", entry)
			}
			if spec.String("containerid") != "old-c2" || spec.String("ifname") != "net1" {
				t.Errorf("the reservation is %v, want that of old-c2, net1", spec)
			}
			n.del(t, pod("old"), config).ok(t) // late
			n.del(t, pod("old").in("old-c2"), config).ok(t)
			n.del(t, pod("old").in("old-c2").on("net2"), config).ok(t)
			c.empty(t)
		})
	}
}

// Which of a container's entries without an interface is that of a DEL, only the
// result of its ADD can tell when there are several.
func TestDelOfOneAmongSeveralEntriesWithoutAnInterface(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.6.0.0/24")
	entry := Object{"id": "old-c1", "podref": "default/old"}
	c.seedPool("10.6.0.0-24", "10.6.0.0/24", Object{"5": entry, "6": entry})
	c.seedReservation("10.6.0.5", Object{"podref": "default/old"})
	c.seedReservation("10.6.0.6", Object{"podref": "default/old"})

	n.del(t, pod("old"), config).ok(t)
	c.holds(t, map[string]string{"10.6.0.0-24/5": "old-c1", "10.6.0.0-24/6": "old-c1"})
	result := Object{"cniVersion": "1.0.0", "ips": []Object{{"address": "10.6.0.6/24"}}}
	n.del(t, pod("old").on("net2"), with(config, Object{"prevResult": result})).ok(t)
	c.holds(t, map[string]string{"10.6.0.0-24/5": "old-c1"})
	n.del(t, pod("old"), config).ok(t) // the only one now
	c.empty(t)
}

func TestOldPoolWrittenWithHostBits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.6.0.0/24")
	c.seedPool("10.6.0.0-24", "10.6.0.10/24", Object{"0": Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}})
	c.seedReservation("10.6.0.10", Object{"podref": "default/old", "ifname": "net1"})

	n.add(t, pod("new"), config).gets(t, "10.6.0.11/24")
	n.add(t, pod("old").in("old-c2"), config).gets(t, "10.6.0.10/24")
	c.holds(t, map[string]string{"10.6.0.0-24/0": "old-c2", "10.6.0.0-24/1": "new-c1"})
	if got := c.pools()["10.6.0.0-24"].String("range"); got != "10.6.0.10/24" {
		t.Errorf("spec.range was rewritten to %q: all keys mean something else now", got)
	}
	n.add(t, pod("below"), config, "IP=10.6.0.5").failsSomehow(t)
	n.del(t, pod("new"), config).ok(t)
	n.del(t, pod("old").in("old-c2"), config).ok(t)
	c.empty(t)
}

func TestOldPoolsOfIPv6(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool, written, start, key, held, reservation string
		next, nextKey                                string
	}{
		"offset above 2^63": {
			"fd00-6---64", "fd00:6::/64", "fd00:6::8000:0:0:1", "9223372036854775809", "fd00:6::8000:0:0:1/64", "fd00-6--8000-0-0-1",
			"fd00:6::8000:0:0:2/64", "9223372036854775810",
		},
		"offset above 2^64": {
			"2001-db8---32", "2001:db8::/32", "2001:db8:0:2::", "36893488147419103232", "2001:db8:0:2::/32", "2001-db8-0-2--0",
			"2001:db8:0:2::1/32", "36893488147419103233",
		},
		"host bits": {
			"fd00-6---64", "fd00:6::10/64", "fd00:6::10", "0", "fd00:6::10/64", "fd00-6--10",
			"fd00:6::11/64", "1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := withIPAM(c.ranged(test.written), Object{"range_start": test.start})
			c.seedPool(test.pool, test.written, Object{test.key: Object{"id": "old-c1", "podref": "default/old", "ifname": "net1"}})
			c.seedReservation(test.reservation, Object{"podref": "default/old", "ifname": "net1"})
			n.add(t, pod("new"), config).gets(t, test.next)
			c.holds(t, map[string]string{test.pool + "/" + test.key: "old-c1", test.pool + "/" + test.nextKey: "new-c1"})
			n.add(t, pod("old").in("old-c2"), config).gets(t, test.held)
			n.del(t, pod("old").in("old-c2"), config).ok(t)
			n.del(t, pod("new"), config).ok(t)
			c.empty(t)
		})
	}
}

// Half a record is reconcile's to judge; until then its address is not free.
func TestReservationWithoutAnEntryKeepsItsAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.halves["10.6.0.1"], c.halves["10.6.0.2"] = true, true
	n := newNode(t, "node-1")
	config := c.ranged("10.6.0.0/24")
	c.seedReservation("10.6.0.1", Object{"podref": "default/old", "ifname": "net1"})
	c.seedReservation("10.6.0.2", Object{"podref": "default/old", "ifname": "net1", "containerid": "old-c1"})
	n.add(t, pod("new"), config).getsNear(t, netip.MustParseAddr("10.6.0.3"))
	n.del(t, pod("new"), config).ok(t)
	if left := len(c.reservations()); left != 2 {
		t.Errorf("%d reservations are left, want the 2 of others", left)
	}
}

// Old definitions prune what only this version knows; everything works all the
// same.
func TestOldDefinitions(t *testing.T) {
	t.Parallel()
	c := newClusterOn(t, oldControlPlane(t))
	n := newNode(t, "node-1")
	config := with(c.ranged("10.6.0.0/30"), Object{"cniVersion": "1.1.0"})
	n.add(t, pod("a"), config).gets(t, "10.6.0.1/30")
	if _, found := c.entry("10.6.0.0-30", "1")["gen"]; found {
		t.Fatal("the definitions are not old: gen was stored")
	}
	n.add(t, pod("b"), config).gets(t, "10.6.0.2/30")
	n.add(t, pod("a").in("a-c2"), config).gets(t, "10.6.0.1/30")
	n.add(t, pod("c"), config).fails(t, 11)
	n.gc(t, config, validAttachments, nil).ok(t)
	n.del(t, pod("a"), config).ok(t) // late
	c.holds(t, map[string]string{"10.6.0.0-30/1": "a-c2", "10.6.0.0-30/2": "b-c1"})
	n.del(t, pod("b"), config).ok(t)
	n.forgetful(t).del(t, pod("a").in("a-c2"), config).ok(t)
	c.empty(t)

	plain := withIPAM(config, Object{"enable_overlapping_ranges": false, "range": "10.6.1.0/24"})
	n.add(t, pod("a"), plain).gets(t, "10.6.1.1/24")
	n.add(t, pod("a").in("a-c2"), plain).gets(t, "10.6.1.1/24")
	n.del(t, pod("a").in("a-c2"), plain).ok(t)
	c.empty(t)
}
