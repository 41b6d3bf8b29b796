package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

func later(d time.Duration) testenv.Action {
	return testenv.AnswerStatus(testenv.Status{Code: http.StatusServiceUnavailable, RetryAfter: d})
}

// An ADD fails after its reservation was made, and cannot take it back either.
// The DEL that follows, when the server is well again, has to.
func TestReservationOfAFailedAddIsFreedByItsDel(t *testing.T) {
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	n.add(t, pod("first"), config).ok(t)
	for _, m := range []testenv.Match{{Method: "PATCH", Path: "/ippools/"}, {Method: "DELETE"}} {
		c.proxy.Inject(testenv.Rule{Match: m, Action: later(5 * time.Minute), Times: testenv.Always})
	}
	n.add(t, pod("a"), config).fails(t, 11)
	c.proxy.Reset()
	n.del(t, pod("a"), config).ok(t)
	n.del(t, pod("first"), config).ok(t)
	c.empty(t)
}

// An ADD that is carried out by a DEL's process fails because that one's time is
// shorter.
func TestAddCarriedOutByADelHasItsOwnTime(t *testing.T) {
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	n.add(t, pod("first"), config).ok(t)
	lock := lockQueue(t, n)
	del := n.start(t, call{command: "DEL", sandbox: pod("gone"), config: config})
	waiting(t, n, 1)
	add := n.start(t, call{command: "ADD", sandbox: pod("a"), config: config})
	waiting(t, n, 2)
	c.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: "GET", Path: "/ippools/"}, Action: later(30 * time.Second), Times: 1})
	lock.Close()
	began := time.Now()
	del.wait()
	a := add.wait()
	t.Log("ADD answered after", time.Since(began))
	a.ok(t)
	n.del(t, pod("a"), config).ok(t)
	n.del(t, pod("first"), config).ok(t)
	c.empty(t)
}

// A reservation that somebody annotates while an adoption loses against the DEL of
// the old container.
func TestUndoOfAnAdoptionAfterAnotherWrite(t *testing.T) {
	c := newCluster(t)
	n, elsewhere := newNode(t, "node-1"), newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	elsewhere.add(t, pod("x"), config).gets(t, "10.19.0.1/24")
	n.add(t, pod("a"), config).gets(t, "10.19.0.2/24")
	c.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Method: "PATCH", Path: "/ippools/"},
		Action: testenv.Before(func(testenv.Request) {
			c.cp.Must(t).Patch(c.path("ippools")+"/10.19.0.0-24", testenv.JSONPatch, []Object{{"op": "remove", "path": "/spec/allocations/2"}})
			c.cp.Must(t).Patch(c.path("overlappingrangeipreservations")+"/10.19.0.2", testenv.MergePatch, Object{"metadata": Object{"annotations": Object{"x": "y"}}})
			elsewhere.del(t, pod("x"), config).ok(t)
		}),
	})
	a := n.add(t, pod("a").in("a-c2"), config).ok(t)
	t.Log(a.ips())
	n.del(t, pod("a").in("a-c2"), config).ok(t)
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}
