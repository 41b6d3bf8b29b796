package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Why HTTP and not etcd's own client: its gRPC packages would be initialised at each
// start of the plugin, with Kubernetes as the datastore too. The commit that added
// this file has the figures.

const (
	dialTimeout = time.Second

	// A member without a majority answers nothing, or only after seven seconds.
	// While there is another one to ask, it gets less; the time grows in each
	// round, so that a cluster that is merely slow is waited for.
	firstAttempt = 2 * time.Second
	lastAttempt  = 16 * time.Second

	firstPause = 20 * time.Millisecond
	lastPause  = time.Second

	maxAnswer = 64 << 20 // bytes
	maxText   = 200      // bytes of an answer that is not etcd's, in an error
)

// client makes requests to one of several endpoints, whichever answers.
type client struct {
	endpoints []string // base URLs
	username  string
	password  string
	http      *http.Client
	answered  func()

	mu    sync.Mutex
	next  int    // of endpoints: the last one that answered
	token string // "" until login

	seen atomic.Int64 // the newest revision that an answer told
}

// statusError is an answer other than 2xx: a gRPC status, as the gateway tells it.
type statusError struct {
	http    int
	code    int // https://grpc.io/docs/guides/status-codes
	message string
}

func (e *statusError) Error() string { return e.message }

// gRPC codes that say more than the HTTP status.
const (
	codeInvalidArgument  = 3
	codePermissionDenied = 7
	codeUnauthenticated  = 16
)

// transient reports whether the same request may succeed a little later, or at
// another endpoint.
func transient(err error) bool {
	for _, lasting := range []error{ipam.ErrInvalid, ipam.ErrDenied, ipam.ErrCorrupt} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	var status *statusError
	if errors.As(err, &status) {
		// Without a code it is not etcd's: something stands between.
		foreign := (status.code < 1 || status.code > codeUnauthenticated) && status.http != http.StatusNotFound
		return foreign || status.http == http.StatusConflict || status.http == http.StatusTooManyRequests || status.http >= 500
	}
	return true
}

// call makes a request until it is answered or the context ends. A request may be
// carried out more than once.
func (c *client) call(ctx context.Context, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", path, err)
	}
	attempt, pause := firstAttempt, firstPause
	for tries := 1; ; tries++ {
		err := c.once(ctx, attempt, path, data, into)
		if err == nil {
			c.see(into)
			return nil
		}
		if !transient(err) {
			return explain(err)
		}
		c.turn()
		if tries%len(c.endpoints) != 0 {
			continue
		}
		if wait(ctx, rand.N(pause)) != nil {
			return fmt.Errorf("%w: etcd at %s (etcd_host): %w", ipam.ErrUnavailable, c.list(), err)
		}
		attempt, pause = min(2*attempt, lastAttempt), min(2*pause, lastPause)
	}
}

// see notes the revision of an answer.
func (c *client) see(into any) {
	answer, ok := into.(revised)
	if !ok {
		return
	}
	for {
		seen := c.seen.Load()
		if answer.at() <= seen || c.seen.CompareAndSwap(seen, answer.at()) {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return ctx.Err()
	}
}

// turn goes on to the next endpoint.
func (c *client) turn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = (c.next + 1) % len(c.endpoints)
}

func (c *client) list() string {
	text := c.endpoints[0]
	for _, e := range c.endpoints[1:] {
		text += ", " + e
	}
	return text
}

// once makes a request to one endpoint, after a login if need be.
func (c *client) once(ctx context.Context, timeout time.Duration, path string, data []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.mu.Lock()
	endpoint, token := c.endpoints[c.next], c.token
	c.mu.Unlock()
	for fresh := false; ; fresh = true {
		if c.username != "" && token == "" {
			var err error
			if token, err = c.login(ctx, endpoint); err != nil {
				return err
			}
			fresh = true
		}
		err := c.post(ctx, endpoint+path, token, data, into)
		if !staleToken(err) || c.username == "" || fresh {
			return err
		}
		token = "" // tokens end, and a member that starts again may know none
	}
}

func staleToken(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == codeUnauthenticated
}

func (c *client) login(ctx context.Context, endpoint string) (string, error) {
	data, err := json.Marshal(map[string]string{"name": c.username, "password": c.password})
	if err != nil {
		return "", err
	}
	var answer struct {
		Token string `json:"token"`
	}
	err = c.post(ctx, endpoint+"/v3/auth/authenticate", "", data, &answer)
	var status *statusError
	if errors.As(err, &status) && status.code == codeInvalidArgument {
		// Denied as well, so that a DEL is kept for later.
		return "", fmt.Errorf("%w: etcd at %s does not accept user %q with the password given (%w: %w); "+
			"correct etcd_username and etcd_password", ipam.ErrInvalid, endpoint, c.username, ipam.ErrDenied, err)
	}
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = answer.Token
	return answer.Token, nil
}

// post makes one request, once. The error is a *statusError when etcd answered;
// otherwise the outcome of a write is unknown.
func (c *client) post(ctx context.Context, url, token string, data []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%w: etcd_host: %w", ipam.ErrInvalid, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, io.EOF) && req.URL.Scheme == "http":
		return fmt.Errorf("%w; if etcd serves TLS at this address (etcd_host), write https://", err)
	case err != nil:
		return explainTLS(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return c.explainStatus(newStatusError(resp.StatusCode, body))
	}
	c.answered()
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: answer to %s: %w; is there an etcd 3.4 or newer at this address (etcd_host)?", ipam.ErrCorrupt, url, err)
	}
	return nil
}

func newStatusError(status int, body []byte) *statusError {
	var answer struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	e := &statusError{http: status, message: fmt.Sprintf("%d %s", status, http.StatusText(status))}
	if json.Unmarshal(body, &answer) == nil && answer.Message != "" {
		e.code, e.message = answer.Code, answer.Message
	} else if text := strings.TrimSpace(string(body[:min(len(body), maxText)])); text != "" {
		e.message += ": " + text
	}
	return e
}

// explainStatus says what to do about an answer that has another cause than it tells.
func (c *client) explainStatus(err *statusError) error {
	switch {
	case err.http == http.StatusBadRequest && strings.Contains(err.message, "CommonName"):
		return refused("etcd_cert_file", err,
			"name a certificate without a common name (CN) in its subject: with logins on, etcd's JSON gateway takes no other")
	case c.username == "" && (err.code == codePermissionDenied || err.message == "etcdserver: user name is empty"):
		return refused("etcd_username", err, "etcd wants a login: set etcd_username and etcd_password")
	case err.code == codePermissionDenied:
		return fmt.Errorf("%w: etcd_username: %q: %w; give it a role that may read and write all keys below %s", ipam.ErrDenied, c.username, err, root)
	}
	return err
}

// explain turns an answer that refuses a request into an error of package ipam.
func explain(err error) error {
	var status *statusError
	switch {
	case !errors.As(err, &status), errors.Is(err, ipam.ErrInvalid), errors.Is(err, ipam.ErrDenied):
		return err
	case status.http == http.StatusNotFound:
		return fmt.Errorf("%w: etcd_host: what answers there has no JSON gateway of etcd's API v3 (%w); "+
			"write the client address of an etcd 3.4 or newer", ipam.ErrInvalid, err)
	}
	return fmt.Errorf("%w: etcd: %w", ipam.ErrDenied, err)
}

// newHTTP always reaches etcd directly, whatever proxy the container runtime has.
func newHTTP(config *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: config, TLSHandshakeTimeout: 2 * dialTimeout,
		MaxIdleConnsPerHost: parallel, ForceAttemptHTTP2: false,
		// Not HTTP/2, nor compression: requests are few and small.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, DisableCompression: true,
	}}
}
