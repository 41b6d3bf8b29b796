package mixed

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// Object is short for JSON objects in tests.
type Object = testenv.Object

const (
	groupVersion       = "whereabouts.cni.cncf.io/v1alpha1"
	pools              = "ippools"
	reservations       = "overlappingrangeipreservations"
	definitionsVersion = "k8s.cni.cncf.io/v1"

	// patience is how long a test waits for what has to come. It is no measure.
	patience = 2 * time.Minute
)

func recordPath(namespace, plural string) string {
	return "/apis/" + groupVersion + "/namespaces/" + namespace + "/" + plural
}

// network is a network definition with one range.
type network struct {
	name, space string // space is network_name
	span        span
}

func networkOf(name, pool, first, last string) network {
	return network{name: name, span: span{netip.MustParsePrefix(pool), netip.MustParseAddr(first), netip.MustParseAddr(last)}}
}

// config is what a runtime sends to a plugin of either kind.
func (n network) config(kubeconfig string) Object {
	settings := Object{
		"type": "whereabouts", "kubernetes": Object{"kubeconfig": kubeconfig}, "log_level": "debug",
		"range": n.span.pool.String(), "range_start": n.span.first.String(), "range_end": n.span.last.String(),
	}
	if n.space != "" {
		settings["network_name"] = n.space
	}
	return Object{"cniVersion": "1.0.0", "name": n.name, "type": "macvlan", "ipam": settings}
}

func (n network) pool() string {
	return kube.PoolName(ipam.PoolID{Network: n.space, Range: n.span.pool})
}

func (n network) reservation(a netip.Addr) string { return kube.ReservationName(n.space, a) }

// keyIn is the key of an address's entry.
func keyIn(pool netip.Prefix, a netip.Addr) string {
	offset, _ := ipam.Offset(pool.Addr(), a)
	return offset.String()
}

// entryOf is one entry of a pool; nil if there is none.
func entryOf(pool Object, key string) Object {
	entry, _ := pool.Field("spec", "allocations", key).(map[string]any)
	return entry
}

func reservationObject(name string, spec Object) Object {
	return Object{
		"apiVersion": groupVersion, "kind": "OverlappingRangeIPReservation",
		"metadata": Object{"name": name}, "spec": spec,
	}
}

// world is the records of one namespace and the nodes that share them.
type world struct {
	testing.TB
	cp        *testenv.ControlPlane
	namespace string
	user      string // of the nodes; "" is the administrator
	nodes     int
}

// newWorld shares its control plane with other tests.
func newWorld(t testing.TB) *world {
	t.Helper()
	cp := suite.ControlPlane(t)
	return &world{TB: t, cp: cp, namespace: cp.Namespace(t)}
}

// newOwnWorld is for tests in which reconcile runs: a control plane of its own, with the
// definitions of the records that a directory holds.
func newOwnWorld(t testing.TB, definitions string) *world {
	t.Helper()
	cp := testenv.Start(t)
	cp.ApplyCRDs(t, "../../kube/testdata/definitions")
	cp.ApplyCRDs(t, definitions)
	return &world{TB: t, cp: cp, namespace: cp.Namespace(t)}
}

const (
	ourDefinitions = "../../manifests/crds"
	oldDefinitions = "../testenv/testdata/old-crds"
)

func (w *world) must() testenv.Must { return w.cp.Must(w.TB) }

func (w *world) path(plural string) string { return recordPath(w.namespace, plural) }

// node is a machine with a plugin of one kind, and a proxy of its own on the way to the
// API server.
type node struct {
	name, runDir, stateDir, kubeconfig string
	proxy                              *testenv.Proxy
	old                                bool // has the older plugin
	right                              bool // whose DELs leave the reservations of others alone
}

func (w *world) node(old bool) *node {
	w.Helper()
	w.nodes++
	n := &node{name: fmt.Sprintf("node-%d", w.nodes), runDir: w.TempDir(), stateDir: w.TempDir(), old: old}
	n.proxy = w.cp.Proxy(w.TB)
	n.kubeconfig = w.cp.Kubeconfig(w.TB, testenv.Options{Namespace: w.namespace, Via: n.proxy, User: w.user})
	return n
}

func (w *world) oldNode() *node { w.Helper(); return w.node(true) }
func (w *world) ourNode() *node { w.Helper(); return w.node(false) }

// get reads a record object; nil if there is none.
func (w *world) get(plural, name string) Object {
	w.Helper()
	var object Object
	err := w.cp.Client().Get(w.Context(), w.path(plural)+"/"+name, &object)
	if err != nil && testenv.StatusCode(err) != 404 {
		w.Fatal(err)
	}
	return object
}

// entry is what a network's pool records of an address; nil if it records nothing.
func (w *world) entry(n network, address string) Object {
	w.Helper()
	return entryOf(w.get(pools, n.pool()), keyIn(n.span.pool, netip.MustParseAddr(address)))
}

// reservation is the spec of an address's reservation; nil if there is none.
func (w *world) reservation(n network, address string) Object {
	w.Helper()
	spec, _ := w.get(reservations, n.reservation(netip.MustParseAddr(address)))["spec"].(map[string]any)
	return spec
}

// seedPool makes a pool as it could be found in a cluster, with entries by key.
func (w *world) seedPool(n network, written string, entries Object) {
	w.Helper()
	w.must().Create(w.path(pools), Object{
		"apiVersion": groupVersion, "kind": "IPPool", "metadata": Object{"name": n.pool()},
		"spec": Object{"range": written, "allocations": entries},
	})
}

func (w *world) seedReservation(n network, address string, spec Object) {
	w.Helper()
	w.must().Create(w.path(reservations), reservationObject(n.reservation(netip.MustParseAddr(address)), spec))
}

// left lists all records: "pool/key" and the names of reservations, with their pods.
func (w *world) left() []string {
	w.Helper()
	var all []string
	for _, pool := range w.must().List(w.path(pools)) {
		entries, _ := pool.Field("spec", "allocations").(map[string]any)
		for key, e := range entries {
			all = append(all, fmt.Sprintf("%s/%s of %s", pool.Name(), key, encode(e)))
		}
	}
	for _, r := range w.must().List(w.path(reservations)) {
		all = append(all, fmt.Sprintf("%s of %s", r.Name(), encode(r["spec"])))
	}
	return all
}

// empty fails the test if anything is recorded.
func (w *world) empty() {
	w.Helper()
	if left := w.left(); len(left) > 0 {
		w.Errorf("these records are left: %q", left)
	}
}

func encode(value any) string {
	data, _ := json.Marshal(value) // made of what JSON has
	return string(data)
}

// eventually waits until f answers nothing that is still wrong.
func (w *world) eventually(what string, f func() string) time.Duration {
	w.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		wrong := f()
		if wrong == "" {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			w.Fatalf("%s: not within %s: %s", what, patience, wrong)
		}
	}
}

// in is the same control plane for a test within a test, with a namespace of its own.
func (w *world) in(t testing.TB) *world {
	t.Helper()
	return &world{TB: t, cp: w.cp, namespace: w.cp.Namespace(t)}
}
