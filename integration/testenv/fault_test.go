package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	const pause = 10 * time.Millisecond
	nothing := func(Request) {}
	for _, test := range []struct {
		name   string
		action Action
		code   int  // what the client gets; 0 for nothing
		stored bool // whether the API server carried the request out
	}{
		{"refuse", Refuse(), 0, false},
		{"lose answer", LoseAnswer(), 0, true},
		{"cut answer", CutAnswer(), 0, true},
		{"reset connection", LoseAnswer().WholeConnection(), 0, true},
		{"slow before", Slow(pause, 0), 200, true},
		{"slow after", Slow(0, pause), 200, true},
		{"answer 409", Answer(409), 409, false},
		{"answer 422", Answer(422), 422, false},
		{"answer 429", AnswerStatus(Status{Code: 429, RetryAfter: time.Second}), 429, false},
		{"answer 500", Answer(500), 500, false},
		{"answer 503", Answer(503), 503, false},
		{"answer 504", Answer(504), 504, false},
		{"forward then 504", ForwardThenAnswer(504), 504, true},
		{"before", Before(nothing), 200, true},
		{"after", After(nothing), 200, true},
		{"before and lose", LoseAnswer().WithBefore(nothing), 0, true},
		{"refuse after a hook", Refuse().WithBefore(nothing), 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			for proto, client := range b.protocols() {
				b.proxy.Reset()
				name := label(proto)
				rule := b.proxy.Inject(Rule{Match: Match{Method: "POST", Path: "/ippools$"}, Action: test.action})
				err := client.Create(t.Context(), b.pools, pool(name), nil)
				if got := StatusCode(err); got != test.code {
					t.Errorf("%s: want status %d, got %d: %v", proto, test.code, got, err)
				}
				if got := b.stored(t, name); got != test.stored {
					t.Errorf("%s: stored: want %t, got %t", proto, test.stored, got)
				}
				if rule.Hits() != 1 {
					t.Errorf("%s: want 1 hit, got %d", proto, rule.Hits())
				}
				record := b.proxy.Requests()[0]
				if record.Fault != test.action.name || (record.Upstream == 201) != test.stored || !record.Done {
					t.Errorf("%s: wrong record %+v", proto, record)
				}
				if err := client.Create(t.Context(), b.pools, pool(name+"-next"), nil); err != nil {
					t.Errorf("%s: the rule acts twice: %v", proto, err)
				}
			}
		})
	}
}

func TestOnlyAWholeConnectionTakesOtherRequestsAlong(t *testing.T) {
	for _, test := range []struct {
		name   string
		action Action
		broken bool
	}{
		{"stream", LoseAnswer(), false},
		{"whole connection", LoseAnswer().WholeConnection(), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			events := b.watch(t, b.http2)
			b.proxy.Inject(Rule{Match: Match{Method: "POST"}, Action: test.action})
			if err := b.http2.Create(t.Context(), b.pools, pool("a"), nil); err == nil {
				t.Error("an answer came")
			}
			b.cp.Must(t).Create(b.pools, pool("b"))
			seen := 0
			for seen < 2 && events.Scan() {
				seen++
			}
			// A reset connection loses what was on its way, so only its end counts.
			if broken := seen < 2; broken != test.broken {
				t.Errorf("watch broken: want %t, got %t after %d events: %v", test.broken, broken, seen, events.Err())
			}
		})
	}
}

func TestHangsLastUntilTheClientGivesUp(t *testing.T) {
	for _, test := range []struct {
		name   string
		action func() Action
		stored bool
	}{
		{"hang", Hang, false},
		{"forward then hang", ForwardThenHang, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			for proto, client := range b.protocols() {
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				// The hook of a hanging request runs at its start; the client leaves then.
				reached := func(Request) { giveUp() }
				action := test.action()
				if test.stored {
					action = action.WithAfter(reached)
				} else {
					action = action.WithBefore(reached)
				}
				b.proxy.Inject(Rule{Action: action})
				name := label(proto)
				if err := client.Create(ctx, b.pools, pool(name), nil); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: want the client's own cancellation, got %v", proto, err)
				}
				if got := b.stored(t, name); got != test.stored {
					t.Errorf("%s: stored: want %t, got %t", proto, test.stored, got)
				}
				b.waitDone(t)
			}
		})
	}
}

func TestHangEndsWhenTheProxyGoesDown(t *testing.T) {
	b := newBench(t)
	for proto, client := range b.protocols() {
		if err := b.proxy.Up(); err != nil {
			t.Fatal(err)
		}
		b.proxy.Inject(Rule{Action: ForwardThenHang().WithAfter(func(Request) { b.proxy.Down() })})
		if err := client.Create(t.Context(), b.pools, pool(label(proto)), nil); err == nil {
			t.Errorf("%s: an answer came", proto)
		}
		b.waitDone(t)
	}
}

func TestStatusIsTheAPIServersForm(t *testing.T) {
	b := newBench(t)
	b.proxy.Inject(Rule{Action: AnswerStatus(Status{Code: 429, RetryAfter: 7 * time.Second, Message: "busy"})})
	response, err := b.http2.send(t.Context(), http.MethodGet, b.pools, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status Object
	if err := json.Unmarshal(data, &status); err != nil {
		t.Fatal(err)
	}
	if response.Header.Get("Retry-After") != "7" || status.Field("details", "retryAfterSeconds") != 7.0 {
		t.Errorf("want Retry-After 7 in header and details, got %v and %s", response.Header, data)
	}
	if status.String("kind") != "Status" || status.String("reason") != "TooManyRequests" ||
		status.String("message") != "busy" || status.Field("code") != 429.0 {
		t.Errorf("wrong status %s", data)
	}
}

func TestReasonsOfStatus(t *testing.T) {
	for _, test := range []struct {
		status Status
		method string
		want   string
	}{
		{Status{Code: 409}, "PATCH", "Conflict"},
		{Status{Code: 409}, "POST", "AlreadyExists"},
		{Status{Code: 409, Reason: "Conflict"}, "POST", "Conflict"},
		{Status{Code: 422}, "PATCH", "Invalid"},
		{Status{Code: 503}, "GET", "ServiceUnavailable"},
		{Status{Code: 504}, "GET", "Timeout"},
	} {
		if got := test.status.reason(test.method); got != test.want {
			t.Errorf("%s %+v: want %s, got %s", test.method, test.status, test.want, got)
		}
	}
}

func TestRulesActOnTheRequestsTheyName(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules []Rule
		want  []int // codes of four GETs in a row
	}{
		{"the first, once", []Rule{{Action: Answer(500)}}, []int{500, 200, 200, 200}},
		{"the third", []Rule{{Nth: 3, Action: Answer(500)}}, []int{200, 200, 500, 200}},
		{"two from the second on", []Rule{{Nth: 2, Times: 2, Action: Answer(500)}}, []int{200, 500, 500, 200}},
		{"always", []Rule{{Times: Always, Action: Answer(500)}}, []int{500, 500, 500, 500}},
		{"no match", []Rule{{Match: Match{Method: "PUT"}, Action: Answer(500)}}, []int{200, 200, 200, 200}},
		{"one after the other", []Rule{{Action: Answer(500)}, {Action: Answer(503)}}, []int{500, 503, 200, 200}},
		{"each counts all", []Rule{{Nth: 2, Action: Answer(500)}, {Nth: 3, Action: Answer(503)}}, []int{200, 500, 503, 200}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			for _, rule := range test.rules {
				b.proxy.Inject(rule)
			}
			for i, want := range test.want {
				if got := StatusCode(b.http2.Get(t.Context(), b.pools, nil)); got != want {
					t.Errorf("request %d: want %d, got %d", i+1, want, got)
				}
			}
		})
	}
}

func TestRemovedRuleActsNoMore(t *testing.T) {
	b := newBench(t)
	rule := b.proxy.Inject(Rule{Times: Always, Action: Answer(500)})
	if got := StatusCode(b.http2.Get(t.Context(), b.pools, nil)); got != 500 {
		t.Errorf("want 500, got %d", got)
	}
	rule.Remove()
	if got := StatusCode(b.http2.Get(t.Context(), b.pools, nil)); got != 200 || rule.Hits() != 1 {
		t.Errorf("want 200 and 1 hit, got %d and %d", got, rule.Hits())
	}
}

func TestBeforeLetsAnotherWriterIn(t *testing.T) {
	b := newBench(t)
	b.proxy.Inject(Rule{
		Match: Match{Method: "POST"},
		Action: Before(func(r Request) {
			if err := b.cp.Client().Create(context.Background(), r.Path, pool("wanted"), nil); err != nil {
				t.Error(err)
			}
		}),
	})
	err := b.http2.Create(t.Context(), b.pools, pool("wanted"), nil)
	if StatusCode(err) != http.StatusConflict {
		t.Errorf("want 409 since another writer came first, got %v", err)
	}
}

func TestAfterSeesTheAPIServersAnswer(t *testing.T) {
	b := newBench(t)
	var seen Request
	b.proxy.Inject(Rule{Action: After(func(r Request) { seen = r })})
	b.http2.Must(t).Create(b.pools, pool("a"))
	if seen.Upstream != 201 || seen.Done {
		t.Errorf("want a request under way with 201 from the API server, got %+v", seen)
	}
}

func TestDetachedRequestArrivesAfterItsClientLeft(t *testing.T) {
	b := newBench(t)
	for proto, client := range b.protocols() {
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		release, arrived := make(chan struct{}), make(chan int, 1)
		action := Before(func(Request) { giveUp(); <-release }).
			WithAfter(func(r Request) { arrived <- r.Upstream })
		b.proxy.Inject(Rule{Action: action.Detached()})
		name := label(proto)
		if err := client.Create(ctx, b.pools, pool(name), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: want the client's own cancellation, got %v", proto, err)
		}
		if b.stored(t, name) {
			t.Errorf("%s: the request was not held", proto)
		}
		close(release)
		select {
		case code := <-arrived:
			if code != 201 || !b.stored(t, name) {
				t.Errorf("%s: the late request was answered %d", proto, code)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the late request did not arrive", proto)
		}
	}
}
