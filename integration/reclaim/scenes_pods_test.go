package reclaim

import (
	"fmt"
	"time"
)

// endedPods are about pods that are over, or seem to be.
func endedPods() []situation {
	return []situation{
		{name: "a pod runs and shows its address", keeps: []int{1}, set: func(s *scene) { s.runner("a") }},
		{name: "a pod is gone", set: func(s *scene) {
			p, _ := s.runner("a")
			p.vanishes()
		}},
		{name: "one of three pods is gone", keeps: []int{1, 3}, set: func(s *scene) {
			s.runner("a")
			p, _ := s.runner("b")
			s.runner("c")
			p.vanishes()
		}},
		{name: "a young record of a pod that is gone", set: func(s *scene) {
			p := s.pod("a")
			s.mustAdd(s.node, p, s.net)
			p.vanishes()
		}},
		{name: "graceful shutdown of a node left a pod Succeeded", set: func(s *scene) {
			p, _ := s.runner("a")
			p.phase("Succeeded")
		}},
		{name: "graceful shutdown of a node left a pod Failed", set: func(s *scene) {
			p, _ := s.runner("a")
			p.phase("Failed")
		}},
		{name: "a Job finished on a node that is gone", set: func(s *scene) {
			p := s.pod("job-x7k2p", Object{"batch.kubernetes.io/job-completion-index": "0"})
			p.runs(s.takes(p)).phase("Succeeded")
			s.dropNode(s.node.name)
		}},
		{name: "the pod of a static pod's file", keeps: []int{1}, set: func(s *scene) {
			p := s.mirrorPod("hash-1")
			p.uid = "hash-1" // what the kubelet tells the runtime
			s.takes(p)
			p.phase("Running")
		}},
		{name: "the pod of an earlier static pod's file", set: func(s *scene) {
			p := s.mirrorPod("hash-2")
			p.uid = "hash-1"
			s.takes(p)
			p.phase("Running")
		}, otherwise: true, withOld: []int{1}},
	}
}

func (s *scene) mirrorPod(hash string) *pod {
	s.Helper()
	return s.pod("static-"+s.node.name, Object{"kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash, "kubernetes.io/config.source": "file"})
}

// lostNodes are about pods that are to end on a node that cannot say so.
func lostNodes() []situation {
	ending := func(grace int, then func(s *scene)) func(s *scene) {
		return func(s *scene) {
			p, _ := s.runner("a")
			p.terminates(grace)
			then(s)
		}
	}
	return []situation{
		{name: "a pod takes an hour to end", keeps: []int{1}, set: ending(3600, func(*scene) {})},
		{name: "node unreachable for longer than the pod's grace", set: ending(1, func(s *scene) {
			s.lose(s.node.name, longAgo())
			time.Sleep(1100 * time.Millisecond) // the pod's grace
		})},
		{name: "node unreachable within the pod's grace", keeps: []int{1}, set: ending(3600, func(s *scene) {
			s.lose(s.node.name, time.Now().Add(-10*time.Minute))
		})},
		{name: "node unreachable for long, but the pod is not to end", keeps: []int{1}, set: func(s *scene) {
			s.runner("a")
			s.lose(s.node.name, longAgo().Add(-24*time.Hour))
		}},
		{name: "node out of service", set: ending(3600, func(s *scene) {
			s.setTaints(s.node.name, taint(outOfService, time.Now()))
		})},
		{name: "node out of service, but the pod is not to end", keeps: []int{1}, set: func(s *scene) {
			s.runner("a")
			s.setTaints(s.node.name, taint(outOfService, time.Now()))
		}},
		{name: "node gone", set: ending(3600, func(s *scene) { s.dropNode(s.node.name) })},
		{name: "node gone, but the pod is not to end", keeps: []int{1}, set: func(s *scene) {
			s.runner("a")
			s.dropNode(s.node.name)
		}},
		{name: "a healthy node is emptied by a taint and the pod takes an hour to end", keeps: []int{1}, set: ending(3600, func(s *scene) {
			s.setTaints(s.node.name, taint("example.com/maintenance", longAgo()))
			s.disrupted("a")
		})},
	}
}

// disrupted sets the condition that an eviction by a taint leaves.
func (s *scene) disrupted(name string) {
	s.Helper()
	path := podPath(s.namespace) + "/" + name + "/status"
	s.must().Patch(path, "application/strategic-merge-patch+json", Object{"status": Object{"conditions": []Object{{
		"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "lastTransitionTime": stamp(longAgo()),
	}}}})
}

// statuses are about what the pod shows of its networks.
func statuses() []situation {
	showing := func(value string) func(s *scene) {
		return func(s *scene) {
			p := s.pod("a")
			s.takes(p)
			p.annotate(statusAnnotation, value).phase("Running")
		}
	}
	all := []situation{
		{name: "a pod is Pending while its ADD runs", keeps: []int{1}, set: func(s *scene) { s.mustAdd(s.node, s.pod("a"), s.net) }},
		{name: "a pod is Pending for an hour", keeps: []int{1}, set: func(s *scene) { s.takes(s.pod("a")) }},
		{name: "no network status", keeps: []int{1}, set: func(s *scene) {
			p := s.pod("a")
			s.takes(p)
			p.phase("Running")
		}},
		{name: "empty network status", keeps: []int{1}, set: showing("")},
		{name: "network status without any network", keeps: []int{1}, set: showing("[]")},
		{name: "network status null", keeps: []int{1}, set: showing("null")},
		{name: "network status cut off", keeps: []int{1}, set: showing(`[{"name":"default-net","interface":"eth0","ips":["10.244.0.17"]`)},
		{name: "network status of another shape", keeps: []int{1}, set: showing(`{"networks":[]}`)},
		{name: "network status with addresses that are none", keeps: []int{1}, set: showing(`[{"name":"d","ips":["10.244.0.17"]},{"name":"n","ips":["ten"]}]`)},
		{name: "network status with the default network alone", set: func(s *scene) {
			p := s.pod("a")
			s.takes(p)
			p.runs()
		}},
		{name: "network status with another address", set: func(s *scene) {
			p := s.pod("a")
			s.takes(p)
			p.runs(s.net.host(9))
		}},
		{name: "the address is the default network's", keeps: []int{1}, set: func(s *scene) {
			p := s.pod("a")
			a := s.takes(p)
			p.annotate(statusAnnotation, fmt.Sprintf(`[{"name":"net","interface":"eth0","ips":["%s"],"default":true,"dns":{}}]`, a)).phase("Running")
		}},
		{name: "the address is shown under another interface", keeps: []int{1}, set: func(s *scene) {
			p := s.pod("a")
			a := s.takes(p)
			p.ifName = "macvlan-7"
			p.runs(a)
		}},
		{name: "the status is under its older name", keeps: []int{1}, set: func(s *scene) {
			p := s.pod("a")
			a := s.takes(p)
			p.annotate("k8s.v1.cni.cncf.io/networks-status", networkStatus(s, "net1", a)).phase("Running")
		}},
	}
	for length := 1; length <= 15; length += 7 {
		all = append(all, situation{name: fmt.Sprintf("an interface name of %d", length), keeps: []int{1}, set: func(s *scene) {
			p := s.pod("a")
			p.ifName = "abcdefghijklmno"[:length]
			p.runs(s.takes(p))
		}})
	}
	return all
}
