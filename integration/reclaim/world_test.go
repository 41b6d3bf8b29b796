package reclaim

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Object is short for JSON objects in tests.
type Object = testenv.Object

const (
	groupVersion       = "whereabouts.cni.cncf.io/v1alpha1"
	pools              = "ippools"
	reservations       = "overlappingrangeipreservations"
	definitionsVersion = "k8s.cni.cncf.io/v1"

	// patience is how long a test waits for what has to come. It is no measure.
	patience = 60 * time.Second
)

// world is a cluster of one test.
type world struct {
	testing.TB
	cp         *testenv.ControlPlane
	proxy      *testenv.Proxy // on the way of clean-up
	namespace  string         // of the records
	kubeconfig string         // of the plugin, direct
	old        bool           // with the definitions of old versions
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := launch(t)
	w.cp.ApplyCRDs(t, "../../manifests/crds")
	return w
}

// newOldWorld has the definitions of old versions, which prune newer fields.
func newOldWorld(t testing.TB) *world {
	t.Helper()
	w := launch(t)
	w.cp.ApplyOldCRDs(t)
	w.old = true
	return w
}

func launch(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, cp: testenv.Start(t)}
	w.cp.ApplyCRDs(t, "../../kube/testdata/definitions")
	w.proxy = w.cp.Proxy(t)
	w.namespace = w.cp.Namespace(t)
	w.kubeconfig = w.cp.Kubeconfig(t, testenv.Options{Namespace: w.namespace})
	return w
}

func (w *world) must() testenv.Must { return w.cp.Must(w.TB) }

// path is where records of a kind are.
func (w *world) path(plural string) string { return recordPath(w.namespace, plural) }

func recordPath(namespace, plural string) string {
	return "/apis/" + groupVersion + "/namespaces/" + namespace + "/" + plural
}

// network is a network with one range.
type network struct {
	name, cidr  string
	space       string // network_name
	unprotected bool   // without overlap protection
	sliceSize   string // node_slice_size
	kubeconfig  string
}

// config is what a runtime sends to the plugin for the network.
func (n network) config() Object {
	ipam := Object{
		"type": "whereabouts", "range": n.cidr, "kubernetes": Object{"kubeconfig": n.kubeconfig},
		"enable_overlapping_ranges": !n.unprotected,
	}
	if n.space != "" {
		ipam["network_name"] = n.space
	}
	if n.sliceSize != "" {
		ipam["node_slice_size"] = n.sliceSize
	}
	return Object{"cniVersion": "1.0.0", "name": n.name, "type": "macvlan", "ipam": ipam}
}

// host is the nth address of the range.
func (n network) host(nth int) netip.Addr {
	a := netip.MustParsePrefix(n.cidr).Addr()
	for range nth {
		a = a.Next()
	}
	return a
}

// network makes a network and its definition in a namespace of pods.
func (w *world) network(namespace, name, cidr string) network {
	n := network{name: name, cidr: cidr, kubeconfig: w.kubeconfig}
	w.define(namespace, n)
	return n
}

func definitionPath(namespace string) string {
	return "/apis/" + definitionsVersion + "/namespaces/" + namespace + "/network-attachment-definitions"
}

func (w *world) define(namespace string, n network) {
	w.Helper()
	w.must().Create(definitionPath(namespace), Object{
		"apiVersion": definitionsVersion, "kind": "NetworkAttachmentDefinition",
		"metadata": Object{"name": n.name}, "spec": Object{"config": encode(w, n.config())},
	})
}

func (w *world) undefine(namespace string, n network) {
	w.Helper()
	w.must().Delete(definitionPath(namespace) + "/" + n.name)
}

// eventually waits until f answers nothing that is still wrong.
func (w *world) eventually(what string, f func() string) time.Duration {
	w.Helper()
	return w.within(patience, what, f)
}

func (w *world) within(limit time.Duration, what string, f func() string) time.Duration {
	w.Helper()
	begin := time.Now()
	for {
		wrong := f()
		if wrong == "" {
			return time.Since(begin)
		}
		if time.Since(begin) > limit {
			w.Fatalf("%s: not within %s: %s", what, limit, wrong)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func longAgo() time.Time { return time.Now().Add(-time.Hour) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// unequal says what differs; nothing if nothing does.
func unequal(what string, got, want any) string {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Sprintf("%s: %s, want %s; ", what, g, w)
	}
	return ""
}
