package testenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestProxyRecordsWhatPassesThroughIt(t *testing.T) {
	b := newBench(t)
	for proto, client := range b.protocols() {
		b.proxy.Reset()
		var created Object
		if err := client.Create(t.Context(), b.pools+"?fieldValidation=Strict", pool(label(proto)), &created); err != nil {
			t.Fatal(err)
		}
		if created.Name() != label(proto) {
			t.Errorf("%s: created %v", proto, created)
		}
		if err := client.Get(t.Context(), b.pools+"/missing", nil); StatusCode(err) != http.StatusNotFound {
			t.Errorf("%s: want 404 from the API server, got %v", proto, err)
		}
		requests := b.proxy.Requests()
		if len(requests) != 2 {
			t.Fatalf("%s: want 2 requests, got %v", proto, requests)
		}
		first, second := requests[0], requests[1]
		if first.Method != "POST" || first.Path != b.pools || first.Query.Get("fieldValidation") != "Strict" ||
			first.Status != 201 || first.Upstream != 201 || first.Proto != proto || !first.Done ||
			len(first.Body) == 0 || first.ResponseSize == 0 || first.Duration <= 0 || first.Fault != "" {
			t.Errorf("%s: wrong record %+v", proto, first)
		}
		if second.Method != "GET" || second.Status != 404 || len(second.Body) != 0 {
			t.Errorf("%s: wrong record %+v", proto, second)
		}
		if first.Header.Get("Authorization") != "" {
			t.Errorf("%s: the record holds a secret", proto)
		}
	}
}

func TestProxyCountsWhatMatches(t *testing.T) {
	b := newBench(t)
	must := b.http2.Must(t)
	must.Create(b.pools, pool("a"))
	must.Get(b.pools + "/a")
	must.Get(b.pools + "/a")
	must.List(b.pools)
	for _, test := range []struct {
		name  string
		match Match
		want  int
	}{
		{"everything", Match{}, 4},
		{"a method", Match{Method: "GET"}, 3},
		{"a path", Match{Path: "/ippools/a$"}, 2},
		{"both", Match{Method: "POST", Path: "/ippools$"}, 1},
		{"neither", Match{Method: "POST", Path: "/ippools/"}, 0},
		{"a function", Match{Func: func(r Request) bool { return len(r.Body) > 0 }}, 1},
	} {
		if got := b.proxy.Count(test.match); got != test.want {
			t.Errorf("%s: want %d, got %d", test.name, test.want, got)
		}
	}
	b.proxy.Reset()
	if n := b.proxy.Count(Match{}); n != 0 {
		t.Errorf("%d requests after a reset", n)
	}
}

func TestProxyPassesLoginsOnUnchanged(t *testing.T) {
	b := newBench(t)
	for token, want := range map[string]int{
		b.cp.Token(Admin): 200, b.cp.Token(Nobody): 403, "wrong": 401,
	} {
		if err := b.http2.As(token).Get(t.Context(), b.pools, nil); StatusCode(err) != want {
			t.Errorf("want %d, got %v", want, err)
		}
	}
}

// watch opens a watch of the pools and answers what reads its events. It ends
// with the test, or when no event comes for very long.
func (b *bench) watch(t *testing.T, client *Client) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	response, err := client.send(ctx, http.MethodGet, b.pools+"?watch=true", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	events := bufio.NewScanner(response.Body)
	events.Buffer(nil, 1<<20)
	return events
}

func TestProxyHoldsNoEventsOfAWatchBack(t *testing.T) {
	b := newBench(t)
	for proto, client := range b.protocols() {
		name := label(proto)
		events := b.watch(t, client)
		b.cp.Must(t).Create(b.pools, pool(name))
		for found := false; !found; {
			if !events.Scan() {
				t.Fatalf("%s: the watch ended: %v", proto, events.Err())
			}
			var event struct {
				Type   string
				Object Object
			}
			if err := json.Unmarshal(events.Bytes(), &event); err != nil {
				t.Fatal(err)
			}
			found = event.Type == "ADDED" && event.Object.Name() == name
		}
		watch := b.proxy.Find(Match{Func: func(r Request) bool { return r.Proto == proto }})
		if len(watch) != 1 || watch[0].Done || watch[0].Status != 200 || watch[0].ResponseSize == 0 {
			t.Errorf("%s: wrong record of a watch under way: %+v", proto, watch)
		}
	}
}

func TestProxyBreaksWatches(t *testing.T) {
	for _, test := range []struct {
		name   string
		breaks func(*bench)
	}{
		{"by going down", func(b *bench) { b.proxy.Down() }},
		{"by breaking requests", func(b *bench) { b.proxy.Break(Match{Path: "/ippools$"}) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			for proto, client := range b.protocols() {
				if err := b.proxy.Up(); err != nil {
					t.Fatal(err)
				}
				events := b.watch(t, client)
				test.breaks(b)
				if events.Scan() {
					t.Errorf("%s: unexpected event %s", proto, events.Text())
				}
				if err := events.Err(); err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: want a broken watch, got %v", proto, err)
				}
			}
		})
	}
}

func TestProxyBreaksOnlyWhatIsUnderWay(t *testing.T) {
	b := newBench(t)
	b.http2.Must(t).List(b.pools)
	b.watch(t, b.http2)
	b.watch(t, b.http1)
	if n := b.proxy.Break(Match{Method: "PUT"}); n != 0 {
		t.Errorf("broke %d requests that do not match", n)
	}
	if n := b.proxy.Break(Match{}); n != 2 {
		t.Errorf("want 2 broken, got %d", n)
	}
	b.http2.Must(t).List(b.pools)
}

func TestCutAnswerLeavesAWatchWithoutEvents(t *testing.T) {
	b := newBench(t)
	b.cp.Must(t).Create(b.pools, pool("a"))
	for proto, client := range b.protocols() {
		b.proxy.Inject(Rule{Action: CutAnswer()})
		events := b.watch(t, client)
		if events.Scan() || events.Err() == nil {
			t.Errorf("%s: want a broken watch, got %q, %v", proto, events.Text(), events.Err())
		}
	}
}

func TestProxyDownRefusesConnections(t *testing.T) {
	b := newBench(t)
	for proto, client := range b.protocols() {
		client.Must(t).List(b.pools) // leaves a connection behind
		b.proxy.Down()
		b.proxy.Down() // is no harm
		if err := client.Get(t.Context(), b.pools, nil); !errors.Is(err, syscall.ECONNREFUSED) {
			// The connection left behind may be noticed as dead one request later.
			if err := client.Get(t.Context(), b.pools, nil); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: want a refused connection, got %v", proto, err)
			}
		}
		if err := b.proxy.Up(); err != nil {
			t.Fatal(err)
		}
		client.Must(t).List(b.pools)
	}
}

func TestProxyServesManyAtOnce(t *testing.T) {
	b := newBench(t)
	const each = 20
	refused := b.proxy.Inject(Rule{Match: Match{Method: "GET"}, Action: Answer(503), Times: each})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wait sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for _, client := range b.protocols() {
		for range each {
			wait.Go(func() {
				code := StatusCode(client.Get(ctx, b.pools, nil))
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			})
		}
	}
	wait.Wait()
	if codes[200] != each || codes[503] != each || refused.Hits() != each || b.proxy.Count(Match{}) != 2*each {
		t.Errorf("want %d of each, got %v, %d hits, %d requests", each, codes, refused.Hits(), b.proxy.Count(Match{}))
	}
}
