package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// proxy stands before a server and counts: requests, and bytes as they go
// over the wire, which includes the handshake of TLS. No time is measured through
// it. (That of package testenv belongs to a test.)
type proxy struct {
	server                   *httptest.Server
	requests, sent, received atomic.Int64 // as the client sees it
}

func newProxy(server string, ca []byte) (*proxy, error) {
	upstream, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	forward := httputil.NewSingleHostReverseProxy(upstream)
	forward.Transport = &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, DisableCompression: true,
	}
	quiet := log.New(io.Discard, "", 0) // plugins that end leave connections behind
	forward.ErrorLog = quiet
	p := &proxy{}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		forward.ServeHTTP(w, r)
	}))
	p.server.Listener = countingListener{p.server.Listener, p}
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = quiet
	p.server.StartTLS()
	return p, nil
}

func (p *proxy) url() string { return p.server.URL }

// ca is who signed the proxy's certificate: itself.
func (p *proxy) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

func (p *proxy) close() { p.server.Close() }

// traffic is what went through a proxy.
type traffic struct{ requests, sent, received int64 }

// during answers what goes through while f runs.
func (p *proxy) during(f func()) traffic {
	before := p.now()
	f()
	after := p.now()
	return traffic{after.requests - before.requests, after.sent - before.sent, after.received - before.received}
}

func (p *proxy) now() traffic {
	return traffic{p.requests.Load(), p.sent.Load(), p.received.Load()}
}

func (t traffic) and(u traffic) traffic {
	return traffic{t.requests + u.requests, t.sent + u.sent, t.received + u.received}
}

// countingListener counts the bytes of its connections below TLS.
type countingListener struct {
	net.Listener
	proxy *proxy
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{c, l.proxy}, nil
}

type countingConn struct {
	net.Conn
	proxy *proxy
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.proxy.sent.Add(int64(n))
	return n, err
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.proxy.received.Add(int64(n))
	return n, err
}
