package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// pageSize is how many objects one list request asks for.
	pageSize = 500

	// poolPageSize is less: each object may be larger than a megabyte.
	poolPageSize = 50

	// listSilence and watchSilence are how long an answer may bring nothing
	// before its connection counts as lost. A watch is sent a bookmark about
	// every minute.
	listSilence  = 30 * time.Second
	watchSilence = 150 * time.Second

	// slimList asks for the metadata of a list's items.
	slimList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// errSilent is why a stream ended that brought nothing for too long.
var errSilent = errors.New("the API server has gone silent")

// collection is all objects of one resource, in one namespace or in all.
type collection struct {
	name     string // for messages
	path     string // below the server's base
	slim     bool   // metadata alone
	page     int    // objects of one list request; 0 is pageSize
	optional bool   // a server that does not know the resource has no such objects
}

// wire is an object as it is decoded: only the fields that are of use.
type wire[T any] interface {
	*T
	ident() identity
}

// identity is what every object has.
type identity struct {
	namespace, name string
	version         string // resourceVersion
}

func (m objectMeta) ident() identity { return identity{m.Namespace, m.Name, m.ResourceVersion} }

// sink takes the objects of a collection. One goroutine calls it.
type sink[P any] interface {
	begin()   // a list begins, perhaps again
	put(P)    // an object is there; it may have been put before
	remove(P) // an object is gone
	end()     // the list is complete: what was not put since begin is gone
	missing() // the server does not know the resource: there are no objects
}

// list reads a collection page by page, one object at a time in memory, and answers
// the resource version from which a watch continues. Errors are those of a request.
func list[T any, P wire[T]](ctx context.Context, c *Client, from collection, into sink[P]) (version string, err error) {
	into.begin()
	size := pageSize
	if from.page > 0 {
		size = from.page
	}
	query := url.Values{"limit": {strconv.Itoa(size)}}
	for {
		page, err := readPage(ctx, c, from, query, into)
		if err != nil {
			return "", err
		}
		if page.Continue == "" {
			into.end()
			return page.ResourceVersion, nil
		}
		query.Set("continue", page.Continue)
	}
}

// listAgain is list, tried again while that may help and the context lasts. A list
// that took so long that the server has forgotten its version begins anew.
func listAgain[T any, P wire[T]](ctx context.Context, c *Client, from collection, into sink[P]) error {
	var pause backoff
	for {
		_, err := list(ctx, c, from, into)
		switch {
		case err == nil:
			return nil
		case from.optional && isUnknownResource(err):
			into.missing()
			return nil
		case !transient(err) && !isStatus(err, http.StatusGone):
			return c.explain("list "+from.name, err)
		}
		if waitErr := pause.wait(ctx, err); waitErr != nil {
			return c.explain("list "+from.name, waitErr)
		}
	}
}

// pageMeta is the metadata of a list.
type pageMeta struct {
	listMeta
	ResourceVersion string `json:"resourceVersion"`
}

// readPage decodes one page of a list as it arrives.
func readPage[T any, P wire[T]](ctx context.Context, c *Client, from collection, query url.Values, into sink[P]) (pageMeta, error) {
	var page pageMeta
	accept := plainJSON
	if from.slim {
		accept = slimList
	}
	body, err := c.open(ctx, request{method: http.MethodGet, path: from.path, query: query}, accept, listSilence)
	if err != nil {
		return page, err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	err = eachMember(dec, func(key string) error {
		switch key {
		case "metadata":
			return dec.Decode(&page)
		case "items":
			return eachElement(dec, func() error {
				object := P(new(T))
				if err := decodeObject(dec, object); err != nil {
					return err
				}
				into.put(object)
				return nil
			})
		}
		return dec.Decode(&json.RawMessage{})
	})
	return page, body.reason(err)
}

// decodeObject reads one object. A field of another type than ours is left zero:
// one odd object must not hide all others.
func decodeObject(dec *json.Decoder, object any) error {
	err := dec.Decode(object)
	var odd *json.UnmarshalTypeError
	if errors.As(err, &odd) {
		return nil
	}
	return err
}

// eachMember calls f with each key of the object that comes next; f has to read
// the value.
func eachMember(dec *json.Decoder, f func(key string) error) error {
	if err := expect(dec, '{'); err != nil {
		return err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string) // the decoder lets nothing else be a key
		if err := f(name); err != nil {
			return err
		}
	}
	return expect(dec, '}')
}

// eachElement calls f before each element of the list that comes next, which may be
// null; f has to read the element.
func eachElement(dec *json.Decoder, f func() error) error {
	token, err := dec.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("%w: found %v where a list begins", ipam.ErrCorrupt, token)
	}
	for dec.More() {
		if err := f(); err != nil {
			return err
		}
	}
	return expect(dec, ']')
}

func expect(dec *json.Decoder, delim json.Delim) error {
	token, err := dec.Token()
	if err == nil && token != delim {
		err = fmt.Errorf("%w: found %v instead of %v in an answer", ipam.ErrCorrupt, token, delim)
	}
	return err
}

// answer is the body of an answer that is read as it comes. It ends when nothing
// comes for too long.
type answer struct {
	body    io.ReadCloser
	context context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	silence time.Duration
}

// open makes one request whose answer may be long, or last long. The error is a
// *statusError when the server answered with a refusal.
func (c *Client) open(ctx context.Context, r request, accept string, silence time.Duration) (*answer, error) {
	a := &answer{silence: silence}
	a.context, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(silence, func() { a.cancel(errSilent) })
	req, err := c.newRequest(a.context, r)
	if err != nil {
		a.stop()
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	if err != nil {
		err = a.reason(err)
		a.stop()
		return nil, err
	}
	a.body = resp.Body
	if resp.StatusCode/100 == 2 {
		c.answered()
		return a, nil
	}
	defer a.Close()
	data, err := io.ReadAll(io.LimitReader(a, 1<<20))
	if err != nil {
		return nil, err
	}
	return nil, newStatusError(resp, data)
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	a.timer.Reset(a.silence)
	return n, err
}

func (a *answer) stop() {
	a.timer.Stop()
	a.cancel(nil)
}

// Close ends the request, finished or not.
func (a *answer) Close() error {
	a.stop()
	return a.body.Close()
}

// reason is the error of a read, or why the request was given up. What is no JSON
// does not become it by another try.
func (a *answer) reason(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("%w: an answer is not JSON: %w", ipam.ErrCorrupt, err)
	}
	if err != nil && errors.Is(context.Cause(a.context), errSilent) {
		return fmt.Errorf("%w for %s", errSilent, a.silence)
	}
	return err
}

// isUnknownResource reports a 404 about no object: the server does not know the
// resource.
func isUnknownResource(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == http.StatusNotFound && e.name == ""
}
