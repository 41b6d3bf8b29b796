package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	jsonPatch  = "application/json-patch+json"  // RFC 6902
	mergePatch = "application/merge-patch+json" // RFC 7386
	plainJSON  = "application/json"

	// partial asks for an object's metadata as the answer to a write: a pool of
	// thousands of entries need not come back.
	partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

	// attemptTimeout bounds one request, so that a connection that hangs is
	// given up while there is time for another. A write that meets many others
	// takes many seconds, and to give it up would be to start at the end of the
	// line again.
	attemptTimeout = 25 * time.Second

	maxAnswer = 64 << 20 // bytes
)

// request is one request to the API server.
type request struct {
	method      string
	path        string // below the server's base, without a leading slash
	query       url.Values
	contentType string
	body        any  // marshalled to JSON; nil for none
	slim        bool // answer with the metadata alone
}

// statusError is an answer other than 2xx.
type statusError struct {
	code       int
	reason     string // metav1.StatusReason
	message    string
	kind       string        // of the object the answer is about
	name       string        // of the object the answer is about
	retryAfter time.Duration // 0 when the server does not say
}

func (e *statusError) Error() string {
	if e.message != "" {
		return e.message
	}
	return fmt.Sprintf("%d %s", e.code, http.StatusText(e.code))
}

// do makes one request, once. The error is a *statusError when the server
// answered; otherwise the outcome of a write is unknown.
func (c *Client) do(ctx context.Context, r request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
		c.answered()
	}
	if resp.StatusCode/100 != 2 {
		return newStatusError(resp, data)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: answer to %s %s: %w", ipam.ErrCorrupt, r.method, r.path, err)
	}
	return nil
}

func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		body = bytes.NewReader(data)
	}
	u := c.base.JoinPath(r.path)
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	req.Header.Set("Accept", plainJSON)
	if r.slim {
		req.Header.Set("Accept", partial)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", plainJSON)
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	return req, nil
}

func newStatusError(resp *http.Response, data []byte) *statusError {
	var status struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Details struct {
			Kind   string `json:"kind"`
			Name   string `json:"name"`
			Causes []struct {
				Message string `json:"message"`
			} `json:"causes"`
		} `json:"details"`
	}
	e := &statusError{code: resp.StatusCode}
	if json.Unmarshal(data, &status) == nil {
		e.reason, e.message, e.kind, e.name = status.Reason, status.Message, status.Details.Kind, status.Details.Name
		for _, cause := range status.Details.Causes {
			e.message += ": " + cause.Message
		}
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.retryAfter = time.Duration(s) * time.Second
	}
	return e
}

// isStatus reports whether the server answered with this code.
func isStatus(err error, code int) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == code
}

// isMissing reports a 404 about this very object, as opposed to one about a
// resource the server does not know.
func isMissing(err error, name string) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == http.StatusNotFound && e.name == name
}

// transient reports whether the same request may succeed a little later: no
// answer, too many requests, or trouble inside the server.
func transient(err error) bool {
	var e *statusError
	if errors.As(err, &e) {
		return e.code == http.StatusTooManyRequests || e.code >= 500 && !tooLarge(e)
	}
	var certificate *tls.CertificateVerificationError
	return !errors.As(err, &certificate) && !errors.Is(err, ipam.ErrCorrupt)
}

// tooLarge reports etcd's refusal of an object beyond its limit (1.5 MiB unless
// set otherwise), which the API server passes on as an internal error.
func tooLarge(e *statusError) bool {
	return strings.Contains(e.message, "request is too large") || strings.Contains(e.message, "larger than max")
}

// explain turns an error of a request into one of ipam's, with what an operator
// can do about it. what says what was being done, as in "read pool 10.0.0.0-8".
func (c *Client) explain(what string, err error) error {
	if errors.Is(err, ipam.ErrUnavailable) || errors.Is(err, ipam.ErrCorrupt) {
		return fmt.Errorf("%s: %w", what, err)
	}
	var e *statusError
	if !errors.As(err, &e) {
		if transient(err) {
			return fmt.Errorf("%w: %s: %w", ipam.ErrUnavailable, what, err)
		}
		return fmt.Errorf("%w: %s: %w", ipam.ErrDenied, what, err)
	}
	switch {
	case transient(err):
		return fmt.Errorf("%w: %s: %w", ipam.ErrUnavailable, what, err)
	case e.code == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s: the API server at %s does not accept the credentials: %w", ipam.ErrDenied, what, c.base.Host, err)
	case e.code == http.StatusNotFound && e.name == "":
		return fmt.Errorf("%w: %s: the API server at %s does not know the resources of %s; install the definitions (manifests/crds)",
			ipam.ErrDenied, what, c.base.Host, apiVersion)
	case tooLarge(e) || e.code == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %s: the object is as large as the API server allows: %w", ipam.ErrDenied, what, err)
	default:
		return fmt.Errorf("%w: %s: %w", ipam.ErrDenied, what, err)
	}
}
