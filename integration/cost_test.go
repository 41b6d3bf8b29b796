package integration

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// atMost fails the test if f made more requests to the API server.
func (c *cluster) atMost(t testing.TB, most int, what string, f func()) {
	t.Helper()
	c.proxy.ResetRequests()
	f()
	if n := c.proxy.Count(testenv.Match{}); n > most {
		c.proxy.Log(t)
		t.Errorf("%s made %d requests, want at most %d", what, n, most)
	}
}

func TestRequestsOfOneCall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		protected       bool
		add, del, known int
	}{
		"with overlap protection": {protected: true, add: 3, del: 4, known: 3},
		"without":                 {protected: false, add: 2, del: 4, known: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.unprotected = !test.protected
			n := newNode(t, "node-1")
			config := c.config("net-a", Object{"range": "10.12.0.0/24", "enable_overlapping_ranges": test.protected})
			n.add(t, pod("first"), config).ok(t)
			c.atMost(t, test.add, "ADD", func() { n.add(t, pod("a"), config).gets(t, "10.12.0.2/24") })
			c.atMost(t, test.add, "ADD of the same container", func() { n.add(t, pod("a"), config).gets(t, "10.12.0.2/24") })
			c.atMost(t, test.known, "DEL on the node that knows the record", func() { n.del(t, pod("a"), config).ok(t) })
			n.add(t, pod("a"), config).gets(t, "10.12.0.2/24")
			c.atMost(t, test.del, "DEL on a node that forgot", func() { n.forgetful(t).del(t, pod("a"), config).ok(t) })
			c.atMost(t, test.add, "ADD on another node", func() { newNode(t, "node-2").add(t, pod("b"), config).gets(t, "10.12.0.2/24") })
			n.del(t, pod("first"), config).ok(t)
			n.del(t, pod("b"), config).ok(t)
			c.empty(t)
		})
	}
}

// heldThroughAnotherRange fills the first n addresses of 10.11.0.0/16, those
// ending in .0 left out, and answers the next address.
func heldThroughAnotherRange(c *cluster, n int) netip.Addr {
	c.t.Helper()
	address := netip.MustParseAddr("10.11.0.0")
	allocations, reservations := Object{}, map[string]Object{}
	for offset := 1; ; offset++ {
		address = address.Next()
		if strings.HasSuffix(address.String(), ".0") {
			continue
		}
		if len(allocations) == n {
			break
		}
		id := fmt.Sprint("other-", offset)
		allocations[strconv.Itoa(offset)] = Object{"id": id, "podref": "default/" + id, "ifname": "net1", "gen": "0a0b0c0d"}
		reservations[address.String()] = Object{
			"podref": "default/" + id, "ifname": "net1", "containerid": id, "node": "node-9",
			"network": "net-z", "range": "10.11.0.0/16", "since": longAgo(),
		}
	}
	c.seedPool("10.11.0.0-16", "10.11.0.0/16", allocations)
	c.seedReservations(reservations)
	return address
}

// getsNear is for an ADD that collided: it may look past the lowest address, but
// not far.
func (a answer) getsNear(t testing.TB, lowest netip.Addr) {
	t.Helper()
	got := mustAddr(t, a.ok(t).ips()[0])
	far := lowest
	for range 64 {
		far = far.Next()
	}
	if got.Less(lowest) || far.Less(got) {
		t.Errorf("ADD got %s, want %s or one soon after", got, lowest)
	}
}

// The number of requests does not grow with the number of addresses that two
// ranges share.
func TestManyAddressesHeldThroughAnotherRange(t *testing.T) {
	t.Parallel()
	for _, held := range []int{27, 100, 2000} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			next := heldThroughAnotherRange(c, held)
			config := c.ranged("10.11.0.0/20")
			for _, name := range []string{"a", "b"} {
				c.atMost(t, 12, "ADD of "+name, func() { n.add(t, pod(name), config).getsNear(t, next) })
			}
			n.del(t, pod("a"), config).ok(t)
			n.del(t, pod("b"), config).ok(t)
		})
	}
}

// The only address that nobody has is found wherever it is, every time.
func TestLastAddressLeftByAnotherRange(t *testing.T) {
	t.Parallel()
	for free := 1; free <= 6; free++ {
		t.Run(fmt.Sprint(free), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			heldThroughAnotherRange(c, 30)
			address := fmt.Sprint("10.11.0.", free)
			c.patchPool("10.11.0.0-16", Object{"op": "remove", "path": fmt.Sprint("/spec/allocations/", free)})
			c.cp.Must(t).Delete(c.path("overlappingrangeipreservations") + "/" + address)
			config := c.ranged("10.11.0.0/29")
			for range 3 {
				n.add(t, pod("a"), config).gets(t, address+"/29")
				n.add(t, pod("b"), config).fails(t, 11)
				n.del(t, pod("a"), config).ok(t)
			}
		})
	}
}

func TestExhaustedByAnotherRange(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	heldThroughAnotherRange(c, 30)
	config := c.ranged("10.11.0.0/27")
	c.atMost(t, 12, "ADD", func() {
		mentions(t, n.add(t, pod("a"), config).fails(t, 11), "10.11.0.0/27", "30")
	})
	if entries := len(c.entries()); entries != 30 {
		t.Errorf("%d entries, want the 30 of before", entries)
	}
}
