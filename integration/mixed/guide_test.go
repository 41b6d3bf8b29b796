package mixed

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// journey is a cluster on its way from the older plugin to ours, and back, in the order
// of docs/upgrade.md, while pods come and go.
type journey struct {
	*world
	nodes []*node
	nets  []network
	live  map[string]*resident // by pod

	steps        []string // the guide's headings that were done
	next, grants int      // how many pods and grants there have been
}

// resident is a pod that lives.
type resident struct {
	sandbox
	node *node
	net  network
}

// The guide, step by step under its headings: nodes of both kinds, with the rights that
// the guide leaves them. All the way each live pod keeps its address, alone, and at the
// end nothing is left. That its commands do what a step says is shown in a cluster, by
// `make e2e`.
func TestGuide(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, oldDefinitions)
	w.user = testenv.User1
	j := &journey{world: w, live: map[string]*resident{}, nets: []network{
		networkOf("net-a", "10.92.0.0/24", "10.92.0.1", "10.92.0.40"),
		networkOf("net-b", "10.92.0.0/25", "10.92.0.1", "10.92.0.40"),
	}}
	w.define(j.nets...)
	for range 3 {
		j.nodes = append(j.nodes, w.oldNode())
	}
	older := "../../manifests/upgrade/older-plugin.yaml"
	ours := "../../manifests/base/plugin.yaml"

	j.grant("before", older)
	j.step("1. Look, and save the records", func() {})
	j.step("2. Stop the older clean-up", func() {})
	j.step("3. Keep the older plugin's rights", func() { j.grant("older", older) })
	var c *child
	j.step("4. Definitions, roles and the clean-up", func() {
		w.cp.ApplyCRDs(t, ourDefinitions)
		j.grant("ours", ours)
		c = w.watches()
		j.revoke("before")
	})
	for _, n := range j.nodes {
		j.step("5. The plugin, node by node", func() { n.old = false })
	}
	j.step("6. Node slices", func() {})
	j.step("7. Take the older plugin's rights away", func() { j.revoke("older") })

	j.step("1. The older plugin's rights", func() { j.grant("older", older) })
	for _, n := range j.nodes {
		j.step("2. The older plugin, node by node", func() { n.old = true })
	}
	j.step("3. The clean-up ends", func() { c.kill() })
	if want := headings(t, "../../docs/upgrade.md"); !slices.Equal(j.steps, want) {
		t.Errorf("the guide's steps are %q, and here %q", want, j.steps)
	}
	for _, r := range slices.Collect(maps.Values(j.live)) {
		j.goes(r)
	}
	w.empty()
	for _, n := range j.nodes {
		for _, r := range n.proxy.Find(testenv.Match{Func: func(r testenv.Request) bool { return r.Status == http.StatusForbidden }}) {
			t.Errorf("forbidden: %s: %s", n.name, r)
		}
	}
	if t.Failed() {
		t.Log(c.log.String())
	}
}

// Without the rights that the guide has applied first, the older plugin stands still as
// soon as our role replaces its own.
func TestGuideNeedsTheRightsOfTheOlderPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user = testenv.User2
	j := &journey{world: w}
	j.grant("ours", "../../manifests/base/plugin.yaml")
	net := networkOf("net-a", "10.92.0.0/24", "10.92.0.1", "10.92.0.40")
	n := w.oldNode()
	p, err := n.start("ADD", pod("a"), net)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.kill(); _, _ = p.wait() }()
	w.eventually("a request for the lease is forbidden", func() string {
		if n.proxy.Count(testenv.Match{Path: "/leases", Func: func(r testenv.Request) bool { return r.Status == http.StatusForbidden }}) == 0 {
			return "not yet"
		}
		return ""
	})
	if n.proxy.Count(testenv.Match{Path: "/ippools"}) > 0 {
		t.Error("the older plugin goes on without its lease")
	}
}

// headings are those of the steps in a guide.
func headings(t *testing.T, file string) (steps []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if step, ok := strings.CutPrefix(line, "### "); ok {
			steps = append(steps, strings.TrimSpace(step))
		}
	}
	return steps
}

// step does something of a step of the guide, and then lets pods come, be restarted and
// go on every node.
func (j *journey) step(heading string, do func()) {
	j.Helper()
	if len(j.steps) == 0 || j.steps[len(j.steps)-1] != heading {
		j.steps = append(j.steps, heading)
	}
	do()
	for i, n := range j.nodes {
		j.comes(n, j.nets[i%2])
		j.comes(n, j.nets[(i+1)%2])
		if old := j.oldest(n); old != nil {
			j.restarts(old)
		}
		for j.count(n) > 4 {
			j.goes(j.oldest(n))
		}
	}
	j.check(heading)
}

func (j *journey) comes(n *node, net network) {
	j.Helper()
	j.next++
	b, err := j.makePod(j.Context(), fmt.Sprintf("pod-%03d", j.next), n.name)
	if err != nil {
		j.Fatal(err)
	}
	b.had = j.addsAny(n, b, net)
	if err := j.runs(j.Context(), b, b.had); err != nil {
		j.Fatal(err)
	}
	j.live[b.pod] = &resident{b, n, net}
}

// restarts gives a pod another container, which must have the same address; the DEL of
// the first comes late.
func (j *journey) restarts(r *resident) {
	j.Helper()
	was := r.sandbox
	r.container += "x"
	if a := j.addsAny(r.node, r.sandbox, r.net); a != r.had {
		j.Errorf("%s had %s, and after a restart %s", r.pod, r.had, a)
	}
	j.dels(r.node, was, r.net)
}

func (j *journey) goes(r *resident) {
	j.Helper()
	j.dels(r.node, r.sandbox, r.net)
	if err := j.dropPod(j.Context(), r.sandbox); err != nil {
		j.Fatal(err)
	}
	delete(j.live, r.pod)
}

func (j *journey) oldest(n *node) *resident {
	for _, name := range slices.Sorted(maps.Keys(j.live)) {
		if j.live[name].node == n {
			return j.live[name]
		}
	}
	return nil
}

func (j *journey) count(n *node) int {
	here := 0
	for _, r := range j.live {
		if r.node == n {
			here++
		}
	}
	return here
}

// check makes sure that each live pod's address is its own and recorded for it, and that
// nothing else is recorded.
func (j *journey) check(when string) {
	j.Helper()
	holders := map[netip.Addr]string{}
	for _, r := range j.live {
		if other := holders[r.had]; other != "" {
			j.Errorf("%s: %s is held by %s and by %s", when, r.had, other, r.pod)
		}
		holders[r.had] = r.pod
		if id := j.entry(r.net, r.had.String()).String("id"); id != r.container {
			j.Errorf("%s: the entry of %s is %q's, want %q's", when, r.had, id, r.container)
		}
		if podRef := j.reservation(r.net, r.had.String()).String("podref"); podRef != r.podRef() {
			j.Errorf("%s: the reservation of %s is of %q, want of %q", when, r.had, podRef, r.podRef())
		}
	}
	if left := j.left(); len(left) != 2*len(j.live) {
		j.Errorf("%s: there are %d records, want two for each of %d pods: %q", when, len(left), len(j.live), left)
	}
}

// grant binds the role of a manifest to the nodes' user in this namespace, and waits
// until that is in force.
func (j *journey) grant(name, file string) {
	j.Helper()
	j.grants++
	role := j.roleOf(file)
	role["metadata"] = Object{"name": fmt.Sprintf("%s-%d", j.namespace, j.grants)}
	role["kind"] = "ClusterRole"
	j.must().Create(rights+"/clusterroles", role)
	j.must().Create(j.bindings(), Object{
		"metadata": Object{"name": name},
		"roleRef":  Object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.Name()},
		"subjects": []Object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": j.user}},
	})
	asked := j.path(pools) + "/none"
	if name == "older" {
		asked = leasePath(j.namespace) + "/none"
	}
	client := j.cp.Client().As(j.cp.Token(j.user))
	j.eventually("the rights are in force", func() string {
		if err := client.Get(j.Context(), asked, nil); testenv.StatusCode(err) != http.StatusNotFound {
			return err.Error()
		}
		return ""
	})
}

// revoke ends a grant.
func (j *journey) revoke(name string) {
	j.Helper()
	j.must().Delete(j.bindings() + "/" + name)
}

const rights = "/apis/rbac.authorization.k8s.io/v1"

func (j *journey) bindings() string { return rights + "/namespaces/" + j.namespace + "/rolebindings" }

// roleOf is the one role of a manifest.
func (j *journey) roleOf(file string) Object {
	j.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		j.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var object Object
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			j.Fatal(err)
		}
		if kind := object.String("kind"); kind == "Role" || kind == "ClusterRole" {
			return object
		}
	}
	j.Fatalf("%s has no role", file)
	return nil
}
