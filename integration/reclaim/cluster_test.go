package reclaim

import (
	"fmt"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const (
	unreachable  = "node.kubernetes.io/unreachable"
	outOfService = "node.kubernetes.io/out-of-service"

	statusAnnotation = "k8s.v1.cni.cncf.io/network-status"
)

// node makes a healthy node object and the plugin's directories of it.
func (w *world) node(name string) machine {
	w.Helper()
	w.must().Create("/api/v1/nodes", Object{"metadata": Object{"name": name}})
	w.setTaints(name) // the server begins with "not ready"
	w.setReady(name, "True", time.Now())
	return machine{name: name, runDir: w.TempDir(), stateDir: w.TempDir()}
}

func nodePath(name string) string { return "/api/v1/nodes/" + name }

func (w *world) setTaints(node string, taints ...Object) {
	w.Helper()
	if taints == nil {
		taints = []Object{}
	}
	w.must().Patch(nodePath(node), testenv.MergePatch, Object{"spec": Object{"taints": taints}})
}

func (w *world) setReady(node, status string, since time.Time) {
	w.Helper()
	w.must().Patch(nodePath(node)+"/status", testenv.MergePatch, Object{"status": Object{"conditions": []Object{{
		"type": "Ready", "status": status, "reason": "Test", "message": "",
		"lastHeartbeatTime": stamp(since), "lastTransitionTime": stamp(since),
	}}}})
}

func taint(key string, since time.Time) Object {
	return Object{"key": key, "effect": "NoExecute", "timeAdded": stamp(since)}
}

// lose marks a node as the node controller does some time after its power is cut.
func (w *world) lose(node string, since time.Time) {
	w.Helper()
	w.setReady(node, "Unknown", since)
	w.setTaints(node, taint(unreachable, since), Object{"key": unreachable, "effect": "NoSchedule", "timeAdded": stamp(since)})
}

func (w *world) dropNode(node string) {
	w.Helper()
	w.must().Delete(nodePath(node))
}

// pod is a pod object and the container that runs it.
type pod struct {
	w                          *world
	namespace, name, uid, node string
	container, ifName          string
}

func podPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

func (p *pod) path() string { return podPath(p.namespace) + "/" + p.name }
func (p *pod) ref() string  { return p.namespace + "/" + p.name }

// pod makes a pod that has a node and is Pending.
func (w *world) pod(namespace, name, node string, annotations ...Object) *pod {
	w.Helper()
	meta := Object{"name": name}
	for _, a := range annotations {
		meta["annotations"] = a
	}
	made := w.must().Create(podPath(namespace), podObject(meta, node))
	uid := made.String("metadata", "uid")
	return &pod{w: w, namespace: namespace, name: name, uid: uid, node: node, container: "c-" + uid, ifName: "net1"}
}

func podObject(meta Object, node string) Object {
	return Object{"metadata": meta, "spec": Object{
		"nodeName": node, "containers": []any{Object{"name": "c", "image": "i"}},
		"terminationGracePeriodSeconds": 3600,
	}}
}

// phase sets what the kubelet says of a pod.
func (p *pod) phase(phase string) *pod {
	p.w.Helper()
	p.w.must().Patch(p.path()+"/status", testenv.MergePatch, Object{"status": Object{"phase": phase}})
	return p
}

func (p *pod) annotate(key, value string) *pod {
	p.w.Helper()
	p.w.must().Patch(p.path(), testenv.MergePatch, Object{"metadata": Object{"annotations": Object{key: value}}})
	return p
}

// runs is a pod that runs and shows addresses on its second and further interfaces.
func (p *pod) runs(addresses ...any) *pod {
	p.w.Helper()
	return p.annotate(statusAnnotation, networkStatus(p.w, p.ifName, addresses...)).phase("Running")
}

func networkStatus(tb interface {
	Helper()
	Fatal(...any)
}, ifName string, addresses ...any,
) string {
	list := []Object{{"name": "default-net", "interface": "eth0", "ips": []string{"10.244.0.17"}, "default": true, "dns": Object{}}}
	for i, a := range addresses {
		name := ifName
		if i > 0 {
			name = fmt.Sprintf("x%d", i)
		}
		list = append(list, Object{"name": "default/net", "interface": name, "ips": []string{fmt.Sprint(a)}, "mac": "0a:58:0a:00:00:01", "dns": Object{}})
	}
	return encode(tb, list)
}

// terminates asks for the pod's end, for which it has so many seconds.
func (p *pod) terminates(grace int) *pod {
	p.w.Helper()
	p.deleteWith(grace)
	return p
}

// vanishes removes the pod object at once, as a forced deletion and the end of a
// pod do.
func (p *pod) vanishes() { p.w.Helper(); p.deleteWith(0) }

func (p *pod) deleteWith(grace int) {
	p.w.Helper()
	err := p.w.cp.Client().Delete(p.w.Context(), p.path(), Object{"gracePeriodSeconds": grace})
	if err != nil {
		p.w.Fatal(err)
	}
}
