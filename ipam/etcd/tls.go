package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// newTLS reads the certificates that a configuration names. It answers nil if it
// names none.
func newTLS(cfg ipam.EtcdConfig, now time.Time) (*tls.Config, error) {
	if cfg.CAFile == "" && cfg.CertFile == "" && cfg.KeyFile == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, invalid("etcd_ca_cert_file", "%w; correct the path", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("etcd_ca_cert_file", "%s has no certificate in PEM; name the file of the authority that signed etcd's", cfg.CAFile)
		}
	}
	if cfg.CertFile == "" && cfg.KeyFile == "" {
		return config, nil
	}
	if cfg.CertFile == "" || cfg.KeyFile == "" {
		return nil, invalid("etcd_cert_file, etcd_key_file", "found %q and %q; set both or none", cfg.CertFile, cfg.KeyFile)
	}
	own, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, invalid("etcd_cert_file, etcd_key_file", "%s and %s: %w; name a certificate and its key in PEM", cfg.CertFile, cfg.KeyFile, err)
	}
	if end := own.Leaf.NotAfter; now.After(end) {
		// It may be renewed at any time: no fault of the configuration.
		return nil, fmt.Errorf("%w: etcd_cert_file: the certificate in %s expired at %s; renew it",
			ipam.ErrUnavailable, cfg.CertFile, end.UTC().Format(time.RFC3339))
	}
	config.Certificates = []tls.Certificate{own}
	return config, nil
}

func invalid(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", ipam.ErrInvalid, key, fmt.Errorf(format, args...))
}

// explainTLS says whose fault it is that a certificate is not accepted. What may be
// put right without a change of the configuration is left to be tried again.
func explainTLS(err error) error {
	var bad x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &bad) && bad.Reason == x509.Expired:
		return fmt.Errorf("%w: the certificate of etcd is out of date: %w; renew it, or set the clock of this host", ipam.ErrUnavailable, err)
	case errors.As(err, &unknown):
		return refused("etcd_ca_cert_file", err, "name the file of the authority that signed etcd's certificate")
	case errors.As(err, &name):
		return refused("etcd_host", err, "write a name or an address that is in etcd's certificate")
	}
	if text := err.Error(); strings.Contains(text, "tls: certificate required") || strings.Contains(text, "tls: bad certificate") ||
		strings.Contains(text, "tls: unknown certificate authority") {
		return refused("etcd_cert_file", err, "name a certificate that etcd's authority for clients has signed, and its key")
	}
	return err
}

// refused is an error of the configuration that is one of credentials too, so that a
// DEL is kept for later.
func refused(key string, err error, remedy string) error {
	return fmt.Errorf("%w: %s: %w (%w); %s", ipam.ErrInvalid, key, err, ipam.ErrDenied, remedy)
}

// Addresses are the hosts and ports of a configuration's endpoints, without schemes. One
// that cannot be read is answered as it is.
func Addresses(cfg ipam.EtcdConfig) []string {
	var addresses []string
	for _, endpoint := range cfg.Endpoints {
		if full, err := baseURL(endpoint, false); err == nil {
			_, endpoint, _ = strings.Cut(full, "://")
		}
		addresses = append(addresses, endpoint)
	}
	return addresses
}

// baseURL completes an endpoint: without a scheme it is https if there are
// certificates, and without a port that of etcd.
func baseURL(endpoint string, secure bool) (string, error) {
	text := strings.TrimRight(strings.TrimSpace(endpoint), "/")
	if !strings.Contains(text, "://") {
		scheme := "http://"
		if secure {
			scheme = "https://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" || u.User != nil || u.RawQuery != "" {
		return "", invalid("etcd_host", "found %q; write an address like https://10.0.0.1:2379", endpoint)
	}
	if u.Port() == "" {
		u.Host += ":2379"
	}
	return u.Scheme + "://" + u.Host, nil
}
