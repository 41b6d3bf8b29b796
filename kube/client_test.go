package kube_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const kubeconfigHead = `
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
`

func TestKubeconfig(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		allowExec bool
		namespace string
		err       string // part of the message; "" is success
	}{
		"namespace of the context": {
			text:      kubeconfigHead + `contexts: [{name: here, context: {cluster: c, user: u, namespace: blue}}, {name: other, context: {cluster: c, user: u, namespace: red}}]` + "\nusers: [{name: u, user: {token: x}}]",
			namespace: "blue",
		},
		"no namespace": {
			text:      kubeconfigHead + `contexts: [{name: here, context: {cluster: c, user: u}}]` + "\nusers: [{name: u, user: {token: x}}]",
			namespace: "kube-system",
		},
		"a program for credentials": {
			text: kubeconfigHead + `contexts: [{name: here, context: {cluster: c, user: u}}]` + "\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, interactiveMode: Never}}}]",
			err:  "(exec)",
		},
		"a program for a person's credentials": {
			text:      kubeconfigHead + `contexts: [{name: here, context: {cluster: c, user: u}}]` + "\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, interactiveMode: Never}}}]",
			allowExec: true, namespace: "kube-system",
		},
		"an authentication provider": {
			text: kubeconfigHead + `contexts: [{name: here, context: {cluster: c, user: u}}]` + "\nusers: [{name: u, user: {auth-provider: {name: gcp}}}]",
			err:  "(auth-provider)",
		},
		"a program for another context's user": {
			text:      kubeconfigHead + `contexts: [{name: here, context: {cluster: c, user: u}}]` + "\nusers: [{name: u, user: {token: x}}, {name: v, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, interactiveMode: Never}}}]",
			namespace: "kube-system",
		},
		"no such context": {text: strings.Replace(kubeconfigHead, "here", "there", 1), err: `no context "there"`},
		"not YAML":        {text: "{", err: "kubernetes.kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			client, err := kube.NewClient(kube.Options{Kubeconfig: path, AllowExec: c.allowExec, Getenv: os.Getenv})
			if c.err != "" {
				if !errors.Is(err, ipam.ErrInvalid) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v, want an invalid configuration with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if client.Namespace() != c.namespace {
				t.Errorf("got namespace %q, want %q", client.Namespace(), c.namespace)
			}
		})
	}
}

func TestMissingKubeconfigNamesTheFile(t *testing.T) {
	_, err := kube.NewClient(kube.Options{Kubeconfig: "/does/not/exist", Getenv: os.Getenv})
	if !errors.Is(err, ipam.ErrInvalid) || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("got error %v", err)
	}
}

// The environment of a container runtime may name a proxy, which must not see the
// API server's traffic.
func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	cp := shared.ControlPlane(t)
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	store := openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: cp.Namespace(t)}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := store.Ready(ctx); err != nil {
		t.Error(err)
	}
}

var somePool = ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}

func someTake(overlap bool) []ipam.Change {
	after := ipam.NewRecord(ipam.Owner{ContainerID: "c", IfName: "net1", PodRef: "a/b"}, time.Now())
	return []ipam.Change{{Pool: somePool, Address: netip.MustParseAddr("10.0.0.1"), After: &after, Overlap: overlap}}
}

func TestAServerThatSaysWhenToComeBackIsObeyed(t *testing.T) {
	cp := shared.ControlPlane(t)
	proxy := cp.Proxy(t)
	store := openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: cp.Namespace(t), Via: proxy}))
	for name, match := range map[string]testenv.Match{
		"read": {Method: http.MethodGet}, "create a reservation": {Method: http.MethodPost, Path: "/overlapping"}, "write a pool": {Method: http.MethodPost, Path: "/ippools"},
	} {
		proxy.Reset()
		busy := proxy.Inject(testenv.Rule{Match: match, Action: testenv.AnswerStatus(testenv.Status{Code: http.StatusTooManyRequests, RetryAfter: time.Second})})
		begin := time.Now()
		if name == "read" {
			if _, err := store.Read(t.Context(), somePool); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			changes := someTake(true)
			if err := store.Commit(t.Context(), changes)[0]; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := store.Commit(t.Context(), []ipam.Change{{Pool: somePool, Address: changes[0].Address, Before: changes[0].After}})[0]; err != nil {
				t.Errorf("%s: release: %v", name, err)
			}
			cp.Must(t).Delete(resourcePath(namespaceOf(t, proxy), poolResource, kube.PoolName(somePool)))
			if _, err := store.Read(t.Context(), somePool); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if busy.Hits() != 1 || time.Since(begin) < time.Second {
			t.Errorf("%s: came back after %s, %d hits", name, time.Since(begin), busy.Hits())
		}
	}
}

// namespaceOf finds the namespace that requests went to.
func namespaceOf(t *testing.T, proxy *testenv.Proxy) string {
	t.Helper()
	for _, r := range proxy.Requests() {
		if _, rest, ok := strings.Cut(r.Path, "/namespaces/"); ok {
			namespace, _, _ := strings.Cut(rest, "/")
			return namespace
		}
	}
	t.Fatal("no request names a namespace")
	return ""
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	cp := shared.ControlPlane(t)
	bare := testenv.Start(t) // without resource definitions
	namespace := cp.Namespace(t)
	for name, c := range map[string]struct {
		kubeconfig string
		is         error
		says       string
	}{
		"no rights":        {cp.Kubeconfig(t, testenv.Options{Namespace: namespace, User: testenv.Nobody}), ipam.ErrDenied, "forbidden"},
		"bad token":        {cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Token: "bad"}), ipam.ErrDenied, "does not accept the credentials"},
		"no definitions":   {bare.Kubeconfig(t, testenv.Options{Namespace: "default"}), ipam.ErrDenied, "manifests/crds"},
		"wrong authority":  {cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Server: cp.URL, CA: bare.CA}), ipam.ErrDenied, "certificate"},
		"nobody listening": {cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Server: "https://127.0.0.1:1", CA: cp.CA}), ipam.ErrUnavailable, "refused"},
		"no namespace":     {cp.Kubeconfig(t, testenv.Options{Namespace: "nowhere"}), ipam.ErrDenied, `"nowhere" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t, c.kubeconfig)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for _, overlap := range []bool{true, false} {
				err := store.Commit(ctx, someTake(overlap))[0]
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("overlap %v: got error %v, want %v with %q", overlap, err, c.is, c.says)
				}
			}
		})
	}
}
