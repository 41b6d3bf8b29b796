package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// Options say what a kubeconfig holds. The zero value is the administrator,
// direct to the API server, without a namespace.
type Options struct {
	Namespace string // of the context
	User      string // one of the users named in this package; "" is Admin
	Token     string // instead of a user's: a service account's, or a bad one
	Via       *Proxy // go through it
	Server    string // another URL; set CA, too
	CA        []byte // PEM of who signed the certificate of Server
}

// Kubeconfig writes a kubeconfig, readable by the owner alone, that lives as
// long as the test, and answers its path.
func (cp *ControlPlane) Kubeconfig(tb testing.TB, o Options) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	data, err := cp.kubeconfig(o)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func (cp *ControlPlane) kubeconfig(o Options) ([]byte, error) {
	server, ca := cp.URL, cp.CA
	switch {
	case o.Via != nil:
		server, ca = o.Via.URL, o.Via.CA
	case o.Server != "":
		server, ca = o.Server, o.CA
	}
	user := o.User
	if user == "" {
		user = Admin
	}
	token := o.Token
	if token == "" {
		token = cp.tokens[user]
	}
	if token == "" {
		return nil, fmt.Errorf("no user %q: use one of the users that package testenv names, or set Token", user)
	}
	context := Object{"cluster": "testenv", "user": user}
	if o.Namespace != "" {
		context["namespace"] = o.Namespace
	}
	return yaml.Marshal(Object{
		"apiVersion": "v1", "kind": "Config", "current-context": "testenv",
		"clusters": []Object{{"name": "testenv", "cluster": Object{"server": server, "certificate-authority-data": ca}}},
		"users":    []Object{{"name": user, "user": Object{"token": token}}},
		"contexts": []Object{{"name": "testenv", "context": context}},
	})
}

// ServiceAccountToken answers a fresh token of a service account, as a pod of it
// would get. The account has to exist.
func (cp *ControlPlane) ServiceAccountToken(tb testing.TB, namespace, name string) string {
	tb.Helper()
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", namespace, name)
	request := Object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": Object{}}
	return cp.Must(tb).Create(path, request).String("status", "token")
}
