package reclaim

import (
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// With the rights of the shipped role and no others clean-up does all that it has to do, and
// makes use of each of them.
func TestRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	granted := w.bindRole("../../manifests/base/reconciler.yaml", testenv.User1)
	kubeconfig := w.cp.Kubeconfig(t, testenv.Options{Namespace: w.namespace, Via: w.proxy, User: testenv.User1})
	number := 0
	situation := func(about situation) *scene {
		number++
		s := w.newScene(number, about)
		about.set(s)
		return s
	}
	all := rightsSituations()
	var scenes []*scene
	for _, about := range all {
		scenes = append(scenes, situation(about))
	}
	once := w.startWith(kubeconfig, "--once", "--grace", "1s")
	<-once.done
	for _, s := range scenes {
		if wrong := s.check(); wrong != "" {
			t.Errorf("one run: %s: %s", s.about.name, wrong)
		}
	}
	daemon := w.startWith(kubeconfig, "--schedule", rarely, "--grace", "1s").passes()
	for _, about := range all {
		situation(about).comesTo(about.keeps...)
	}
	used := testenv.RightsUsed(w.proxy.Requests())
	t.Log("used:", slices.Sorted(maps.Keys(used)))
	for right := range granted {
		if !used[right] {
			t.Errorf("not used: %s", right)
		}
	}
	for _, r := range w.proxy.Find(testenv.Match{Func: forbidden}) {
		t.Errorf("forbidden: %s", r)
	}
	if t.Failed() {
		t.Log(once.log.String(), daemon.log.String())
	}
}

func forbidden(r testenv.Request) bool { return r.Status == http.StatusForbidden }

// rightsSituations are those that need something done: free both halves, make each
// half again, free each half, remove a pool.
func rightsSituations() []situation {
	var all []situation
	for _, about := range slices.Concat(endedPods(), lostNodes(), statuses(), halves(), leftovers(), networks()) {
		switch about.name {
		case "one of three pods is gone", "node gone", "node out of service", "network status with the default network alone",
			"reservation without an entry, its pod shows the address", "reservation without an entry, its pod is gone",
			"entry without a reservation, its pod shows the address", "entry without a reservation, its pod is gone",
			"the definition went first and the pod after it":
			all = append(all, about)
		}
	}
	return append(all, situation{name: "the reservation of an entry is another container's", keeps: []int{1}, set: func(s *scene) {
		_, a := s.runner("a")
		s.patchReservation(s.net, a, Object{"podref": s.namespace + "/gone", "uid": "gone", "containerid": "c-gone"})
	}}, situation{name: "the pool of a reservation is gone", keeps: []int{1}, set: func(s *scene) {
		s.runner("a")
		s.must().Delete(s.path(pools) + "/" + s.net.pool())
	}})
}

// bindRole gives a user the rights of a manifest's cluster role, and answers them as
// "resource verb".
func (w *world) bindRole(file, user string) map[string]bool {
	w.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	documents := strings.Split(string(data), "\n---\n")
	data = []byte(documents[slices.IndexFunc(documents, func(d string) bool { return strings.Contains(d, "kind: ClusterRole\n") })])
	var role struct {
		Rules []struct{ Resources, Verbs []string }
	}
	var object Object
	for _, into := range []any{&role, &object} {
		if err := yaml.Unmarshal(data, into); err != nil {
			w.Fatal(err)
		}
	}
	const group = "rbac.authorization.k8s.io"
	w.must().Create("/apis/"+group+"/v1/clusterroles", object)
	w.must().Create("/apis/"+group+"/v1/clusterrolebindings", Object{
		"metadata": Object{"name": object.Name()},
		"roleRef":  Object{"apiGroup": group, "kind": "ClusterRole", "name": object.Name()},
		"subjects": []Object{{"apiGroup": group, "kind": "User", "name": user}},
	})
	granted := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				granted[resource+" "+verb] = true
			}
		}
	}
	return granted
}
