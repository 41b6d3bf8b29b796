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

// readmeObjects are the objects of the README's quick start that begin with a
// service account, moved to a namespace, by kind.
func readmeObjects(t *testing.T, namespace string) map[string]Object {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const first = "    apiVersion: v1\n    kind: ServiceAccount\n"
	_, rest, found := strings.Cut(string(readme), first)
	text, _, ended := strings.Cut(rest, "\n    END\n")
	if !found || !ended {
		t.Fatal("the README has no such objects any more")
	}
	text = strings.ReplaceAll(first+text, "kube-system", namespace)
	objects := map[string]Object{}
	for document := range strings.SplitSeq(strings.ReplaceAll(text, "\n    ", "\n"), "\n---\n") {
		var object Object
		if err := yaml.Unmarshal([]byte(strings.TrimLeft(document, " ")), &object); err != nil {
			t.Fatal(err)
		}
		objects[object.String("kind")] = object
	}
	return objects
}

// The role in the README is what the plugin needs, and no more than that.
func TestRoleInTheREADME(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	role := readmeObjects(t, c.namespace)["Role"]
	c.grant(readmeObjects(t, c.namespace))
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
