package integration

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
)

// onOneHost is a network whose records are in a file on one host.
func onOneHost(t testing.TB, ipam Object) Object {
	t.Helper()
	full := with(Object{"type": "whereabouts", "datastore": "local", "local_path": filepath.Join(t.TempDir(), "db")}, ipam)
	return Object{"cniVersion": "1.1.0", "name": "net-a", "type": "bridge", "ipam": full}
}

func TestLocalStore(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	config := onOneHost(t, Object{"range": "10.23.0.0/30", "gateway": "10.23.0.3", "ipRanges": []Object{{"range": "fd00:23::/64"}}})
	n.status(t, config).ok(t)
	result := n.add(t, pod("a"), config).gets(t, "10.23.0.1/30", "fd00:23::1/64").result
	n.add(t, withoutPod("plain"), config).gets(t, "10.23.0.2/30", "fd00:23::2/64")
	n.add(t, pod("late"), config).fails(t, 11)
	n.check(t, pod("a"), config, result).ok(t)
	n.check(t, pod("b"), config, result).failsSomehow(t)

	result = n.add(t, pod("a").in("a-c2"), config).gets(t, "10.23.0.1/30", "fd00:23::1/64").result
	n.del(t, pod("a"), config).ok(t) // late
	n.check(t, pod("a").in("a-c2"), config, result).ok(t)

	// Nothing here is older than a minute.
	for _, key := range []string{withoutAttachments, validAttachments, misspelt} {
		n.gc(t, config, key, nil).ok(t)
	}
	n.check(t, pod("a").in("a-c2"), config, result).ok(t)

	n.del(t, pod("a").in("a-c2"), config).ok(t)
	n.del(t, pod("a").in("a-c2"), config).ok(t)
	n.check(t, pod("a").in("a-c2"), config, result).failsSomehow(t)
	n.add(t, pod("b"), config, "IP=10.23.0.1").gets(t, "10.23.0.1/30", "fd00:23::1/64")
	n.del(t, pod("b"), config).ok(t)
	n.del(t, withoutPod("plain"), withIPAM(config, Object{"range": "10.24.0.0/24"})).ok(t) // edited since
	n.add(t, pod("c"), config).gets(t, "10.23.0.1/30", "fd00:23::1/64")
	n.add(t, pod("d"), config).gets(t, "10.23.0.2/30", "fd00:23::2/64")
}

func TestLocalStoreKeepsAddressSpacesAndOverlappingRangesApart(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	wide := onOneHost(t, Object{"range": "10.23.0.0/16"})
	narrow := withIPAM(wide, Object{"range": "10.23.0.0/24"})
	n.add(t, pod("a"), wide).gets(t, "10.23.0.1/16")
	n.add(t, pod("b"), narrow).getsNear(t, netip.MustParseAddr("10.23.0.2"))
	n.add(t, pod("c"), withIPAM(narrow, Object{"network_name": "other"})).gets(t, "10.23.0.1/24")
	n.add(t, pod("d"), withIPAM(wide, Object{"enable_overlapping_ranges": false})).ok(t)
}

func TestManyAtOnceOnTheLocalStore(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	config := onOneHost(t, Object{"range": "10.23.0.0/24"})
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	distinct(t, atOnce(20, func(i int) answer { return n.add(t, name(i), config) }), sequence("10.23.0.%d/24", 1, 20))
	for _, a := range atOnce(20, func(i int) answer { return n.del(t, name(i), config) }) {
		a.ok(t)
	}
	n.add(t, pod("next"), config).gets(t, "10.23.0.1/24")
}

func TestLocalStoreThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	config := onOneHost(t, Object{"range": "10.23.0.0/24", "local_path": "/dev/null/no/such/place/db"})
	mentions(t, n.add(t, pod("a"), config).failsSomehow(t), "/dev/null/no/such/place")
	n.status(t, config).fails(t, 50)
}
