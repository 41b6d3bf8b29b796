package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// The runtime has given up an ADD and asks for the DEL while the ADD is still
// under way. Whichever comes first, nothing is left when both are done.
func TestDelWhileItsAddIsUnderWay(t *testing.T) {
	t.Parallel()
	methods := requestsOf(t, func(c *cluster, n node) { n.add(t, pod("a"), c.ranged("10.21.0.0/24")).ok(t) })
	for i, method := range methods {
		for _, where := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s request %d %s", where, i+1, method), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				n := newNode(t, "node-1")
				config := c.ranged("10.21.0.0/24")
				started := make(chan *process, 1)
				begin := func(testenv.Request) {
					started <- n.start(t, call{command: "DEL", sandbox: pod("a"), config: config})
				}
				action := testenv.Before(begin)
				if where == "after" {
					action = testenv.After(begin)
				}
				c.proxy.Inject(testenv.Rule{Nth: i + 1, Action: action})
				add := n.add(t, pod("a"), config)
				(<-started).wait().ok(t)
				t.Logf("ADD ended with %d", add.exit)
				c.empty(t)
			})
		}
	}
}

func TestManyAtOnceWhileAnswersAreLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes := []node{newNode(t, "node-1"), newNode(t, "node-2")}
	config := c.config("net-a", Object{"range": "10.21.0.0/24", "ipRanges": []Object{{"range": "fd00:21::/64"}}})
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	trouble := func() (injected []*testenv.Injection) {
		for i, action := range []testenv.Action{
			testenv.LoseAnswer(), testenv.Answer(http.StatusInternalServerError), testenv.LoseAnswer().WholeConnection(),
			testenv.ForwardThenAnswer(http.StatusGatewayTimeout), testenv.CutAnswer(), testenv.Refuse(),
		} {
			injected = append(injected, c.proxy.Inject(testenv.Rule{Match: writes(), Nth: 2 + 5*i, Times: 2, Action: action}))
		}
		return injected
	}
	injected := trouble()
	answers := atOnce(24, func(i int) answer { return nodes[i%2].add(t, name(i), config) })
	distinct(t, answers, nil)
	for i, a := range answers {
		c.tells(t, name(i).container, a)
	}
	c.checkRecords(t)
	if injected[0].Hits() == 0 {
		t.Error("no fault happened")
	}
	c.proxy.Reset()
	trouble()
	for _, a := range atOnce(24, func(i int) answer { return nodes[i%2].del(t, name(i), config) }) {
		a.ok(t)
	}
	c.empty(t)
}

// Some of the processes on a node die in the middle of a burst, among them
// perhaps the one that works for the others.
func TestManyAtOnceWhileSomeAreKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.21.0.0/24")
	n.add(t, pod("first"), config).ok(t)
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	begun := make(chan []*process, 1)
	c.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Method: http.MethodPatch, Path: "/ippools/"},
		Action: testenv.Before(func(testenv.Request) {
			for i, p := range <-begun {
				if i%2 == 0 {
					p.kill()
				}
			}
		}),
	})
	var all []*process
	for i := range 20 {
		all = append(all, n.start(t, call{command: "ADD", sandbox: name(i), config: config}))
	}
	begun <- all
	var good []answer
	for _, p := range all {
		if a := p.wait(); a.exit >= 0 { // a killed one may have been done before
			good = append(good, a)
		}
	}
	if len(good) < 10 {
		t.Errorf("%d calls came to an end, want at least the 10 that were not killed", len(good))
	}
	distinct(t, good, nil)
	for _, a := range good {
		c.tells(t, a.call.sandbox.container, a)
	}
	c.settle(t)
	for _, a := range atOnce(20, func(i int) answer { return n.del(t, name(i), config) }) {
		a.ok(t)
	}
	n.del(t, pod("first"), config).ok(t)
	c.empty(t)
}

// Calls with other rights on the same node do not suffer from one another.
func TestManyAtOnceSomeWithoutRights(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	good := c.ranged("10.21.0.0/24")
	c.kubeconfig = c.cp.Kubeconfig(t, testenv.Options{Namespace: c.namespace, User: testenv.Nobody, Via: c.proxy})
	bad := c.ranged("10.21.0.0/24")
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	for i, a := range atOnce(20, func(i int) answer { return n.add(t, name(i), []Object{good, bad}[i%2]) }) {
		if i%2 == 0 {
			a.ok(t)
		} else {
			a.failsSomehow(t)
		}
	}
	if held := len(c.entries()); held != 10 {
		t.Errorf("%d entries, want 10", held)
	}
	for _, a := range atOnce(20, func(i int) answer { return n.del(t, name(i), good) }) {
		a.ok(t)
	}
	c.empty(t)
}

// A node on which the run directory cannot be made works without combining.
func TestNodeWithoutARunDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	n.runDir = filepath.Join(writeJSON(t, "file", nil), "below")
	config := c.ranged("10.21.0.0/24")
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	distinct(t, atOnce(8, func(i int) answer { return n.add(t, name(i), config) }), nil)
	for _, a := range atOnce(8, func(i int) answer { return n.del(t, name(i), config) }) {
		a.ok(t)
	}
	c.empty(t)
}
