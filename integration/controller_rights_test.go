package integration

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// With the rights of its manifest and no others the controller does all that it has to
// do, and makes use of each of them.
func TestRightsOfTheController(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	granted := s.grantController()
	s.addNodes("node-a", "node-b")
	grows := s.sliced("grows", "10.5.0.0/28", "/30", Object{"node_slice_max": 2, "allow_dot_zero": true})
	s.define("default", "grows", grows)
	s.define(s.namespace, "broken", s.cluster.config("broken", Object{"range": "192.168.2.0/24", "node_slice_size": "/22"}))
	r := s.control("--forget-after", "1s")

	s.settled("grows", "10.5.0.0/30=node-a", "10.5.0.4/30=node-b", "10.5.0.8/30=", "10.5.0.12/30=")
	s.eventually("an event on the broken definition", func() bool { return len(s.warnings(s.namespace, "broken")) > 0 })
	a, b := newNode(t, "node-a"), newNode(t, "node-b")
	for i := range 3 {
		a.add(t, pod(fmt.Sprint("p", i)), grows).ok(t)
	}
	s.settled("grows", "10.5.0.0/30=node-a", "10.5.0.4/30=node-b", "10.5.0.8/30=node-a", "10.5.0.12/30=")
	for i := range 3 {
		a.del(t, pod(fmt.Sprint("p", i)), grows).ok(t)
	}
	s.settled("grows", "10.5.0.0/30=node-a", "10.5.0.4/30=node-b", "10.5.0.8/30=", "10.5.0.12/30=")
	b.add(t, pod("q"), grows).ok(t)
	s.removeNode("node-a")
	s.settled("grows", "10.5.0.0/30=", "10.5.0.4/30=node-b", "10.5.0.8/30=", "10.5.0.12/30=")
	s.addNodes("node-a") // gets a slice that it had, and so a pool is opened
	s.sliceOf("grows", "node-a")
	s.eventually("node-a can use its slice again", func() bool { return a.add(t, pod("p"), grows).exit == 0 })
	a.del(t, pod("p"), grows).ok(t)
	b.del(t, pod("q"), grows).ok(t)
	s.undefine("default", "grows")
	s.eventually("the list is deleted", func() bool { return s.slicesOf("grows") == nil })
	s.eventually("the pools are removed", func() bool { return len(s.pools()) == 0 })
	s.quiet()

	used := testenv.RightsUsed(s.watched.Requests())
	for right := range granted {
		if !used[right] {
			t.Errorf("granted and not used: %s", right)
		}
	}
	for _, request := range s.watched.Requests() {
		if request.Status == http.StatusForbidden || request.Status == http.StatusUnauthorized {
			t.Errorf("refused: %s %s", request.Method, request.Path)
		}
	}
	if len(used) == 0 {
		t.Errorf("nothing was requested:\n%s", r.log.String())
	}
}

// grantController makes the controllers of the scene use the service account of the
// manifest, and answers what it may do, as "resource verb".
func (s *sliceScene) grantController() map[string]bool {
	s.t.Helper()
	manifest, err := os.ReadFile("../manifests/base/controller.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	must := s.cp.Must(s.t)
	rights, account := map[string]bool{}, ""
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var object Object
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			s.t.Fatal(err)
		}
		switch object.String("kind") {
		case "ServiceAccount":
			account = object.Name()
			must.Create("/api/v1/namespaces/"+s.namespace+"/serviceaccounts", object)
		case "ClusterRole":
			must.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles", object)
			rights = rightsIn(object)
		case "ClusterRoleBinding":
			for _, subject := range object["subjects"].([]any) {
				subject.(map[string]any)["namespace"] = s.namespace
			}
			must.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object)
		}
	}
	token := s.cp.ServiceAccountToken(s.t, s.namespace, account)
	s.config = s.cp.Kubeconfig(s.t, testenv.Options{Namespace: s.namespace, Token: token, Via: s.watched})
	s.untilGranted(token)
	return rights
}

// untilGranted waits until the API server has heard of a role that was just bound.
func (s *sliceScene) untilGranted(token string) {
	s.t.Helper()
	client := s.cp.Client().As(token)
	s.eventually("the role counts", func() bool {
		_, err := client.List(s.t.Context(), s.path("nodeslicepools"))
		return err == nil
	})
}

func rightsIn(role Object) map[string]bool {
	rights := map[string]bool{}
	for _, rule := range role["rules"].([]any) {
		rule := Object(rule.(map[string]any))
		for _, resource := range rule["resources"].([]any) {
			for _, verb := range rule["verbs"].([]any) {
				rights[fmt.Sprint(resource, " ", verb)] = true
			}
		}
	}
	return rights
}
