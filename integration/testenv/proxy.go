package testenv

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Proxy stands in front of an API server, records and counts the requests and
// lets faults befall them. It speaks HTTPS, HTTP/1.1 and HTTP/2, with a
// certificate of its own, passes logins on unchanged and does not hold back the
// events of a watch. What the API server does not answer, it does not answer
// either: it closes the connection. Its methods may be called from any
// goroutine.
type Proxy struct {
	URL string // without a slash at the end
	CA  []byte // PEM: who signed its certificate

	upstream  string
	transport *http.Transport
	cert      tls.Certificate
	port      *port

	mu      sync.Mutex
	records []*Request
	rules   []*Injection
	server  *http.Server // nil while down
	down    context.CancelFunc
}

// Proxy starts a proxy in front of the API server that ends with the test.
// Clients get to it by Options.Via.
func (cp *ControlPlane) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	p, err := newProxy(cp.URL, cp.CA)
	if err != nil {
		tb.Fatal(err)
	}
	cp.stale(p.transport)
	tb.Cleanup(p.close)
	return p
}

func newProxy(upstream string, caPEM []byte) (*Proxy, error) {
	cert, ca, err := selfServing("testenv proxy")
	if err != nil {
		return nil, err
	}
	reserved, err := reservePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		URL: "https://" + reserved.address(), CA: ca,
		upstream: upstream, cert: cert, port: reserved,
		transport: &http.Transport{
			TLSClientConfig: trust(caPEM), ForceAttemptHTTP2: true,
			DisableCompression: true, MaxIdleConnsPerHost: 64,
		},
	}
	if err := p.Up(); err != nil {
		reserved.release()
		return nil, err
	}
	return p, nil
}

// Up lets clients in again after Down, at the same address.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		return nil
	}
	config := net.ListenConfig{Control: sharePort}
	listener, err := config.Listen(context.Background(), "tcp", p.port.address())
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.down = cancel
	p.server = &http.Server{
		Handler:     http.HandlerFunc(p.serve),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{p.cert}, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, c)
		},
		ErrorLog: log.New(io.Discard, "", 0), // broken connections are our trade
	}
	go func(s *http.Server) { _ = s.ServeTLS(listener, "", "") }(p.server)
	return nil
}

// Down ends all connections and refuses new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return
	}
	_ = p.server.Close()
	p.down()
	p.server = nil
}

func (p *Proxy) close() {
	p.Down()
	p.transport.CloseIdleConnections()
	p.port.release()
}

// sharePort lets a listener have the port that is reserved already.
func sharePort(_, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(control, err)
}

// Inject puts a rule in force. Each rule counts the requests that match it; on
// each request acts at most one rule, the first in order of injection that is
// due.
func (p *Proxy) Inject(r Rule) *Injection {
	i := &Injection{proxy: p, rule: r, match: r.Match.compile()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, i)
	return i
}

// Reset forgets the requests recorded so far and ends all rules.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records, p.rules = nil, nil
}

// ResetRequests forgets the requests recorded so far. Rules stay.
func (p *Proxy) ResetRequests() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = nil
}

// Requests answers the requests since the last reset in order of arrival. When
// a client has its answer, the record of it is complete.
func (p *Proxy) Requests() []Request { return p.Find(Match{}) }

// Find is Requests for the matching ones.
func (p *Proxy) Find(m Match) []Request {
	match := m.compile()
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []Request
	for _, r := range p.records {
		if match.matches(*r) {
			found = append(found, *r)
		}
	}
	return found
}

// Count answers how many requests match since the last reset. Count(Match{}) is
// all of them.
func (p *Proxy) Count(m Match) int { return len(p.Find(m)) }

// Break breaks off the matching requests that are under way, such as watches,
// and answers how many these are. Other connections stay as they are.
func (p *Proxy) Break(m Match) int {
	broken := 0
	for _, r := range p.Find(m) {
		if !r.Done {
			broken++
			r.cancel()
		}
	}
	return broken
}

// Log writes the requests since the last reset into the test's log.
func (p *Proxy) Log(tb testing.TB) {
	tb.Helper()
	for _, r := range p.Requests() {
		tb.Logf("%s: %d, %d bytes in, %d out, %s %s", r, r.Status, len(r.Body), r.ResponseSize, r.Duration, r.Fault)
	}
}

// serve is the HTTP handler.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client left in the middle
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	e := &exchange{proxy: p, in: r.WithContext(ctx), body: body, out: w}
	e.record, e.action = p.admit(e.in, body, cancel)
	e.run()
}

// admit records a request and answers what befalls it.
func (p *Proxy) admit(r *http.Request, body []byte, cancel context.CancelFunc) (*Request, Action) {
	header := r.Header.Clone()
	header.Del("Authorization")
	record := &Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: header,
		Body: body, Proto: r.Proto, Begin: time.Now(), cancel: cancel,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, record)
	action := Action{forward: true}
	taken := false
	for _, i := range p.rules {
		if i.match.matches(*record) && i.due(taken) {
			taken, action = true, i.rule.Action
		}
	}
	record.Fault = action.name
	return record, action
}

// update changes a record and answers a copy of it.
func (p *Proxy) update(record *Request, f func(*Request)) Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(record)
	return *record
}

// ask forwards a request to the API server.
func (p *Proxy) ask(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, p.upstream+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	dropHopByHop(out.Header)
	return p.transport.RoundTrip(out)
}

// dropHopByHop removes what belongs to one connection only.
func dropHopByHop(h http.Header) {
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}
