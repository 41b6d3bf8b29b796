package integration

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const (
	group        = "whereabouts.cni.cncf.io"
	groupVersion = group + "/v1alpha1"
)

// cluster is a namespace of its own on the API server for one test, reached by
// the plugin through a proxy.
type cluster struct {
	t          *testing.T
	cp         *testenv.ControlPlane
	proxy      *testenv.Proxy
	namespace  string
	kubeconfig string

	unprotected bool            // the test's networks have no overlap protection
	nodes       []string        // that have slices, in whose pools the names of nodes stand
	halves      map[string]bool // addresses, or names of reservations, that the test left in half on purpose
}

// newCluster also has the test end with a check of all records.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOn(t, suite.ControlPlane(t))
}

func newClusterOn(t *testing.T, cp *testenv.ControlPlane) *cluster {
	t.Helper()
	c := &cluster{t: t, cp: cp, namespace: cp.Namespace(t), halves: map[string]bool{}}
	t.Cleanup(func() { c.checkRecords(t) })
	c.proxy = cp.Proxy(t)
	c.kubeconfig = cp.Kubeconfig(t, testenv.Options{Namespace: c.namespace, Via: c.proxy})
	return c
}

// oldControlPlane is one of the test's own with the definitions of old versions.
func oldControlPlane(t *testing.T) *testenv.ControlPlane {
	t.Helper()
	cp := testenv.Start(t)
	cp.ApplyOldCRDs(t)
	return cp
}

// config is the configuration of a network, version 1.0.0.
func (c *cluster) config(network string, ipam Object) Object {
	full := Object{"type": "whereabouts", "kubernetes": Object{"kubeconfig": c.kubeconfig}}
	maps.Copy(full, ipam)
	return Object{"cniVersion": "1.0.0", "name": network, "type": "macvlan", "ipam": full}
}

// ranged is a network with one range.
func (c *cluster) ranged(r string) Object { return c.config("net-a", Object{"range": r}) }

// with is a copy of a configuration with some top-level keys set.
func with(config, more Object) Object {
	merged := maps.Clone(config)
	maps.Copy(merged, more)
	return merged
}

// withIPAM is a copy of a configuration with some keys of ipam set.
func withIPAM(config, more Object) Object {
	return with(config, Object{"ipam": with(config["ipam"].(Object), more)})
}

func (c *cluster) path(plural string) string {
	return "/apis/" + groupVersion + "/namespaces/" + c.namespace + "/" + plural
}

func (c *cluster) specs(plural string) map[string]Object {
	c.t.Helper()
	all := map[string]Object{}
	for _, object := range c.cp.Must(c.t).List(c.path(plural)) {
		spec, _ := object["spec"].(map[string]any)
		all[object.Name()] = spec
	}
	return all
}

// pools are the specs of the pools by name.
func (c *cluster) pools() map[string]Object { return c.specs("ippools") }

// reservations are the specs of the reservations by name.
func (c *cluster) reservations() map[string]Object {
	return c.specs("overlappingrangeipreservations")
}

// entry is one entry of a pool as stored, nil if there is none.
func (c *cluster) entry(pool, key string) Object {
	c.t.Helper()
	found, _ := c.pools()[pool].Field("allocations", key).(map[string]any)
	return found
}

// empty fails the test if anything is held.
func (c *cluster) empty(t testing.TB) {
	t.Helper()
	if left := c.holders(); len(left) > 0 {
		t.Errorf("entries are left in pools: %v", left)
	}
	if left := c.reservations(); len(left) > 0 {
		t.Errorf("reservations are left: %v", left)
	}
}

// holds fails the test unless exactly these entries exist, as "pool/key", and
// belong to the containers named.
func (c *cluster) holds(t testing.TB, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, e := range c.entries() {
		got[e.pool+"/"+e.key] = e.container
	}
	if !maps.Equal(got, want) {
		t.Errorf("held are %v, want %v", got, want)
	}
}

// seedPool creates a pool as it could be found in a cluster.
func (c *cluster) seedPool(name, written string, allocations Object) {
	c.t.Helper()
	c.cp.Must(c.t).Create(c.path("ippools"), Object{
		"apiVersion": groupVersion, "kind": "IPPool", "metadata": Object{"name": name},
		"spec": Object{"range": written, "allocations": allocations},
	})
}

func reservation(name string, spec Object) Object {
	return Object{
		"apiVersion": groupVersion, "kind": "OverlappingRangeIPReservation",
		"metadata": Object{"name": name}, "spec": spec,
	}
}

func (c *cluster) seedReservation(name string, spec Object) {
	c.t.Helper()
	c.cp.Must(c.t).Create(c.path("overlappingrangeipreservations"), reservation(name, spec))
}

// seedReservations creates many at once.
func (c *cluster) seedReservations(specs map[string]Object) {
	c.t.Helper()
	work := make(chan string)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for name := range work {
				err := c.cp.Client().Create(c.t.Context(), c.path("overlappingrangeipreservations"), reservation(name, specs[name]), nil)
				if err != nil {
					c.t.Error(err)
				}
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		work <- name
	}
	close(work)
	group.Wait()
}

// patchPool changes a pool as somebody else would, by a JSON patch.
func (c *cluster) patchPool(name string, operations ...Object) {
	c.t.Helper()
	c.cp.Must(c.t).Patch(c.path("ippools")+"/"+name, testenv.JSONPatch, operations)
}

// patchReservation merges fields into a reservation's spec.
func (c *cluster) patchReservation(name string, spec Object) {
	c.t.Helper()
	c.cp.Must(c.t).Patch(c.path("overlappingrangeipreservations")+"/"+name, testenv.MergePatch, Object{"spec": spec})
}

// age makes reservations an hour old, which garbage collection looks at.
func (c *cluster) age(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.patchReservation(name, Object{"since": longAgo()})
	}
}

func longAgo() string { return time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) }

// writes matches the requests that change something.
func writes() testenv.Match {
	return testenv.Match{Func: func(r testenv.Request) bool { return r.Method != http.MethodGet }}
}

func mustAddr(t testing.TB, text string) netip.Addr {
	t.Helper()
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		t.Fatal(err)
	}
	return prefix.Addr()
}
