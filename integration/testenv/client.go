package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Object is a Kubernetes object as JSON has it.
type Object map[string]any

// Field answers what is found on the way down the keys, or nil.
func (o Object) Field(keys ...string) any {
	var at any = o
	for _, key := range keys {
		switch m := at.(type) {
		case Object:
			at = m[key]
		case map[string]any:
			at = m[key]
		default:
			return nil
		}
	}
	return at
}

// String is Field for a string; "" when there is none.
func (o Object) String(keys ...string) string {
	s, _ := o.Field(keys...).(string)
	return s
}

// Name is metadata.name.
func (o Object) Name() string { return o.String("metadata", "name") }

// PatchType is the content type of a patch.
type PatchType string

// The kinds of patches that custom resources know.
const (
	JSONPatch  PatchType = "application/json-patch+json"
	MergePatch PatchType = "application/merge-patch+json"
	ApplyPatch PatchType = "application/apply-patch+yaml" // path needs ?fieldManager=NAME
)

// Client makes single requests to the API server without anything in between:
// no retries, no throttling, no proxy. A path is everything after the host,
// with a query if need be. Bodies and results are whatever encoding/json takes;
// a nil body or result is none. An answer other than 2xx is a *StatusError.
//
// It may be used from any goroutine. In a test's own goroutine Must is shorter.
type Client struct {
	server, token string
	http          *http.Client
}

// StatusError is a refusal by the API server.
type StatusError struct {
	Method, Path    string
	Code            int
	Reason, Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Code, e.Reason, e.Message)
}

// StatusCode answers the HTTP status in an error of a Client: 200 for nil, 0
// when there was no answer.
func StatusCode(err error) int {
	var status *StatusError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &status):
		return status.Code
	default:
		return 0
	}
}

// clientTimeout ends a request that the server does not answer.
const clientTimeout = time.Minute

// NewClient is for any server and token, such as a proxy's. It trusts the
// authority of the PEM.
func NewClient(server, token string, caPEM []byte) *Client {
	transport := &http.Transport{TLSClientConfig: trust(caPEM), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64}
	return &Client{server: server, token: token, http: &http.Client{Transport: transport, Timeout: clientTimeout}}
}

// As is the same client with another token, for tests of rights.
func (c *Client) As(token string) *Client {
	other := *c
	other.token = token
	return &other
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.Do(ctx, http.MethodGet, path, "", nil, out)
}

// List reads the items of a collection.
func (c *Client) List(ctx context.Context, path string) ([]Object, error) {
	var list struct {
		Items []Object `json:"items"`
	}
	err := c.Get(ctx, path, &list)
	return list.Items, err
}

// Create posts an object to its collection.
func (c *Client) Create(ctx context.Context, path string, body, out any) error {
	return c.Do(ctx, http.MethodPost, path, "application/json", body, out)
}

// Update puts an object. Its resource version is checked if it has one.
func (c *Client) Update(ctx context.Context, path string, body, out any) error {
	return c.Do(ctx, http.MethodPut, path, "application/json", body, out)
}

// Patch patches an object.
func (c *Client) Patch(ctx context.Context, path string, kind PatchType, body, out any) error {
	return c.Do(ctx, http.MethodPatch, path, string(kind), body, out)
}

// Delete deletes an object, or with a path of a collection all in it. Options
// (metav1.DeleteOptions as JSON) may be nil.
func (c *Client) Delete(ctx context.Context, path string, options any) error {
	return c.Do(ctx, http.MethodDelete, path, "application/json", options, nil)
}

// Do makes any request.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body, out any) error {
	response, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		return statusError(method, path, response.StatusCode, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what was expected: %w", method, path, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(request)
}

func statusError(method, path string, code int, body []byte) error {
	e := &StatusError{Method: method, Path: path, Code: code}
	var status struct{ Reason, Message string }
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		e.Reason, e.Message = status.Reason, status.Message
	} else {
		e.Message = strings.TrimSpace(string(body))
	}
	return e
}

// Must is a Client for a test's own goroutine: what goes wrong ends the test.
type Must struct {
	tb     testing.TB
	client *Client
}

// Must wraps the client for one test.
func (c *Client) Must(tb testing.TB) Must { return Must{tb: tb, client: c} }

// Get reads an object.
func (m Must) Get(path string) Object {
	m.tb.Helper()
	var out Object
	m.check(m.client.Get(m.context(), path, &out))
	return out
}

// List reads the items of a collection.
func (m Must) List(path string) []Object {
	m.tb.Helper()
	items, err := m.client.List(m.context(), path)
	m.check(err)
	return items
}

// Create posts an object to its collection and answers what was stored.
func (m Must) Create(path string, body any) Object {
	m.tb.Helper()
	var out Object
	m.check(m.client.Create(m.context(), path, body, &out))
	return out
}

// Update puts an object and answers what was stored.
func (m Must) Update(path string, body any) Object {
	m.tb.Helper()
	var out Object
	m.check(m.client.Update(m.context(), path, body, &out))
	return out
}

// Patch patches an object and answers what was stored.
func (m Must) Patch(path string, kind PatchType, body any) Object {
	m.tb.Helper()
	var out Object
	m.check(m.client.Patch(m.context(), path, kind, body, &out))
	return out
}

// Delete deletes an object, or all of a collection.
func (m Must) Delete(path string) {
	m.tb.Helper()
	m.check(m.client.Delete(m.context(), path, nil))
}

// context outlives the test's own, which ends before its cleanups run.
func (m Must) context() context.Context { return context.WithoutCancel(m.tb.Context()) }

func (m Must) check(err error) {
	m.tb.Helper()
	if err != nil {
		m.tb.Fatal(err)
	}
}
