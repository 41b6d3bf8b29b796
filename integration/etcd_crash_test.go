package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// etcdScene is one etcd behind a proxy that kills the plugin at a request.
type etcdScene struct {
	*testing.T
	proxy     *testenv.Proxy
	endpoints string // past the proxy
	config    Object // through it
}

func newEtcdScene(t *testing.T) *etcdScene {
	cluster := testenv.StartEtcd(t, 1)
	c := &etcdScene{T: t, proxy: cluster.Members[0].Proxy(t), endpoints: cluster.Endpoints()}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, c.proxy.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	c.config = inEtcd(c.proxy.URL, Object{"range": "10.23.0.0/16", "ipRanges": []Object{{"range": "fd00:23::/64"}}, "etcd_ca_cert_file": ca})
	return c
}

// killed runs a call that is killed at its nth request, which is lost or comes late.
// It reports whether the call came to that request.
func (c *etcdScene) killed(n node, run call, nth int, late bool) bool {
	c.Helper()
	started := make(chan *process, 1)
	kill := func(testenv.Request) { (<-started).kill() }
	action := testenv.Refuse().WithBefore(kill)
	if late {
		action = testenv.Before(kill).Detached()
	}
	injected := c.proxy.Inject(testenv.Rule{Nth: nth, Action: action})
	p := n.start(c, run)
	started <- p
	a := p.wait()
	hit := injected.Hits() == 1
	if hit != (a.exit < 0) {
		c.Fatalf("request %d was met: %t\n%s", nth, hit, a)
	}
	underWay := testenv.Match{Func: func(r testenv.Request) bool { return !r.Done }}
	for deadline := time.Now().Add(time.Minute); c.proxy.Count(underWay) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatal("requests are under way and do not end")
		}
	}
	c.proxy.Reset()
	return hit
}

// eachRequest runs a test for each request of a call, lost and late. The test reports
// whether the call came that far.
func (c *etcdScene) eachRequest(test func(n node, nth int, late bool) bool) {
	c.Helper()
	for _, late := range []bool{false, true} {
		nth := 1
		for test(newNode(c, fmt.Sprint("host-", nth)), nth, late) {
			etcdIsEmpty(c.T, c.endpoints)
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
	c := newEtcdScene(t)
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
	c := newEtcdScene(t)
	c.eachRequest(func(n node, nth int, late bool) bool {
		n.add(t, pod("a"), c.config).ok(t)
		c.proxy.Reset()
		hit := c.killed(n, call{command: "DEL", sandbox: pod("a"), config: c.config}, nth, late)
		n.del(t, pod("a"), c.config).ok(t)
		return hit
	})
}
