package testenv

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"
)

var shared = Shared{CRDs: "testdata/old-crds"}

func TestMain(m *testing.M) { shared.Main(m) }

// bench is a test's namespace with a proxy before it.
type bench struct {
	cp    *ControlPlane
	proxy *Proxy
	http1 *Client // through the proxy
	http2 *Client
	pools string // path of the namespace's pools
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, shared.ControlPlane(t))
}

func newBenchOn(t *testing.T, cp *ControlPlane) *bench {
	t.Helper()
	proxy := cp.Proxy(t)
	b := &bench{
		cp: cp, proxy: proxy,
		http1: NewClient(proxy.URL, cp.Token(Admin), proxy.CA),
		http2: NewClient(proxy.URL, cp.Token(Admin), proxy.CA),
		pools: fmt.Sprintf("/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/%s/ippools", cp.Namespace(t)),
	}
	// An empty table of next protocols switches HTTP/2 off.
	transport := b.http1.http.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	return b
}

func pool(name string) Object {
	return Object{
		"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": Object{"name": name},
		"spec": Object{"range": "10.0.0.0/24", "allocations": Object{}},
	}
}

// stored tells whether a pool has reached the API server.
func (b *bench) stored(t *testing.T, name string) bool {
	t.Helper()
	err := b.cp.Client().Get(t.Context(), b.pools+"/"+name, nil)
	if err != nil && StatusCode(err) != http.StatusNotFound {
		t.Fatal(err)
	}
	return err == nil
}

// protocols are the bench's clients by what they speak.
func (b *bench) protocols() map[string]*Client {
	return map[string]*Client{"HTTP/1.1": b.http1, "HTTP/2.0": b.http2}
}

// waitDone returns when no request is under way any more.
func (b *bench) waitDone(t *testing.T) {
	t.Helper()
	err := poll(time.Minute, func() bool { return true }, func() error {
		for _, r := range b.proxy.Requests() {
			if !r.Done {
				return fmt.Errorf("%s is still under way", r)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
