package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

// certificate signs itself, for 127.0.0.1, until a time.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: until.Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// secured serves with a certificate, and wants one of its clients if they have to
// have one.
func secured(t *testing.T, cert, key string, clients tls.ClientAuthType) string {
	t.Helper()
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: clients}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestCertificatesThatDoNotFit(t *testing.T) {
	cert, key := certificate(t, time.Now().Add(time.Hour))
	old, oldKey := certificate(t, time.Now().Add(-time.Minute))
	for name, test := range map[string]struct {
		cfg  ipam.EtcdConfig
		want error
		says string
	}{
		"another authority":         {ipam.EtcdConfig{Endpoints: []string{secured(t, cert, key, 0)}, CAFile: old}, ipam.ErrInvalid, "etcd_ca_cert_file"},
		"expired":                   {ipam.EtcdConfig{Endpoints: []string{secured(t, old, oldKey, 0)}, CAFile: old}, ipam.ErrUnavailable, "out of date"},
		"our own expired":           {ipam.EtcdConfig{Endpoints: []string{"127.0.0.1"}, CertFile: old, KeyFile: oldKey}, ipam.ErrUnavailable, "expired at"},
		"none of our own":           {ipam.EtcdConfig{Endpoints: []string{secured(t, cert, key, tls.RequireAnyClientCert)}, CAFile: cert}, ipam.ErrInvalid, "etcd_cert_file"},
		"key without certificate":   {ipam.EtcdConfig{Endpoints: []string{"127.0.0.1"}, KeyFile: key}, ipam.ErrInvalid, "set both or none"},
		"no such file":              {ipam.EtcdConfig{Endpoints: []string{"127.0.0.1"}, CAFile: "/no/such/file"}, ipam.ErrInvalid, "/no/such/file"},
		"a key for an authority":    {ipam.EtcdConfig{Endpoints: []string{"127.0.0.1"}, CAFile: key}, ipam.ErrInvalid, "no certificate"},
		"no address":                {ipam.EtcdConfig{Endpoints: []string{"ftp://10.0.0.1"}}, ipam.ErrInvalid, "etcd_host"},
		"something that is no etcd": {ipam.EtcdConfig{Endpoints: []string{secured(t, cert, key, 0)}, CAFile: cert}, ipam.ErrInvalid, "no JSON gateway"},
	} {
		s, err := Open(test.cfg, nil)
		if err == nil {
			err = s.Ready(shortly(t))
		}
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, test.want, test.says)
		}
	}
}

func TestLogin(t *testing.T) {
	endpoints := testenv.StartEtcd(t, 1).Endpoints()
	admin := open(t, endpoints)
	for _, step := range []struct{ path, body string }{
		{"user/add", `{"name": "root", "password": "secret"}`},
		{"user/grant", `{"user": "root", "role": "root"}`},
		{"user/add", `{"name": "guest", "password": "guest"}`},
		{"enable", `{}`},
	} {
		var answer struct{}
		if err := admin.client.post(t.Context(), endpoints+"/v3/auth/"+step.path, "", []byte(step.body), &answer); err != nil {
			t.Fatalf("%s: %v", step.path, err)
		}
	}
	for name, test := range map[string]struct {
		user, password string
		want           error
		says           string
	}{
		"right":          {"root", "secret", nil, ""},
		"wrong password": {"root", "wrong", ipam.ErrInvalid, "etcd_password"},
		"unknown user":   {"nobody", "secret", ipam.ErrInvalid, `"nobody"`},
		"no user":        {"", "", ipam.ErrInvalid, "set etcd_username"},
		"without rights": {"guest", "guest", ipam.ErrDenied, "role"},
	} {
		s := openWith(t, ipam.EtcdConfig{Endpoints: []string{endpoints}, Username: test.user, Password: test.password})
		err := s.Ready(shortly(t))
		if !errors.Is(err, test.want) || err != nil && (!strings.Contains(err.Error(), test.says) || !errors.Is(err, ipam.ErrDenied)) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, test.want, test.says)
		}
		if err != nil && test.password != "" && test.password != "guest" && strings.Contains(err.Error(), test.password) {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
	s := openWith(t, ipam.EtcdConfig{Endpoints: []string{endpoints}, Username: "root", Password: "secret"})
	s.client.token = "ended.1"
	if err := s.Ready(shortly(t)); err != nil {
		t.Errorf("with a token that ended: %v", err)
	}
}

// shortly is a context for a call that may be tried again and again.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}
