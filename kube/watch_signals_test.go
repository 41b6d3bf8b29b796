package kube

import (
	"fmt"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// expect does something and checks whether it was signalled by the time that it is
// seen.
func (s *scene) expect(name string, want bool, do func(), seen func() bool) {
	s.Helper()
	s.signalled()
	do()
	s.eventually(name, seen)
	if want {
		s.eventually(name, s.signalled)
	} else if s.signalled() {
		s.Errorf("%s: it was signalled", name)
	}
}

func testPodSignals(s *scene) {
	s.watch()
	pod := func(name string, f func(*reclaim.Pod) bool) func() bool {
		return func() bool {
			p, err := s.watcher.Pod(s.Context(), s.namespace, name)
			return err == nil && p != nil && f(p)
		}
	}
	is := func(phase reclaim.Phase) func(*reclaim.Pod) bool {
		return func(p *reclaim.Pod) bool { return p.Phase == phase }
	}
	if s.signalled() {
		s.Error("what was so from the start is signalled")
	}
	s.expect("created", false, func() { s.makePod("a", nil) }, pod("a", is(reclaim.Pending)))
	s.expect("running", false, func() { s.phase("a", reclaim.Running) }, pod("a", is(reclaim.Running)))
	s.expect("network status", false, func() {
		s.cp.Must(s).Patch(s.pods()+"/a", testenv.MergePatch, testenv.Object{"metadata": testenv.Object{
			"annotations": testenv.Object{"k8s.v1.cni.cncf.io/network-status": `[{"ips":["10.0.0.1"]}]`},
		}})
	}, pod("a", func(p *reclaim.Pod) bool { return p.Networks }))
	s.expect("terminating", true, func() { s.cp.Must(s).Delete(s.pods() + "/a") },
		pod("a", func(p *reclaim.Pod) bool { return !p.Deleted.IsZero() && p.Grace > 0 }))
	s.expect("failed", true, func() { s.phase("a", reclaim.Failed) }, pod("a", is(reclaim.Failed)))
	s.expect("gone", true, func() { s.killPod("a") }, func() bool { return !s.hasPod("a") })
}

func testNodeSignals(s *scene) {
	s.watch()
	node := func(f func(*reclaim.Node) bool) func() bool {
		return func() bool {
			n, err := s.watcher.Node(s.Context(), "n2")
			return err == nil && n != nil && f(n)
		}
	}
	taint := func(taints ...any) func() {
		return func() {
			s.cp.Must(s).Patch("/api/v1/nodes/n2", testenv.MergePatch, testenv.Object{"spec": testenv.Object{"taints": taints}})
		}
	}
	s.expect("created", false, func() {
		s.cp.Must(s).Create("/api/v1/nodes", testenv.Object{"metadata": testenv.Object{"name": "n2"}})
	}, node(func(*reclaim.Node) bool { return true }))
	beats := func() {
		for i := range 3 {
			s.cp.Must(s).Patch("/api/v1/nodes/n2/status", testenv.MergePatch, testenv.Object{"status": testenv.Object{
				"conditions": []any{testenv.Object{"type": "Ready", "status": "True", "lastHeartbeatTime": time.Unix(int64(i), 0).UTC().Format(time.RFC3339)}},
			}})
		}
		s.cp.Must(s).Create("/api/v1/nodes", testenv.Object{"metadata": testenv.Object{"name": "n3"}})
	}
	s.expect("heart-beats", false, beats, func() bool {
		n, err := s.watcher.Node(s.Context(), "n3")
		return err == nil && n != nil
	})
	s.expect("unreachable", true, taint(testenv.Object{
		"key": unreachableTaint, "effect": "NoExecute", "timeAdded": "2024-05-01T10:00:00Z",
	}), node(func(n *reclaim.Node) bool { return !n.Unreachable.IsZero() }))
	s.expect("out of service", true, taint(testenv.Object{"key": outOfServiceTaint, "effect": "NoExecute"}),
		node(func(n *reclaim.Node) bool { return n.OutOfService }))
	s.expect("gone", true, func() { s.cp.Must(s).Delete("/api/v1/nodes/n2") }, func() bool {
		n, err := s.watcher.Node(s.Context(), "n2")
		return err == nil && n == nil
	})
}

func testOtherSignals(s *scene) {
	s.watch()
	path := fmt.Sprintf(definitionPath, s.namespace)
	other := poolOf("", "", "10.8.0.0/24")
	s.expect("a definition", true, func() {
		s.define("b", `{"name":"b","ipam":{"type":"whereabouts","range":"10.8.0.0/24"}}`)
	}, func() bool { return s.watcher.Named(other) })
	s.expect("a definition that goes", true, func() { s.cp.Must(s).Delete(path + "/b") }, func() bool { return !s.watcher.Named(other) })

	reservations := func(n int) func() bool {
		return func() bool { return len(s.snapshot(s.watcher.Fresh).Reservations) == n }
	}
	var taken ipam.Change
	s.expect("a reservation", false, func() { taken = s.take(somePoolID, "10.0.0.9", "r", true) }, reservations(1))
	s.expect("a reservation that goes", true, func() {
		s.commit(ipam.Change{Pool: taken.Pool, Address: taken.Address, Before: taken.After})
	}, reservations(0))
}
