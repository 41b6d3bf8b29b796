package kube

import (
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

const someConfig = `{"cniVersion":"0.3.1","name":"a","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`

var somePoolID = ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}

func TestWatcher(t *testing.T) {
	s := newScene(t)
	s.makePod("old", nil)
	for _, part := range []struct {
		name string
		test func(*scene)
	}{
		{"a cluster without definitions", testNoDefinitions},
		{"before anything is read", testBeforeSync},
		{"what it knows", testKnown},
		{"what it signals of pods", testPodSignals},
		{"what it signals of nodes", testNodeSignals},
		{"what it signals of definitions and reservations", testOtherSignals},
		{"snapshots", testSnapshots},
		{"a pool that cannot be read", testUnreadablePool},
		{"lost connections", testLostConnections},
		{"a watch that is too old", testTooOld},
		{"an interrupted list", testInterruptedList},
		{"the API server starts again", testRestart},
	} {
		t.Run(part.name, func(t *testing.T) {
			inner := *s
			inner.T = t
			s.proxy.Reset()
			if err := s.proxy.Up(); err != nil {
				t.Fatal(err)
			}
			part.test(&inner)
		})
	}
}

func testNoDefinitions(s *scene) {
	s.watch()
	picture, err := ReadCluster(s.Context(), s.client, []byte("{}"))
	if err != nil {
		s.Fatal(err)
	}
	for name, nets := range map[string]reclaim.Networks{"watcher": s.watcher, "picture": picture} {
		if _, known := nets.Protection(somePoolID); known || !nets.Named(somePoolID) {
			s.Errorf("%s: something is said about pools although nothing can be known", name)
		}
	}
	s.cp.ApplyCRDs(s, "testdata/definitions")
}

func testBeforeSync(s *scene) {
	w := NewWatcher(s.client, nil)
	_, podErr := w.Pod(s.Context(), s.namespace, "old")
	_, nodeErr := w.Node(s.Context(), "n")
	_, snapErr := w.Snapshots(s.Context())
	if podErr == nil || nodeErr == nil || snapErr == nil || w.Ready() == nil || !w.Named(somePoolID) {
		s.Errorf("it answers before it knows: %v, %v, %v, %v", podErr, nodeErr, snapErr, w.Ready())
	}
}

func testKnown(s *scene) {
	s.cp.Must(s).Create("/api/v1/nodes", testenv.Object{"metadata": testenv.Object{"name": "n1"}})
	s.define("a", someConfig)
	s.watch()
	s.makePod("known", testenv.Object{"k8s.v1.cni.cncf.io/network-status": `[{"ips":["10.0.0.1"]}]`})
	s.eventually("a new pod", func() bool { return s.hasPod("known") })
	picture, err := ReadCluster(s.Context(), s.client, []byte("{}"))
	if err != nil {
		s.Fatal(err)
	}
	for name, c := range map[string]reclaim.Cluster{"watcher": s.watcher, "picture": picture, "live": Live(s.client)} {
		pod, err := c.Pod(s.Context(), s.namespace, "known")
		if err != nil || pod == nil || pod.UID == "" || pod.Node != "n1" || pod.Phase != reclaim.Pending || pod.Created.IsZero() || len(pod.Addresses) != 1 {
			s.Errorf("%s: got pod %+v, %v", name, pod, err)
		}
		node, err := c.Node(s.Context(), "n1")
		if err != nil || node == nil || node.Name != "n1" {
			s.Errorf("%s: got node %+v, %v", name, node, err)
		}
		if pod, err := c.Pod(s.Context(), s.namespace, "none"); pod != nil || err != nil {
			s.Errorf("%s: got %+v, %v for a pod that is not there", name, pod, err)
		}
		if pod, err := c.Pod(s.Context(), "nowhere", "known"); pod != nil || err != nil {
			s.Errorf("%s: got %+v, %v for a pod in a namespace that is not there", name, pod, err)
		}
		if node, err := c.Node(s.Context(), "none"); node != nil || err != nil {
			s.Errorf("%s: got %+v, %v for a node that is not there", name, node, err)
		}
	}
	for name, nets := range map[string]reclaim.Networks{"watcher": s.watcher, "picture": picture} {
		if on, known := nets.Protection(somePoolID); !on || !known || nets.Named(poolOf("", "", "10.7.0.0/24")) {
			s.Errorf("%s: the definition is not heeded", name)
		}
	}
	if err := s.watcher.Ready(); err != nil {
		s.Error(err)
	}
}
