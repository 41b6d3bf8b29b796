package integration

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// pluginObjects are the objects of the plugin's manifest, moved to a namespace, by
// kind. The role becomes that namespace's own: control planes are shared.
func pluginObjects(t *testing.T, namespace string) map[string]Object {
	t.Helper()
	manifest, err := os.ReadFile("../manifests/base/plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]Object{}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var object Object
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		objects[object.String("kind")] = object
	}
	role := objects["ClusterRole"]
	role["kind"] = "Role"
	objects["Role"] = role
	objects["RoleBinding"]["roleRef"].(map[string]any)["kind"] = "Role"
	for _, subject := range objects["RoleBinding"]["subjects"].([]any) {
		subject.(map[string]any)["namespace"] = namespace
	}
	return objects
}

// The role in the manifest is what the plugin needs, and no more than that.
func TestRoleOfThePlugin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	objects := pluginObjects(t, c.namespace)
	role := objects["Role"]
	c.grant(objects)
	n := newNode(t, "node-a")
	config := with(c.ranged("10.18.0.0/24"), Object{"cniVersion": "1.1.0"})
	n.waitReady(t, config)

	for _, overlap := range []bool{true, false} {
		c.unprotected = !overlap
		config := withIPAM(config, Object{"enable_overlapping_ranges": overlap})
		n.add(t, pod("a"), config).ok(t)
		again := pod("a").in("a-c2")
		added := n.add(t, again, config).ok(t)
		previous := with(config, Object{"prevResult": added.result})
		n.run(t, call{command: "CHECK", sandbox: again, config: previous}).ok(t)
		n.gc(t, config, validAttachments, []Object{}).ok(t)
		n.del(t, again, config).ok(t)
	}
	c.empty(t)
	sliced := withIPAM(config, Object{"node_slice_size": "/26"})
	n.add(t, pod("s"), sliced).fails(t, 11) // no slice: what matters is that it may look

	used := c.verbs()
	for _, rule := range role["rules"].([]any) {
		rule := Object(rule.(map[string]any))
		resource := rule["resources"].([]any)[0].(string)
		for _, verb := range rule["verbs"].([]any) {
			if !slices.Contains(used, resource+" "+verb.(string)) {
				t.Errorf("the role grants %q on %s, which is not used", verb, resource)
			}
		}
	}
	for _, r := range c.proxy.Requests() {
		if r.Status == http.StatusForbidden {
			t.Errorf("%s %s is forbidden", r.Method, r.Path)
		}
	}
	if len(used) == 0 {
		t.Error("nothing was requested")
	}
}

// grant gives the cluster's kubeconfig the rights of a service account.
func (c *cluster) grant(objects map[string]Object) {
	c.t.Helper()
	must := c.cp.Must(c.t)
	must.Create("/api/v1/namespaces/"+c.namespace+"/serviceaccounts", objects["ServiceAccount"])
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + c.namespace
	must.Create(rbac+"/roles", objects["Role"])
	must.Create(rbac+"/rolebindings", objects["RoleBinding"])
	token := c.cp.ServiceAccountToken(c.t, c.namespace, objects["ServiceAccount"].Name())
	c.kubeconfig = c.cp.Kubeconfig(c.t, testenv.Options{Namespace: c.namespace, Token: token, Via: c.proxy})
}

// waitReady waits until the API server has heard of rights that were just given.
func (n node) waitReady(t *testing.T, config Object) {
	t.Helper()
	for end := time.Now().Add(netnsPatience); ; time.Sleep(50 * time.Millisecond) {
		a := n.run(t, call{command: "STATUS", config: config})
		if a.exit == 0 {
			return
		}
		if time.Now().After(end) {
			a.ok(t)
			return
		}
	}
}

// verbs lists what was asked of the API server, as "resource verb".
func (c *cluster) verbs() []string {
	names := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete"}
	var verbs []string
	for _, r := range c.proxy.Requests() {
		path, _, _ := strings.Cut(r.Path, "?")
		resource, name, _ := strings.Cut(strings.TrimPrefix(path, c.path("")), "/")
		verb := names[r.Method]
		switch {
		case r.Method == http.MethodGet && name == "":
			verb = "list"
		case r.Method == http.MethodGet:
			verb = "get"
		}
		verbs = append(verbs, resource+" "+verb)
	}
	slices.Sort(verbs)
	return slices.Compact(verbs)
}

// Whoever reads the credentials on a node reaches the records of one namespace and
// nothing else.
func TestCredentialsOfANodeReachNothingElse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	objects := pluginObjects(t, c.namespace)
	c.grant(objects)
	newNode(t, "node-a").waitReady(t, with(c.ranged("10.18.1.0/24"), Object{"cniVersion": "1.1.0"}))
	token := c.cp.ServiceAccountToken(t, c.namespace, objects["ServiceAccount"].Name())
	node := c.cp.Client().As(token)
	if _, err := node.List(t.Context(), c.path("ippools")); err != nil {
		t.Errorf("its own records: %v", err)
	}
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/namespaces/" + c.namespace + "/pods", "/api/v1/nodes",
		"/api/v1/secrets", "/api/v1/namespaces/" + c.namespace + "/secrets", "/api/v1/namespaces/" + c.namespace + "/configmaps",
		"/apis/apps/v1/namespaces/" + c.namespace + "/daemonsets", "/apis/" + groupVersion + "/ippools",
		"/apis/" + groupVersion + "/namespaces/default/ippools", c.path("nodeslicepools"),
	} {
		if _, err := node.List(t.Context(), path); testenv.StatusCode(err) != http.StatusForbidden {
			t.Errorf("%s: %v, want it forbidden", path, err)
		}
	}
}
