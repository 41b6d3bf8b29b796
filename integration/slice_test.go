package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const closedMark = "whereabouts.cni.cncf.io/closed"

// sliced is a cluster whose nodes have slices.
func sliced(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.nodes = []string{"node-1", "node-2"}
	return c
}

// fast is a network of 10.5.0.0/20 with a /24 for each node.
func (c *cluster) fast(more Object) Object {
	return withIPAM(c.config("net-a", Object{"range": "10.5.0.0/20", "node_slice_size": "/24"}), more)
}

// seedSlices writes a list of slices, as "node=slice", like the controller of an old
// version did: nothing but the required fields.
func (c *cluster) seedSlices(name, whole, size string, entries ...string) {
	c.t.Helper()
	allocations := []Object{}
	for _, entry := range entries {
		node, slice, _ := strings.Cut(entry, "=")
		allocations = append(allocations, Object{"nodeName": node, "sliceRange": slice})
	}
	object := Object{
		"apiVersion": groupVersion, "kind": "NodeSlicePool", "metadata": Object{"name": name},
		"spec": Object{"range": whole, "sliceSize": size}, "status": Object{"allocations": allocations},
	}
	if client := c.cp.Must(c.t); !c.exists("nodeslicepools", name) {
		client.Create(c.path("nodeslicepools"), object)
	} else {
		client.Patch(c.path("nodeslicepools")+"/"+name, testenv.MergePatch, object)
	}
}

func (c *cluster) exists(plural, name string) bool {
	c.t.Helper()
	for _, object := range c.cp.Must(c.t).List(c.path(plural)) {
		if object.Name() == name {
			return true
		}
	}
	return false
}

// twoNodes is the list of the example in the manual.
func (c *cluster) twoNodes() {
	c.t.Helper()
	c.seedSlices("net-a", "10.5.0.0/20", "/24", "node-1=10.5.0.0/24", "node-2=10.5.1.0/24", "=10.5.2.0/24")
}

// closePool marks a pool, which is made if need be, as the controller does.
func (c *cluster) closePool(node, slice string) {
	c.t.Helper()
	name := node + "-" + strings.ReplaceAll(slice, "/", "-")
	mark := Object{"metadata": Object{"name": name, "annotations": Object{closedMark: "closing"}}}
	if c.exists("ippools", name) {
		c.cp.Must(c.t).Patch(c.path("ippools")+"/"+name, testenv.MergePatch, mark)
		return
	}
	c.cp.Must(c.t).Create(c.path("ippools"), with(mark, Object{
		"apiVersion": groupVersion, "kind": "IPPool", "spec": Object{"range": slice, "allocations": Object{}},
	}))
}

func TestSliceOfTheNode(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n, m := newNode(t, "node-1"), newNode(t, "node-2")
	config := c.fast(nil)
	n.add(t, pod("a"), config).gets(t, "10.5.0.1/20")
	n.add(t, pod("b"), config).gets(t, "10.5.0.2/20")
	m.add(t, pod("d"), config).gets(t, "10.5.1.1/20")
	c.holds(t, map[string]string{"node-1-10.5.0.0-24/1": "a-c1", "node-1-10.5.0.0-24/2": "b-c1", "node-2-10.5.1.0-24/1": "d-c1"})
	if pool := c.pools()["node-1-10.5.0.0-24"].String("range"); pool != "10.5.0.0/24" {
		t.Errorf("range of the pool is %q", pool)
	}
	spec := c.reservations()["10.5.0.1"]
	if spec.String("range") != "10.5.0.0/24" || spec.String("node") != "node-1" {
		t.Errorf("the reservation is %v", spec)
	}
	n.add(t, pod("a").in("a-c2"), config).gets(t, "10.5.0.1/20")
	n.del(t, pod("a"), config).ok(t)
	n.add(t, pod("a").in("a-c2"), config).gets(t, "10.5.0.1/20")
	n.del(t, pod("a").in("a-c2"), config).ok(t)
	n.forgetful(t).del(t, pod("b"), config).ok(t)
	m.del(t, pod("d"), config).ok(t)
	c.empty(t)
}

func TestSlicesHonourAddressing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ipam Object
		want []string // on node-1, whose slice is 10.5.0.0/24, and on node-2
	}{
		"gateway":           {Object{"gateway": "10.5.0.1"}, []string{"10.5.0.2/20", "10.5.1.1/20"}},
		"exclude":           {Object{"exclude": []string{"10.5.0.0/29", "10.5.1.1"}}, []string{"10.5.0.8/20", "10.5.1.2/20"}},
		"range_start":       {Object{"range_start": "10.5.0.100"}, []string{"10.5.0.100/20", "10.5.1.1/20"}},
		"dot zero":          {Object{"allow_dot_zero": true}, []string{"10.5.0.1/20", "10.5.1.0/20"}},
		"host bits":         {Object{"range": "10.5.3.3/20"}, []string{"10.5.0.1/20", "10.5.1.1/20"}},
		"another size":      {Object{"node_slice_size": 26}, []string{"10.5.0.1/20", "10.5.1.1/20"}},
		"no protection":     {Object{"enable_overlapping_ranges": false}, []string{"10.5.0.1/20", "10.5.1.1/20"}},
		"a range inside it": {Object{"range": "10.5.0.0/23"}, []string{"10.5.0.1/23", "10.5.1.1/23"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sliced(t)
			c.unprotected = name == "no protection"
			c.twoNodes()
			for i, want := range test.want {
				n := newNode(t, fmt.Sprint("node-", i+1))
				config := c.fast(test.ipam)
				result := n.add(t, pod("a"), config).gets(t, want).result
				n.check(t, pod("a"), config, result).ok(t)
				n.forgetful(t).check(t, pod("a"), config, result).ok(t)
				n.del(t, pod("a"), config).ok(t)
			}
			c.empty(t)
		})
	}
}

func TestSlicesOfSeveralRangesInAnAddressSpace(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{
		"range": "10.5.0.0/20", "ipRanges": []Object{{"range": "fd00::/28"}}, "node_slice_size": 30, "network_name": "tenant",
	})
	c.seedSlices("tenant", "10.5.0.0/20", "30", "node-1=10.5.0.4/30")
	mentions(t, n.add(t, pod("a"), config).fails(t, 11), "node-1", "tenant-fd00---28")
	c.empty(t)
	c.seedSlices("tenant-fd00---28", "fd00::/28", "30", "node-1=fd00:4::/30")
	n.add(t, pod("a"), config).gets(t, "10.5.0.4/20", "fd00:4::/28")
	c.holds(t, map[string]string{"tenant-node-1-10.5.0.4-30/0": "a-c1", "tenant-node-1-fd00-4---30/0": "a-c1"})
	n.forgetful(t).del(t, pod("a"), config).ok(t)
	c.empty(t)
}

func TestSeveralSlicesOfANode(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	n := newNode(t, "node-1")
	config := c.fast(Object{"node_slice_size": "31", "node_slice_max": 2})
	c.seedSlices("net-a", "10.5.0.0/20", "31", "node-1=10.5.0.2/31", "node-2=10.5.0.4/31", "node-1=10.5.0.6/31")
	given := map[string]string{"a": "10.5.0.2/20", "b": "10.5.0.3/20", "d": "10.5.0.6/20", "e": "10.5.0.7/20"}
	for _, name := range []string{"a", "b", "d", "e"} {
		n.add(t, pod(name), config).gets(t, given[name])
	}
	mentions(t, n.add(t, pod("f"), config).fails(t, 11), "10.5.0.6/31", "node-1")
	n.del(t, pod("a"), config).ok(t)
	n.add(t, pod("e").in("e-c2"), config).gets(t, "10.5.0.7/20")
	n.add(t, pod("f"), config).gets(t, "10.5.0.2/20")
	for name, container := range map[string]string{"b": "b-c1", "d": "d-c1", "e": "e-c2", "f": "f-c1"} {
		n.forgetful(t).del(t, pod(name).in(container), config).ok(t)
	}
	c.empty(t)
}

func TestNodeWithoutASlice(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	n := newNode(t, "node-3")
	config := c.fast(nil)
	mentions(t, n.add(t, pod("a"), config).fails(t, 11), "node-3", "net-a", "10.5.0.0/20", "controller")
	mentions(t, n.status(t, config).fails(t, 50), "node-3", "net-a")
	c.twoNodes()
	mentions(t, n.add(t, pod("a"), config).fails(t, 11), "node-3", "net-a", "10.5.0.0/20")
	mentions(t, n.status(t, config).fails(t, 50), "node-3", "net-a")
	n.del(t, pod("a"), config).ok(t)
	if pools := c.pools(); len(pools) > 0 {
		t.Errorf("pools were made: %v", pools)
	}
	c.atMost(t, 1, "STATUS", func() { newNode(t, "node-1").status(t, config).ok(t) })
}

func TestSlicesInTheLocalStore(t *testing.T) {
	t.Parallel()
	n := newNode(t, "node-1")
	config := Object{"cniVersion": "1.0.0", "name": "net-a", "ipam": Object{
		"type": "whereabouts", "datastore": "local", "local_path": t.TempDir() + "/a.db", "range": "10.5.0.0/20", "node_slice_size": 24,
	}}
	mentions(t, n.add(t, pod("a"), config).fails(t, 7), "node_slice_size", "local", "kubernetes")
	n.del(t, pod("a"), config).ok(t)
}

func TestRequestsOfOneCallWithSlices(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	n.add(t, pod("first"), config).ok(t)
	c.atMost(t, 4, "ADD", func() { n.add(t, pod("a"), config).gets(t, "10.5.0.2/20") })
	result := n.add(t, pod("a"), config).result
	c.atMost(t, 1, "CHECK", func() { n.check(t, pod("a"), config, result).ok(t) })
	c.atMost(t, 3, "DEL on the node that knows the record", func() { n.del(t, pod("a"), config).ok(t) })
	n.add(t, pod("a"), config).ok(t)
	c.atMost(t, 6, "DEL on a node that forgot", func() { n.forgetful(t).del(t, pod("a"), config).ok(t) })
	n.del(t, pod("first"), config).ok(t)
	c.empty(t)
}

// A burst on one node reads the list once for each batch.
func TestCombinedCallsReadTheListTogether(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	// The first call waits at its list until the others have queued up.
	release := make(chan struct{})
	c.proxy.Inject(testenv.Rule{Match: testenv.Match{Path: "/nodeslicepools"}, Action: testenv.Before(func(testenv.Request) { <-release })})
	processes := []*process{n.start(t, call{command: "ADD", sandbox: pod("p0"), config: config})}
	c.waitFor(t, testenv.Match{Path: "/nodeslicepools"})
	for i := range 10 {
		processes = append(processes, n.start(t, call{command: "ADD", sandbox: pod(fmt.Sprint("p", i+1)), config: config}))
	}
	n.waitForQueue(t, 10)
	close(release)
	given := map[string]bool{}
	for _, p := range processes {
		given[p.wait().ok(t).ips()[0]] = true
	}
	if len(given) != 11 {
		t.Errorf("%d different addresses, want 11: %v", len(given), given)
	}
	lists := c.proxy.Count(testenv.Match{Path: "/nodeslicepools"})
	if lists > 3 {
		t.Errorf("the list was read %d times by 11 calls", lists)
	}
	for i := range 11 {
		n.del(t, pod(fmt.Sprint("p", i)), config).ok(t)
	}
	c.empty(t)
}

// waitFor waits until a request has come.
func (c *cluster) waitFor(t testing.TB, m testenv.Match) {
	t.Helper()
	until(t, "no such request", func() bool { return c.proxy.Count(m) > 0 })
}

// waitForQueue waits until so many calls of the node wait for another one.
func (n node) waitForQueue(t testing.TB, calls int) {
	t.Helper()
	until(t, "too few calls wait", func() bool {
		files, _ := filepath.Glob(filepath.Join(n.runDir, "queue-*", "*.request"))
		return len(files) >= calls
	})
}

// until waits for something that comes without fail, be it late.
func until(t testing.TB, otherwise string, reached func() bool) {
	t.Helper()
	for range 3000 {
		if reached() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(otherwise)
}

func TestRequestedAddressesWithSlices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ address, pool string }{
		"in the own slice":      {"10.5.0.77", "node-1-10.5.0.0-24/77"},
		"in another's":          {"10.5.1.77", "node-2-10.5.1.0-24/77"},
		"in nobody's":           {"10.5.9.77", "10.5.0.0-20/2381"},
		"excluded":              {"10.5.15.77", "10.5.0.0-20/3917"},
		"excluded in the slice": {"10.5.0.99", "10.5.0.0-20/99"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sliced(t)
			c.twoNodes()
			n, m := newNode(t, "node-1"), newNode(t, "node-2")
			config := c.fast(Object{"exclude": []string{"10.5.15.0/24", "10.5.0.99"}})
			result := n.add(t, pod("a"), config, "IP="+test.address).gets(t, test.address+"/20").result
			c.holds(t, map[string]string{test.pool: "a-c1"})
			n.forgetful(t).check(t, pod("a"), config, result).ok(t)
			mentions(t, m.add(t, pod("b"), config, "IP="+test.address).fails(t, 11), test.address, "default/a")
			// Its pod may come again on another node.
			m.add(t, pod("a").in("a-c2"), config, "IP="+test.address).gets(t, test.address+"/20")
			n.del(t, pod("a"), config).ok(t)
			c.holds(t, map[string]string{test.pool: "a-c2"})
			m.forgetful(t).del(t, pod("a").in("a-c2"), with(config, Object{"prevResult": result})).ok(t)
			c.empty(t)
		})
	}
}

// Somebody was given an address of a slice by number before the slice was given out.
func TestAddressHeldByNumberInANewSlice(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	n.add(t, pod("a"), config, "IP=10.5.2.1").gets(t, "10.5.2.1/20")
	c.seedSlices("net-a", "10.5.0.0/20", "/24", "node-1=10.5.0.0/24", "node-2=10.5.2.0/24")
	newNode(t, "node-2").add(t, pod("b"), config).getsNear(t, mustAddr(t, "10.5.2.2/20"))
	n.del(t, pod("a"), config).ok(t)
	newNode(t, "node-2").del(t, pod("b"), config).ok(t)
	c.empty(t)
}

// Rights that do not include the lists of slices are told as such, and a DEL waits for
// them in the queue.
func TestSlicesThatMustNotBeRead(t *testing.T) {
	t.Parallel()
	c := sliced(t)
	c.twoNodes()
	n := newNode(t, "node-1")
	config := c.fast(nil)
	denied := c.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Path: "/nodeslicepools"}, Times: testenv.Always, Action: testenv.Answer(http.StatusForbidden),
	})
	mentions(t, n.add(t, pod("a"), config).failsSomehow(t), "net-a")
	mentions(t, n.status(t, config).fails(t, 50), "net-a")
	n.del(t, pod("a"), config).ok(t)
	if denied.Hits() < 3 {
		t.Errorf("it was asked for %d times", denied.Hits())
	}
	denied.Remove()
	n.add(t, pod("a"), config).gets(t, "10.5.0.1/20")
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}
