package testenv

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestServersKeepDataAndAddressOverDeaths(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, Start(t))
	cp, direct := b.cp, b.cp.Client()
	cp.ApplyOldCRDs(t)
	b.http2.Must(t).Create(b.pools, pool("a"))
	path := b.pools + "/a"
	silent := func(client *Client, what string) {
		t.Helper()
		if err := client.Get(t.Context(), path, nil); err == nil || StatusCode(err) != 0 {
			t.Errorf("%s answers: %v", what, err)
		}
	}

	cp.KillAPIServer()
	silent(direct, "an API server that was killed")
	if err := direct.Get(t.Context(), path, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("want a refused connection, got %v", err)
	}
	silent(b.http2, "the proxy in place of a dead API server")
	if r := b.proxy.Requests()[1]; r.Err == nil || r.Upstream != 0 || r.Status != 0 || !r.Done {
		t.Errorf("wrong record of what the API server did not answer: %+v", r)
	}
	cp.KillEtcd()
	if err := cp.StartEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := cp.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	for _, client := range []*Client{direct, b.http1, b.http2} {
		client.Must(t).Get(path)
	}
	if err := cp.StartAPIServer(); err == nil {
		t.Error("a second API server started")
	}
	cp.KillEtcd() // under a running API server
	if err := cp.StartEtcd(); err != nil {
		t.Fatal(err)
	}
	direct.Must(t).Get(path)
	cp.StopAPIServer()
	cp.StopAPIServer() // is no harm
	silent(direct, "an API server that was stopped")
}

func TestLaunchTellsWhyAServerDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := Launch(Binary(t), "--no-such-flag")
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("want an error with what the API server says, got %v", err)
	}
}

func TestUsersHaveTheRightsThatTestsBind(t *testing.T) {
	cp := shared.ControlPlane(t)
	namespace := cp.Namespace(t)
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	user := cp.Client().As(cp.Token(User1))
	if err := user.Get(t.Context(), path, nil); StatusCode(err) != http.StatusForbidden {
		t.Errorf("want 403, got %v", err)
	}
	must := cp.Must(t)
	must.Create(rbac+"/roles", Object{
		"metadata": Object{"name": "reader"},
		"rules":    []Object{{"apiGroups": []string{""}, "resources": []string{"configmaps"}, "verbs": []string{"list"}}},
	})
	bind := func(subject Object) {
		must.Create(rbac+"/rolebindings", Object{
			"metadata": Object{"generateName": "reader-"},
			"roleRef":  Object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
			"subjects": []Object{subject},
		})
	}
	bind(Object{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User1})
	must.Create("/api/v1/namespaces/"+namespace+"/serviceaccounts", Object{"metadata": Object{"name": "worker"}})
	bind(Object{"kind": "ServiceAccount", "name": "worker", "namespace": namespace})
	account := cp.Client().As(cp.ServiceAccountToken(t, namespace, "worker"))
	for who, client := range map[string]*Client{"user": user, "service account": account} {
		// The authorizer learns of bindings by a watch.
		err := poll(startTimeout, func() bool { return true }, func() error { return client.Get(t.Context(), path, nil) })
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

func TestKubeconfigNamesServerUserAndNamespace(t *testing.T) {
	cp := shared.ControlPlane(t)
	proxy := cp.Proxy(t)
	for _, test := range []struct {
		name                     string
		options                  Options
		server, token, namespace string
		ca                       []byte
	}{
		{"administrator", Options{}, cp.URL, cp.Token(Admin), "", cp.CA},
		{"user in a namespace", Options{User: User2, Namespace: "n"}, cp.URL, cp.Token(User2), "n", cp.CA},
		{"any token", Options{Token: "t"}, cp.URL, "t", "", cp.CA},
		{"proxy", Options{Via: proxy}, proxy.URL, cp.Token(Admin), "", proxy.CA},
		{"server", Options{Server: "https://s", CA: []byte("ca")}, "https://s", cp.Token(Admin), "", []byte("ca")},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := cp.Kubeconfig(t, test.options)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var config struct {
				Clusters []struct {
					Cluster struct {
						Server string `json:"server"`
						CA     []byte `json:"certificate-authority-data"`
					}
				}
				Contexts []struct{ Context struct{ Namespace string } }
				Users    []struct{ User struct{ Token string } }
			}
			if err := yaml.Unmarshal(data, &config); err != nil {
				t.Fatal(err)
			}
			cluster := config.Clusters[0].Cluster
			if cluster.Server != test.server || string(cluster.CA) != string(test.ca) ||
				config.Users[0].User.Token != test.token || config.Contexts[0].Context.Namespace != test.namespace {
				t.Errorf("wrong kubeconfig\n%s", data)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("want mode 0600, got %v, %v", info, err)
			}
		})
	}
	if _, err := cp.kubeconfig(Options{User: "u9"}); err == nil {
		t.Error("a user that does not exist got a kubeconfig")
	}
}

func TestDefinitionsCanBeAppliedAgain(t *testing.T) {
	cp := shared.ControlPlane(t)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := cp.InstallCRDs(t.Context(), "testdata/old-crds"); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	cp.ApplyOldCRDs(t)
	if err := cp.InstallCRDs(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory without definitions was accepted")
	}
}

func TestOldDefinitionsPruneNewFields(t *testing.T) {
	b := newBench(t)
	entry := Object{"id": "c", "podref": "ns/p", "ifname": "net1", "gen": "0123"}
	object := pool("a")
	object["spec"] = Object{"range": "10.0.0.0/24", "allocations": Object{"1": entry}}
	stored := b.cp.Must(t).Create(b.pools, object)
	got, _ := stored.Field("spec", "allocations", "1").(map[string]any)
	if len(got) != 3 || got["id"] != "c" || got["podref"] != "ns/p" || got["ifname"] != "net1" {
		t.Errorf("want the three old fields, got %v", got)
	}
	delete(entry, "podref")
	err := b.cp.Client().Create(t.Context(), b.pools, Object{
		"apiVersion": object["apiVersion"], "kind": "IPPool", "metadata": Object{"name": "b"}, "spec": object["spec"],
	}, nil)
	if StatusCode(err) != http.StatusUnprocessableEntity || !strings.Contains(err.Error(), "podref") {
		t.Errorf("want 422 for the missing podref, got %v", err)
	}
}

func TestNamespaceNamesFitKubernetes(t *testing.T) {
	for test, want := range map[string]string{
		"TestAdd":                          "t-add",
		"TestAdd/two_ranges,_v4#01":        "t-add-two-ranges--v4-01",
		"TestX/" + strings.Repeat("é", 50): "t-x",
		"Test" + strings.Repeat("A", 99):   "t-" + strings.Repeat("a", 40),
	} {
		if got := label(test); got != want {
			t.Errorf("%s: want %s, got %s", test, want, got)
		}
	}
}
