package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// clientOf is a client of a server that only a test has.
func clientOf(t testing.TB, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{http: server.Client(), base: base, namespace: "default", answered: func() {}}
}

// notes is a sink that notes what it is told.
type notes []string

func (n *notes) begin()                 { *n = append(*n, "begin") }
func (n *notes) end()                   { *n = append(*n, "end") }
func (n *notes) missing()               { *n = append(*n, "missing") }
func (n *notes) put(o *reservation)     { *n = append(*n, o.Metadata.Name+" "+o.Spec.PodRef) }
func (n *notes) remove(o *reservation)  { *n = append(*n, "-"+o.Metadata.Name) }
func (n *notes) is(want ...string) bool { return slices.Equal(*n, want) }
func statusText(code int, x string) string {
	return fmt.Sprintf(`{"kind":"Status","code":%d%s}`, code, x)
}

var someCollection = collection{name: "things", path: "apis/things"}

func TestListGoesPageByPage(t *testing.T) {
	var queries []string
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		switch r.URL.Query().Get("continue") {
		case "":
			fmt.Fprint(w, `{"kind":"L","items":[{"metadata":{"name":"a"},"spec":{"podref":"n/p","x":[{}]}},{"metadata":{"name":"b"},"spec":{"podref":7}}],
				"metadata":{"continue":"next","resourceVersion":"5"}}`)
		case "next":
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"c"}}],"extra":{"a":[1]}}`)
		}
	})
	var got notes
	version, err := list(t.Context(), c, someCollection, &got)
	if err != nil || version != "5" || !got.is("begin", "a n/p", "b ", "c ", "end") {
		t.Errorf("got %q, version %q, %v", got, version, err)
	}
	if want := []string{"limit=500", "continue=next&limit=500"}; !slices.Equal(queries, want) {
		t.Errorf("got queries %q, want %q", queries, want)
	}
}

func TestListsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		answer   func(w http.ResponseWriter, n int)
		optional bool
		is       error // nil: it succeeds at the second try
	}{
		"no items":                        {func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"metadata":{},"items":null}`) }, false, nil},
		"cut off":                         {once(func(w http.ResponseWriter) { fmt.Fprint(w, `{"items":[{"metadata":{"name":"a"}}`) }), false, nil},
		"busy":                            {once(func(w http.ResponseWriter) { w.WriteHeader(503) }), false, nil},
		"forgotten":                       {once(func(w http.ResponseWriter) { w.WriteHeader(410); fmt.Fprint(w, statusText(410, "")) }), false, nil},
		"refused":                         {func(w http.ResponseWriter, _ int) { w.WriteHeader(403) }, false, ipam.ErrDenied},
		"no such resource":                {func(w http.ResponseWriter, _ int) { w.WriteHeader(404) }, false, ipam.ErrDenied},
		"no such resource, which is fine": {func(w http.ResponseWriter, _ int) { w.WriteHeader(404) }, true, nil},
		"items that are no list":          {func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"items":{}}`) }, false, ipam.ErrCorrupt},
		"no object":                       {func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `[]`) }, false, ipam.ErrCorrupt},
		"no JSON":                         {func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `<html>`) }, false, ipam.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			client := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
				n++
				c.answer(w, n)
			})
			from := someCollection
			from.optional = c.optional
			var got notes
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := listAgain(ctx, client, from, &got)
			if !errors.Is(err, c.is) {
				t.Fatalf("got error %v, want %v", err, c.is)
			}
			if last := got[len(got)-1]; err == nil && last != "end" && last != "missing" {
				t.Errorf("it did not come to an end: %q", got)
			}
		})
	}
}

// once answers badly the first time and well from then on.
func once(bad func(http.ResponseWriter)) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, n int) {
		if n == 1 {
			bad(w)
			return
		}
		fmt.Fprint(w, `{"items":[]}`)
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"type":"ADDED",`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	body, err := c.open(t.Context(), request{method: http.MethodGet, path: "x"}, plainJSON, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var b [100]byte
	for err == nil {
		_, err = body.Read(b[:])
	}
	if err := body.reason(err); !errors.Is(err, errSilent) {
		t.Errorf("got error %v", err)
	}
}

func TestWatchEvents(t *testing.T) {
	const added = `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"6"},"spec":{"podref":"n/p"}}}`
	for name, c := range map[string]struct {
		stream  string
		want    []string
		version string
		err     error
	}{
		"all kinds": {
			added + "\n" + strings.Replace(added, "ADDED", "MODIFIED", 1) +
				`{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"9","name":""}}}`,
			[]string{"a n/p", "a n/p", "-a"},
			"9", nil,
		},
		"too old":         {`{"type":"ERROR","object":` + statusText(410, `,"status":"Failure","spec":7,"message":"too old"`) + `}`, nil, "5", errRelist},
		"unknown":         {`{"type":"NEWS","object":{}}`, nil, "5", errRelist},
		"ends in between": {added + `{"type":"ADDED","obj`, []string{"a n/p"}, "6", io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			var got notes
			client := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.stream) })
			f := &follower[reservation, *reservation]{client: client, from: someCollection, into: &got, health: newHealth("x")}
			version := "5"
			err := f.watchOnce(t.Context(), &version)
			if !got.is(c.want...) || version != c.version || !errors.Is(err, c.err) {
				t.Errorf("got %q, version %s, error %v", got, version, err)
			}
		})
	}
}

func TestWhatComesPutsTheEndOff(t *testing.T) {
	a := &answer{body: io.NopCloser(strings.NewReader("x")), silence: time.Hour, timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	if _, err := a.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if !a.timer.Stop() {
		t.Error("the time is not measured from what came last")
	}
}
