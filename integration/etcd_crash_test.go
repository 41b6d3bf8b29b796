package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

// etcdScene is an etcd behind proxies that kill the plugin at a request.
type etcdScene struct {
	*testing.T
	proxies []*testenv.Proxy // one of each member
	config  Object           // through them
	cfg     ipam.EtcdConfig  // the same for the test itself
}

func newEtcdScene(t *testing.T, cluster *testenv.Etcd) *etcdScene {
	c := &etcdScene{T: t}
	c.proxies, c.cfg.CAFile = cluster.Proxies(t)
	for _, p := range c.proxies {
		c.cfg.Endpoints = append(c.cfg.Endpoints, p.URL)
	}
	c.config = inEtcd(strings.Join(c.cfg.Endpoints, ","), Object{
		"range": "10.23.0.0/16", "ipRanges": []Object{{"range": "fd00:23::/64"}}, "etcd_ca_cert_file": c.cfg.CAFile,
	})
	return c
}

func (c *etcdScene) reset() {
	for _, p := range c.proxies {
		p.Reset()
	}
}

// killed runs a call that is killed at its nth request to a member, which is lost or
// comes late. It reports whether the call came to that request.
func (c *etcdScene) killed(n node, run call, nth int, late bool) bool {
	c.Helper()
	started := make(chan *process, 1)
	kill := func(testenv.Request) {
		p := <-started
		p.kill()
		started <- p // a call is dead only a moment later
	}
	action := testenv.Refuse().WithBefore(kill)
	if late {
		action = testenv.Before(kill).Detached()
	}
	var injected []*testenv.Injection
	for _, p := range c.proxies {
		injected = append(injected, p.Inject(testenv.Rule{Nth: nth, Action: action}))
	}
	p := n.start(c, run)
	started <- p
	a := p.wait()
	hit := slices.ContainsFunc(injected, func(i *testenv.Injection) bool { return i.Hits() > 0 })
	if hit != (a.exit < 0) {
		c.Fatalf("request %d was met: %t\n%s", nth, hit, a)
	}
	underWay := testenv.Match{Func: func(r testenv.Request) bool { return !r.Done }}
	for _, p := range c.proxies {
		for deadline := time.Now().Add(time.Minute); p.Count(underWay) > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				c.Fatal("requests are under way and do not end")
			}
		}
	}
	c.reset()
	return hit
}

// eachRequest runs a test for each request of a call, lost and late. The test reports
// whether the call came that far.
func (c *etcdScene) eachRequest(test func(n node, nth int, late bool) bool) {
	c.Helper()
	for _, late := range []bool{false, true} {
		nth := 1
		for test(newNode(c, fmt.Sprint("host-", nth)), nth, late) {
			etcdHoldsNothing(c.T, c.cfg)
			if c.Failed() {
				c.Fatalf("at request %d, late %t", nth, late)
			}
			nth++
		}
		if nth < 3 {
			c.Errorf("the call made only %d requests: the test does not see them", nth-1)
		}
	}
}

func TestAddKilledOnEtcd(t *testing.T) {
	t.Parallel()
	c := newEtcdScene(t, testenv.StartEtcd(t, 1))
	for name, heal := range map[string]func(n node){
		"its DEL":                       func(n node) { n.del(t, pod("a"), c.config).ok(t) },
		"its DEL on a host that forgot": func(n node) { n.forgetful(t).del(t, pod("a"), c.config).ok(t) },
		"the pod's next container, elsewhere": func(node) {
			n := newNode(t, "host-b")
			n.add(t, pod("a").in("a-c2"), c.config).gets(t, "10.23.0.1/16", "fd00:23::1/64")
			n.del(t, pod("a").in("a-c2"), c.config).ok(t)
		},
	} {
		t.Log(name)
		c.eachRequest(func(n node, nth int, late bool) bool {
			hit := c.killed(n, call{command: "ADD", sandbox: pod("a"), config: c.config}, nth, late)
			newNode(t, "host-c").add(t, pod("b"), c.config).ok(t)
			newNode(t, "host-c").del(t, pod("b"), c.config).ok(t)
			heal(n)
			return hit
		})
	}
}

func TestDelKilledOnEtcd(t *testing.T) {
	t.Parallel()
	c := newEtcdScene(t, testenv.StartEtcd(t, 1))
	c.delKilled()
}

func (c *etcdScene) delKilled() {
	c.Helper()
	t := c.T
	c.eachRequest(func(n node, nth int, late bool) bool {
		n.add(t, pod("a"), c.config).ok(t)
		c.reset()
		hit := c.killed(n, call{command: "DEL", sandbox: pod("a"), config: c.config}, nth, late)
		n.del(t, pod("a"), c.config).ok(t)
		c.settle(n)
		return hit
	})
}

// The same on three members of which one after the other is killed, cut off or loses the
// lead, so that calls that are killed have asked more than one of them.
func TestKilledOnThreeMembers(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartEtcdApart(t, 3)
	c := newEtcdScene(t, cluster)
	rest := cluster.Unrest(t)
	for range 5 {
		c.addKilled()
		c.delKilled()
	}
	rest()
}

func (c *etcdScene) addKilled() {
	c.Helper()
	t := c.T
	c.eachRequest(func(n node, nth int, late bool) bool {
		hit := c.killed(n, call{command: "ADD", sandbox: pod("a"), config: c.config}, nth, late)
		other := newNode(t, "host-c")
		other.add(t, pod("b"), c.config).ok(t)
		n.del(t, pod("a"), c.config).ok(t)
		other.del(t, pod("b"), c.config).ok(t)
		c.settle(n, other)
		return hit
	})
}

// settle carries out what hosts have queued.
func (c *etcdScene) settle(nodes ...node) {
	c.Helper()
	for _, n := range nodes {
		for len(n.queued(c)) > 0 {
			n.del(c, pod("nobody"), c.config).ok(c)
		}
	}
}
