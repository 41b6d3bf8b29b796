package render

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// patience is how long the API server may take to hear of rights that were given.
const patience = 2 * time.Minute

// What each service account may do once the manifests are applied: what its role says
// and no more, and for the plugin in its own namespace alone.
func TestRightsOfTheServiceAccounts(t *testing.T) {
	cp := shared.ControlPlane(t)
	objects := applyRights(t, cp)
	for account, about := range map[string]struct {
		role       string
		everywhere bool
	}{
		"whereabouts":            {role: "whereabouts-cni"},
		"whereabouts-reconciler": {role: "whereabouts-reconciler", everywhere: true},
		"whereabouts-controller": {role: "whereabouts-controller", everywhere: true},
	} {
		t.Run(account, func(t *testing.T) {
			granted := flatten(objects["ClusterRole /"+about.role].Field("rules"))
			if len(granted) == 0 {
				t.Fatalf("the role %s grants nothing", about.role)
			}
			client := cp.Client().As(cp.ServiceAccountToken(t, namespace, account))
			waitForRights(t, client, namespace, granted)
			if !about.everywhere {
				granted = nil
			}
			waitForRights(t, client, "default", granted)
		})
	}
}

// The credentials that lie on each node are worth little to who steals them.
func TestThePluginsTokenIsRefused(t *testing.T) {
	cp := shared.ControlPlane(t)
	objects := applyRights(t, cp)
	client := cp.Client().As(cp.ServiceAccountToken(t, namespace, "whereabouts"))
	waitForRights(t, client, namespace, flatten(objects["ClusterRole /whereabouts-cni"].Field("rules")))

	const own, records = "/api/v1/namespaces/kube-system/", "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/"
	if err := client.Get(t.Context(), records+"kube-system/ippools", nil); err != nil {
		t.Errorf("the token is good for nothing: %v", err)
	}
	for _, request := range []string{
		"GET /api/v1/pods", "GET " + own + "pods", "GET " + own + "pods/a", "POST " + own + "pods",
		"GET /api/v1/secrets", "GET " + own + "secrets", "GET " + own + "secrets/a",
		"GET /api/v1/nodes", "GET " + own + "configmaps/whereabouts-config", "POST " + own + "events",
		"POST " + own + "serviceaccounts/whereabouts/token", "POST " + own + "serviceaccounts/whereabouts-reconciler/token",
		"GET /apis/apps/v1/namespaces/kube-system/daemonsets",
		"GET /apis/rbac.authorization.k8s.io/v1/clusterroles",
		"GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"GET " + records + "default/ippools", "POST " + records + "default/ippools",
		"GET " + records + "default/overlappingrangeipreservations",
		"PUT " + records + "kube-system/ippools/a", "DELETE " + records + "kube-system/ippools/a",
		"DELETE " + records + "kube-system/ippools", "DELETE " + records + "kube-system/overlappingrangeipreservations",
		"PATCH " + records + "kube-system/ippools/a/status",
		"GET " + records + "kube-system/nodeslicepools", "PATCH " + records + "kube-system/nodeslicepools/a",
	} {
		method, path, _ := strings.Cut(request, " ")
		contentType := ""
		if method == http.MethodPatch {
			contentType = string(testenv.MergePatch)
		}
		err := client.Do(t.Context(), method, path, contentType, testenv.Object{}, nil)
		if testenv.StatusCode(err) != http.StatusForbidden {
			t.Errorf("%s is not forbidden: %v", request, err)
		}
	}
}

// applyRights applies what gives rights in manifests/base, with the definitions, and
// answers all objects.
func applyRights(t *testing.T, cp *testenv.ControlPlane) Objects {
	t.Helper()
	objects := mustKustomization(t, baseDir)
	cp.ApplyCRDs(t, "../crds")
	for _, kind := range []string{"ServiceAccount", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} {
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			if objects[key].String("kind") == kind {
				cp.Must(t).Patch(path(t, objects[key])+"?fieldManager=test&force=true", testenv.ApplyPatch, objects[key])
			}
		}
	}
	return objects
}

// ownRights are what Kubernetes gives every service account: to ask for its own rights
// and to read the certificates that the cluster publishes.
var ownRights = []string{
	"authentication.k8s.io selfsubjectreviews create",
	"authorization.k8s.io selfsubjectaccessreviews create",
	"authorization.k8s.io selfsubjectrulesreviews create",
	"certificates.k8s.io clustertrustbundles get",
	"certificates.k8s.io clustertrustbundles list",
	"certificates.k8s.io clustertrustbundles watch",
}

// waitForRights waits until a client may do what is granted in a namespace, and fails
// the test when the API server keeps on saying something else.
func waitForRights(t *testing.T, client *testenv.Client, in string, granted []string) {
	t.Helper()
	want := slices.Sorted(slices.Values(slices.Concat(granted, ownRights)))
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		got := rightsIn(t, client, in)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("rights in %s:\n%s\nwant:\n%s", in, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// rightsIn is what the API server says that a client may do in a namespace.
func rightsIn(t *testing.T, client *testenv.Client, in string) []string {
	t.Helper()
	var review testenv.Object
	err := client.Create(t.Context(), "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", testenv.Object{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": testenv.Object{"namespace": in},
	}, &review)
	if err != nil {
		t.Fatal(err)
	}
	if review.Field("status", "incomplete") == true {
		t.Fatalf("the API server does not know all rights: %v", review.Field("status"))
	}
	return flatten(review.Field("status", "resourceRules"))
}

// flatten lists what rules grant as "group resource verb", sorted and each once.
func flatten(rules any) []string {
	var all []string
	list, _ := rules.([]any)
	for _, rule := range list {
		rule := testenv.Object(rule.(map[string]any))
		for _, group := range rule["apiGroups"].([]any) {
			for _, resource := range rule["resources"].([]any) {
				for _, verb := range rule["verbs"].([]any) {
					all = append(all, fmt.Sprint(group, " ", resource, " ", verb))
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
