package integration

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// faults are what befalls a request. All of them pass, so that a call that tries
// again within its deadline succeeds.
func faults() map[string]testenv.Action {
	return map[string]testenv.Action{
		"refused":           testenv.Refuse(),
		"connection broken": testenv.Refuse().WholeConnection(),
		"answer lost":       testenv.LoseAnswer(),
		"answer cut":        testenv.CutAnswer(),
		"409":               testenv.Answer(http.StatusConflict),
		"429":               testenv.AnswerStatus(testenv.Status{Code: http.StatusTooManyRequests, RetryAfter: time.Second}),
		"500":               testenv.Answer(http.StatusInternalServerError),
		"503":               testenv.Answer(http.StatusServiceUnavailable),
		"done, but 504":     testenv.ForwardThenAnswer(http.StatusGatewayTimeout),
	}
}

// requestsOf answers the methods of the requests that a call makes when nothing
// goes wrong.
func requestsOf(t *testing.T, verb func(*cluster, node)) []string {
	t.Helper()
	c := newCluster(t)
	verb(c, newNode(t, "node-1"))
	var methods []string
	for _, r := range c.proxy.Requests() {
		methods = append(methods, r.Method)
	}
	return methods
}

// eachFault runs a test for each request of a call with each fault.
func eachFault(t *testing.T, methods []string, test func(t *testing.T, rule testenv.Rule)) {
	for i, method := range methods {
		for name, fault := range faults() {
			if name == "409" && method == http.MethodGet {
				continue // no server says that
			}
			t.Run(fmt.Sprintf("request %d %s %s", i+1, method, name), func(t *testing.T) {
				t.Parallel()
				test(t, testenv.Rule{Nth: i + 1, Action: fault})
			})
		}
	}
}

// TestOneFaultDuringAdd lets each fault befall each request of an ADD that makes
// its pool.
func TestOneFaultDuringAdd(t *testing.T) {
	t.Parallel()
	requests := requestsOf(t, func(c *cluster, n node) {
		n.add(t, pod("a"), c.ranged("10.18.0.0/24")).ok(t)
	})
	eachFault(t, requests, func(t *testing.T, rule testenv.Rule) {
		c := newCluster(t)
		n := newNode(t, "node-1")
		config := c.ranged("10.18.0.0/24")
		injected := c.proxy.Inject(rule)
		a := n.add(t, pod("a"), config).ok(t)
		if injected.Hits() != 1 {
			t.Errorf("the fault happened %d times, want 1", injected.Hits())
		}
		c.tells(t, "a-c1", a)
		n.del(t, pod("a"), config).ok(t)
		c.empty(t)
	})
}

// TestOneFaultDuringDel does so with a DEL on a node that forgot.
func TestOneFaultDuringDel(t *testing.T) {
	t.Parallel()
	const r = "10.18.0.0/24"
	requests := requestsOf(t, func(c *cluster, n node) {
		n.add(t, pod("a"), c.ranged(r)).ok(t)
		c.proxy.ResetRequests()
		n.forgetful(t).del(t, pod("a"), c.ranged(r)).ok(t)
	})
	eachFault(t, requests, func(t *testing.T, rule testenv.Rule) {
		c := newCluster(t)
		config := c.ranged(r)
		newNode(t, "node-1").add(t, pod("a"), config).ok(t)
		injected := c.proxy.Inject(rule)
		newNode(t, "node-1").del(t, pod("a"), config).ok(t)
		if injected.Hits() != 1 {
			t.Errorf("the fault happened %d times, want 1", injected.Hits())
		}
		c.empty(t)
	})
}

// tells fails the test unless what is recorded for the container is what the
// answer to its ADD says.
func (c *cluster) tells(t testing.TB, container string, a answer) {
	t.Helper()
	var recorded []string
	for _, e := range c.entries() {
		if e.container == container {
			recorded = append(recorded, e.address.String())
		}
	}
	var told []string
	for _, ip := range a.ips() {
		told = append(told, mustAddr(t, ip).String())
	}
	slices.Sort(recorded)
	slices.Sort(told)
	if !slices.Equal(recorded, told) {
		t.Errorf("recorded for %s is %v, told was %v\n%s", container, recorded, told, a)
	}
}

// TestLastingFaultOnAWrite has one kind of write refused for good: the ADD fails
// and leaves nothing.
func TestLastingFaultOnAWrite(t *testing.T) {
	t.Parallel()
	matches := map[string]testenv.Match{
		"pool":        {Method: http.MethodPatch, Path: "/ippools/"},
		"reservation": {Method: http.MethodPost, Path: "/overlappingrangeipreservations$"},
	}
	for what, match := range matches {
		for _, code := range []int{http.StatusForbidden, http.StatusRequestEntityTooLarge} {
			t.Run(fmt.Sprint(what, " ", code), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				n := newNode(t, "node-1")
				config := c.config("net-a", Object{"ipRanges": []Object{{"range": "10.18.0.0/24"}, {"range": "fd00:18::/64"}}})
				n.add(t, pod("first"), config).ok(t) // makes the pools
				injected := c.proxy.Inject(testenv.Rule{Match: match, Action: testenv.Answer(code), Times: testenv.Always})
				n.add(t, pod("a"), config).failsSomehow(t)
				if injected.Hits() == 0 {
					t.Error("the fault did not happen")
				}
				injected.Remove()
				c.holds(t, map[string]string{"10.18.0.0-24/1": "first-c1", "fd00-18---64/1": "first-c1"})
				n.del(t, pod("first"), config).ok(t)
				c.empty(t)
			})
		}
	}
}

// TestSecondRangeFails has the pool of the second range refused: what the first
// gave is given back.
func TestSecondRangeFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"ipRanges": []Object{{"range": "10.18.0.0/24"}, {"range": "10.19.0.0/24"}}})
	n.add(t, pod("first"), config).ok(t)
	c.proxy.Inject(testenv.Rule{
		Match:  testenv.Match{Method: http.MethodPatch, Path: "/ippools/10.19.0.0-24$"},
		Action: testenv.Answer(http.StatusForbidden), Times: testenv.Always,
	})
	n.add(t, pod("a"), config).failsSomehow(t)
	c.holds(t, map[string]string{"10.18.0.0-24/1": "first-c1", "10.19.0.0-24/1": "first-c1"})
	c.proxy.Reset()
	n.del(t, pod("first"), config).ok(t)
	c.empty(t)
}

func TestAddWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.18.0.0/24")
	c.proxy.Down()
	n.add(t, pod("a"), config).fails(t, 11)
	if err := c.proxy.Up(); err != nil {
		t.Fatal(err)
	}
	c.empty(t)
	n.add(t, pod("b"), config).gets(t, "10.18.0.1/24")
	n.del(t, pod("a"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)
	c.empty(t)
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	const pause = 2 * time.Second
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.18.0.0/24")
	post := testenv.Match{Method: http.MethodPost, Path: "/overlappingrangeipreservations$"}
	c.proxy.Inject(testenv.Rule{
		Match:  post,
		Action: testenv.AnswerStatus(testenv.Status{Code: http.StatusTooManyRequests, RetryAfter: pause}),
	})
	n.add(t, pod("a"), config).ok(t)
	tries := c.proxy.Find(post)
	if len(tries) != 2 {
		c.proxy.Log(t)
		t.Fatalf("the reservation was tried %d times, want 2", len(tries))
	}
	if waited := tries[1].Begin.Sub(tries[0].Begin); waited < pause {
		t.Errorf("it was tried again after %v, though the server asked for %v", waited, pause)
	}
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}
