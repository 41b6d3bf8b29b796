package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// watchLife is how long the server is asked to keep a watch up, at the least;
	// up to twice that, so that not all watches end at once.
	watchLife = 5 * time.Minute

	// longLife is how long a watch has to last to count as a success, so that
	// the pauses start small again.
	longLife = 5 * time.Second

	// refusedPause is between tries when the server refuses us for good, and
	// missingPause when it does not know an optional resource.
	refusedPause = 5 * time.Second
	missingPause = 30 * time.Second

	// maxRefusals is how often a watch may be refused in a row before everything
	// is listed again: the version it continues from may be one that the server
	// never reaches, as after etcd was restored from a backup.
	maxRefusals = 5

	// staleAfter is how long a watch may be down before what it showed counts as
	// out of date.
	staleAfter = time.Minute
)

// errRelist wraps errors after which a watch cannot be continued.
var errRelist = errors.New("the watch cannot be continued")

// follower keeps a sink up to date with a collection: it lists it and then watches it
// from there on.
type follower[T any, P wire[T]] struct {
	client *Client
	from   collection
	into   sink[P]
	health *health
	pause  backoff
}

// run returns when the context ends.
func (f *follower[T, P]) run(ctx context.Context) {
	for ctx.Err() == nil {
		version, err := list(ctx, f.client, f.from, f.into)
		switch {
		case err == nil:
			f.health.listed()
			err = f.watch(ctx, version)
		case f.from.optional && isUnknownResource(err):
			f.into.missing()
			f.health.listed()
			sleep(ctx, missingPause)
			continue
		}
		f.failed(ctx, err)
	}
}

// watch watches until only a list can help.
func (f *follower[T, P]) watch(ctx context.Context, version string) error {
	for refusals := 0; ctx.Err() == nil; {
		began := time.Now()
		err := f.watchOnce(ctx, &version)
		if time.Since(began) >= longLife {
			f.pause, refusals = backoff{}, 0
		}
		var status *statusError
		if errors.As(err, &status) {
			refusals++
		}
		if errors.Is(err, errRelist) || refusals >= maxRefusals {
			return err
		}
		f.failed(ctx, err)
	}
	return nil
}

// failed notes an error, if it is one, and waits for the next try.
func (f *follower[T, P]) failed(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, errRelist) {
		f.health.failed(f.client.explain("watch "+f.from.name, err))
	}
	var status *statusError
	if errors.As(err, &status) && !transient(err) && status.code != http.StatusGone {
		sleep(ctx, refusedPause)
	}
	_ = f.pause.wait(ctx, err) // ends with the context, which the caller looks at
}

// watchOnce makes one watch and follows it to its end, which is no error when the
// server ends it in order. version is where it continues; it moves on with the
// events.
func (f *follower[T, P]) watchOnce(ctx context.Context, version *string) error {
	life := watchLife + rand.N(watchLife)
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {*version},
		"timeoutSeconds": {strconv.Itoa(int(life / time.Second))},
	}
	accept := plainJSON
	if f.from.slim {
		accept = partial
	}
	body, err := f.client.open(ctx, request{method: http.MethodGet, path: f.from.path, query: query}, accept, watchSilence)
	if isStatus(err, http.StatusGone) {
		return fmt.Errorf("%w: %w", errRelist, err)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	f.health.watching()
	dec := json.NewDecoder(body)
	for {
		err := f.event(dec, version)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return body.reason(err)
		}
	}
}

// event reads one event and carries it out. It answers io.EOF at the end of the
// stream.
func (f *follower[T, P]) event(dec *json.Decoder, version *string) error {
	kind, object := "", P(new(T))
	var failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	err := eachMember(dec, func(key string) error {
		switch {
		case key == "type":
			return dec.Decode(&kind)
		case key == "object" && kind == "ERROR":
			return decodeObject(dec, &failure)
		case key == "object" && kind != "": // the server writes the type first
			return decodeObject(dec, object)
		}
		return dec.Decode(&json.RawMessage{})
	})
	if err != nil {
		return err
	}
	switch kind {
	case "ADDED", "MODIFIED":
		f.into.put(object)
	case "DELETED":
		f.into.remove(object)
	case "BOOKMARK":
	default:
		return fmt.Errorf("%w: event %q: %d %s", errRelist, kind, failure.Code, failure.Message)
	}
	*version = object.ident().version
	return nil
}

// health is how far a follower has come.
type health struct {
	name  string
	ready chan struct{} // closed when the first list is complete

	mu    sync.Mutex
	done  bool
	err   error     // the last one, nil while the watch is up
	since time.Time // when it went wrong
}

func newHealth(name string) *health { return &health{name: name, ready: make(chan struct{})} }

func (h *health) listed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.done {
		h.done = true
		close(h.ready)
	}
	h.err = nil
}

func (h *health) watching() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = nil
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.since = time.Now()
	}
	h.err = err
}

// synced answers nil once there was a complete list. The error wraps
// ipam.ErrUnavailable, or ipam.ErrDenied when that is why.
func (h *health) synced() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.done:
		return nil
	case h.err != nil:
		return h.err
	default:
		return fmt.Errorf("%w: %s are not read yet", ipam.ErrUnavailable, h.name)
	}
}

// fresh answers nil unless what is known has been out of date for long.
func (h *health) fresh() error {
	if err := h.synced(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil && time.Since(h.since) > staleAfter {
		return h.err
	}
	return nil
}

// sleep returns when the time is over or the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
