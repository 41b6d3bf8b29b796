package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// killedAt runs a call that is killed just before its nth request reaches the API
// server. The request is lost with it, unless it was late: on its way already.
func killedAt(t *testing.T, c *cluster, n node, run call, nth int, late bool) {
	t.Helper()
	killedWhere(t, c, n, run, testenv.Rule{Nth: nth}, late)
}

// killedAtPool runs a call that is killed before it writes the pool.
func killedAtPool(t *testing.T, c *cluster, n node, run call) {
	t.Helper()
	write := func(r testenv.Request) bool { return r.Method == http.MethodPatch || r.Method == http.MethodPost }
	killedWhere(t, c, n, run, testenv.Rule{Match: testenv.Match{Path: "/ippools", Func: write}}, false)
}

func killedWhere(t *testing.T, c *cluster, n node, run call, where testenv.Rule, late bool) {
	t.Helper()
	started := make(chan *process, 1)
	kill := func(testenv.Request) { (<-started).kill() }
	action := testenv.Refuse().WithBefore(kill)
	if late {
		action = testenv.Before(kill).Detached()
	}
	where.Action = action
	injected := c.proxy.Inject(where)
	p := n.start(t, run)
	started <- p
	if a := p.wait(); a.exit >= 0 || injected.Hits() != 1 {
		t.Fatalf("the process was not killed at its request\n%s", a)
	}
	c.settle(t)
	c.proxy.Reset()
}

// settle waits until no request is under way.
func (c *cluster) settle(t testing.TB) {
	t.Helper()
	for range 1000 {
		if c.proxy.Count(testenv.Match{Func: func(r testenv.Request) bool { return !r.Done }}) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.proxy.Log(t)
	t.Fatal("requests are under way and do not end")
}

// eachCrash runs a test for each request of a call, lost or late.
func eachCrash(t *testing.T, methods []string, test func(t *testing.T, nth int, late bool)) {
	for i := range methods {
		nth := i + 1
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("at request %d %s late %t", nth, methods[i], late), func(t *testing.T) {
				t.Parallel()
				test(t, nth, late)
			})
		}
	}
}

func crashConfig(c *cluster) Object {
	return c.config("net-a", Object{"range": "10.20.0.0/24", "ipRanges": []Object{{"range": "fd00:20::/64"}}})
}

func TestKilledAdd(t *testing.T) {
	t.Parallel()
	requests := requestsOf(t, func(c *cluster, n node) { n.add(t, pod("a"), crashConfig(c)).ok(t) })
	run := func(t *testing.T, nth int, late bool) (*cluster, node) {
		c := newCluster(t)
		n := newNode(t, "node-1")
		killedAt(t, c, n, call{command: "ADD", sandbox: pod("a"), config: crashConfig(c)}, nth, late)
		return c, n
	}
	t.Run("is healed by the next of the pod", func(t *testing.T) {
		t.Parallel()
		eachCrash(t, requests, func(t *testing.T, nth int, late bool) {
			c, n := run(t, nth, late)
			n.add(t, pod("a").in("a-c2"), crashConfig(c)).gets(t, "10.20.0.1/24", "fd00:20::1/64")
			c.holds(t, map[string]string{"10.20.0.0-24/1": "a-c2", "fd00-20---64/1": "a-c2"})
			n.del(t, pod("a"), crashConfig(c)).ok(t)
			n.del(t, pod("a").in("a-c2"), crashConfig(c)).ok(t)
			c.empty(t)
		})
	})
	t.Run("is undone by its DEL", func(t *testing.T) {
		t.Parallel()
		eachCrash(t, requests, func(t *testing.T, nth int, late bool) {
			c, n := run(t, nth, late)
			n.del(t, pod("a"), crashConfig(c)).ok(t)
			c.empty(t)
		})
	})
	t.Run("hinders nobody", func(t *testing.T) {
		t.Parallel()
		eachCrash(t, requests, func(t *testing.T, nth int, late bool) {
			c, n := run(t, nth, late)
			b := n.add(t, pod("b"), crashConfig(c)).ok(t)
			elsewhere := newNode(t, "node-2")
			d := elsewhere.add(t, pod("d"), crashConfig(c)).ok(t)
			c.tells(t, "b-c1", b)
			c.tells(t, "d-c1", d)
			n.del(t, pod("a"), crashConfig(c)).ok(t)
			n.del(t, pod("b"), crashConfig(c)).ok(t)
			elsewhere.del(t, pod("d"), crashConfig(c)).ok(t)
			c.empty(t)
		})
	})
}

// A killed ADD may be repeated for the same container: those that waited for it are
// carried out by the next. A reservation that it left is finished, though another
// address has become the lowest meanwhile.
func TestKilledAddIsRepeatedForItsContainer(t *testing.T) {
	t.Parallel()
	for _, container := range []string{"a-c1", "a-c2"} {
		t.Run(container, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.config("net-a", Object{"range": "10.20.0.0/24"})
			n.add(t, pod("b"), config).gets(t, "10.20.0.1/24")
			killedAtPool(t, c, n, call{command: "ADD", sandbox: pod("a"), config: config})
			n.del(t, pod("b"), config).ok(t)
			n.add(t, pod("a").in(container), config).gets(t, "10.20.0.2/24")
			c.holds(t, map[string]string{"10.20.0.0-24/2": container})
			if left := c.reservations(); len(left) != 1 {
				t.Errorf("%d reservations, want one: %v", len(left), left)
			}
		})
	}
}

// The next ADD of the pod may come without a DEL, and on another node.
func TestKilledAddIsHealedOnAnotherNode(t *testing.T) {
	t.Parallel()
	requests := requestsOf(t, func(c *cluster, n node) { n.add(t, pod("a"), c.ranged("10.20.0.0/24")).ok(t) })
	eachCrash(t, requests, func(t *testing.T, nth int, late bool) {
		c := newCluster(t)
		config := c.ranged("10.20.0.0/24")
		killedAt(t, c, newNode(t, "node-1"), call{command: "ADD", sandbox: pod("a"), config: config}, nth, late)
		n := newNode(t, "node-2")
		n.add(t, pod("a").in("a-c2"), config).gets(t, "10.20.0.1/24")
		c.holds(t, map[string]string{"10.20.0.0-24/1": "a-c2"})
		n.del(t, pod("a").in("a-c2"), config).ok(t)
		c.empty(t)
	})
}

func TestKilledDelIsRepeated(t *testing.T) {
	t.Parallel()
	requests := requestsOf(t, func(c *cluster, n node) {
		n.add(t, pod("a"), crashConfig(c)).ok(t)
		c.proxy.ResetRequests()
		n.del(t, pod("a"), crashConfig(c)).ok(t)
	})
	eachCrash(t, requests, func(t *testing.T, nth int, late bool) {
		c := newCluster(t)
		n := newNode(t, "node-1")
		n.add(t, pod("a"), crashConfig(c)).ok(t)
		c.proxy.ResetRequests()
		killedAt(t, c, n, call{command: "DEL", sandbox: pod("a"), config: crashConfig(c)}, nth, late)
		n.del(t, pod("a"), crashConfig(c)).ok(t)
		c.empty(t)
	})
}
