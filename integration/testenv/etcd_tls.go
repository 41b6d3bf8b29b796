package testenv

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// SecureEtcd is an etcd of one member that has a certificate and wants one of each
// client.
type SecureEtcd struct {
	*Etcd
	Authority // which has signed etcd's certificate, and signs those of clients
}

// StartSecureEtcd starts such an etcd and ends it with the test.
func StartSecureEtcd(tb testing.TB) *SecureEtcd {
	tb.Helper()
	e := &SecureEtcd{Authority: NewAuthority(tb, "etcd CA")}
	files := &secure{dir: tb.TempDir(), authority: e.Authority}
	if err := files.renew(time.Now().Add(time.Hour)); err != nil {
		tb.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(files.cert(), files.key())
	if err != nil {
		tb.Fatal(err)
	}
	// The test's own calls are not what is tested: they go through if the certificate of
	// etcd has run out, too.
	files.client = &tls.Config{Certificates: []tls.Certificate{own}, InsecureSkipVerify: true}
	e.Etcd = startEtcd(tb, 1, func(m *Member, number int) error {
		m.secure = files
		err := onLoopback(m, number)
		m.ClientURL = "https://" + m.client.address()
		return err
	})
	return e
}

// Renew gives etcd another certificate, which is good until a time and in use at once.
func (e *SecureEtcd) Renew(tb testing.TB, until time.Time) {
	tb.Helper()
	if err := e.Members[0].secure.renew(until); err != nil {
		tb.Fatal(err)
	}
}

// Call makes one request to the JSON gateway.
func (e *SecureEtcd) Call(path string, body, out any) error {
	return e.Members[0].call(path, body, out)
}

// secure is the files that a member serves with.
type secure struct {
	dir       string
	authority Authority
	client    *tls.Config
}

func (s *secure) cert() string { return filepath.Join(s.dir, "server.pem") }
func (s *secure) key() string  { return filepath.Join(s.dir, "server.key") }

func (s *secure) flags() []string {
	return []string{"--cert-file", s.cert(), "--key-file", s.key(), "--trusted-ca-file", s.authority.File, "--client-cert-auth"}
}

// renew writes a certificate for etcd's server, which is a client of itself, too: its
// JSON gateway is one.
func (s *secure) renew(until time.Time) error {
	template := onLoopbackOnly(newTemplate("etcd"))
	template.NotBefore, template.NotAfter = until.Add(-2*time.Hour), until
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	p, err := s.authority.signs.sign(template)
	if err != nil {
		return err
	}
	return p.write(s.cert(), s.key())
}

// Authority signs certificates.
type Authority struct {
	File  string // its own certificate, PEM
	signs *authority
}

// NewAuthority makes an authority whose file ends with the test.
func NewAuthority(tb testing.TB, name string) Authority {
	tb.Helper()
	signs, err := newAuthority(name)
	if err != nil {
		tb.Fatal(err)
	}
	a := Authority{File: filepath.Join(tb.TempDir(), "ca.pem"), signs: signs}
	if err := os.WriteFile(a.File, signs.pem, 0o600); err != nil {
		tb.Fatal(err)
	}
	return a
}

// Client makes a certificate for a client, good until a time, and answers the files of
// it and of its key, PEM. The name is its common name; etcd's JSON gateway wants none.
func (a Authority) Client(tb testing.TB, name string, until time.Time) (cert, key string) {
	tb.Helper()
	template := newTemplate(name)
	template.NotBefore, template.NotAfter = until.Add(-2*time.Hour), until
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p, err := a.signs.sign(template)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	cert, key = filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	if err := p.write(cert, key); err != nil {
		tb.Fatal(err)
	}
	return cert, key
}

func (p pair) write(cert, key string) error {
	if err := os.WriteFile(key, p.key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(cert, p.cert, 0o600)
}
