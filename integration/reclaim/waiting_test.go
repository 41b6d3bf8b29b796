package reclaim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// A pod that cannot get an address is told why by an event, with the rights of the
// shipped role; one that can is not.
func TestWaitingPodsAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.bindRole("../../manifests/base/reconciler.yaml", testenv.User1)
	kubeconfig := w.cp.Kubeconfig(t, testenv.Options{Namespace: w.namespace, Via: w.proxy, User: testenv.User1})
	namespace := w.cp.Namespace(t)
	full := w.network(namespace, "full", "10.102.0.0/30")
	roomy := w.network(namespace, "roomy", "10.102.1.0/24")
	m := w.node("busy")
	var holders []string
	for i := range 2 {
		p := w.pod(namespace, fmt.Sprintf("holder-%d", i), m.name)
		p.runs(w.mustAdd(m, p, full))
		holders = append(holders, p.ref())
	}
	holder := w.pod(namespace, "holder-2", m.name)
	a := w.mustAdd(m, holder, roomy)
	holder.runs(a)
	asks := func(name, networks string) *pod {
		return w.pod(namespace, name, m.name, Object{"k8s.v1.cni.cncf.io/networks": networks})
	}
	starved := asks("starved", "full@net1")
	refused := asks("refused", fmt.Sprintf(`[{"name": "roomy", "ips": ["%s/24"]}]`, a))
	// A network of which nobody has an address yet, and an overlapping one has this.
	w.network(namespace, "around", "10.102.0.0/16")
	beside := asks("beside", fmt.Sprintf(`[{"name": "around", "ips": ["%s/16"]}]`, a))
	served := asks("served", "roomy")
	first := w.startWith(kubeconfig, "--schedule", rarely, "--grace", "1s")
	second := w.startWith(kubeconfig, "--schedule", rarely, "--grace", "1s")

	tells(t, w, starved, "IPPoolExhausted", namespace+"/full", "10.102.0.0/30", "2 in use", "0 of 2 usable", "widen")
	tells(t, w, refused, "RequestedIPHeld", a.String(), holder.ref(), "request another")
	tells(t, w, beside, "RequestedIPHeld", namespace+"/around", a.String(), holder.ref(), "IPPool 10.102.1.0-24")
	for _, p := range []*pod{served, holder} {
		if events := w.eventsOn(p); len(events) > 0 {
			t.Errorf("%s is told %v", p.name, events)
		}
	}
	for _, r := range w.proxy.Find(testenv.Match{Func: forbidden}) {
		t.Errorf("forbidden: %s", r)
	}
	if t.Failed() {
		t.Log(holders, first.log.String(), second.log.String())
	}
}

// A node's slice is full while another node has room: a pod is told of the slice, unless
// its node has a second one with room.
func TestPodsOfAFullSliceAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	namespace := w.cp.Namespace(t)
	cut := network{name: "cut", cidr: "10.104.0.0/24", kubeconfig: w.kubeconfig, sliceSize: "/30"}
	w.define(namespace, cut)
	slices := []Object{}
	full, roomy := w.node("full"), w.node("roomy")
	for i, m := range []machine{full, roomy, roomy} {
		slices = append(slices, Object{"nodeName": m.name, "sliceRange": fmt.Sprintf("10.104.0.%d/30", 4*i)})
	}
	w.must().Create(w.path("nodeslicepools"), Object{
		"apiVersion": groupVersion, "kind": "NodeSlicePool", "metadata": Object{"name": "cut"},
		"spec": Object{"range": cut.cidr, "sliceSize": cut.sliceSize}, "status": Object{"allocations": slices},
	})
	for m, pods := range map[machine]int{full: 3, roomy: 5} { // 3 are in the first slice, 4 in others
		for i := range pods {
			p := w.pod(namespace, fmt.Sprintf("%s-%d", m.name, i), m.name)
			p.runs(w.mustAdd(m, p, cut))
		}
	}
	asks := func(name string, m machine) *pod {
		return w.pod(namespace, name, m.name, Object{"k8s.v1.cni.cncf.io/networks": "cut"})
	}
	starved, served := asks("starved", full), asks("served", roomy)
	w.start("--schedule", rarely, "--grace", "1s")
	tells(t, w, starved, "IPPoolExhausted", namespace+"/cut", "10.104.0.0/30", "full-10.104.0.0-30", "3 in use")
	if events := w.eventsOn(served); len(events) > 0 {
		t.Errorf("%s is told %v", served.name, events)
	}
}

// tells waits for an event on a pod with all these words.
func tells(t *testing.T, w *world, p *pod, reason string, words ...string) {
	t.Helper()
	var events []string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		events = w.eventsOn(p)
		for _, e := range events {
			if !strings.HasPrefix(e, reason+": ") {
				continue
			}
			for _, word := range words {
				if !strings.Contains(e, word) {
					t.Errorf("%q lacks %q", e, word)
				}
			}
			return
		}
	}
	t.Errorf("%s has no event %s: %v", p.name, reason, events)
}

func (w *world) eventsOn(p *pod) []string {
	w.Helper()
	var found []string
	for _, e := range w.must().List("/api/v1/namespaces/" + p.namespace + "/events") {
		if e.String("involvedObject", "uid") == p.uid {
			found = append(found, e.String("reason")+": "+e.String("message"))
		}
	}
	return found
}
