package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// authority signs the certificates of one server.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // the certificate, for clients
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := newTemplate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

// serving makes a certificate for a server on loopback.
func (a *authority) serving(name string) (pair, error) {
	template := newTemplate(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.sign(onLoopbackOnly(template))
}

// onLoopbackOnly has a certificate be good for servers on loopback.
func onLoopbackOnly(template *x509.Certificate) *x509.Certificate {
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	return template
}

// sign makes a certificate with a key of its own.
func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{cert: encodePEM("CERTIFICATE", der), key: encodePEM("PRIVATE KEY", private)}, err
}

// selfServing makes a new authority and one serving certificate of it, ready to
// listen with, and the authority's PEM.
func selfServing(name string) (tls.Certificate, []byte, error) {
	ca, err := newAuthority(name + " CA")
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	p, err := ca.serving(name)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	cert, err := tls.X509KeyPair(p.cert, p.key)
	return cert, ca.pem, err
}

// signingKey makes a key pair to sign service account tokens with.
func signingKey() (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	return pair{cert: encodePEM("PUBLIC KEY", public), key: encodePEM("EC PRIVATE KEY", private)}, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newTemplate(name string) *x509.Certificate {
	serial := new(big.Int).SetBytes([]byte(rand.Text()))
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // clocks of other processes may lag
		NotAfter:     now.Add(30 * 24 * time.Hour),
	}
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// trust is a client's TLS configuration that trusts one authority.
func trust(caPEM []byte) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(caPEM)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
