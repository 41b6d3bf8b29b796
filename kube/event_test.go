package kube

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

func someEvent(namespace string) reclaim.Event {
	return reclaim.Event{
		Pod:     reclaim.Pod{Namespace: namespace, Name: "p", UID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427"},
		Warning: true, Reason: "IPAddressGarbageCollectionFailed", Message: "why",
	}
}

// The API server is the judge of what an event has to have.
func TestEventsArePosted(t *testing.T) {
	cp := testenv.Start(t)
	namespace := cp.Namespace(t)
	proxy := cp.Proxy(t)
	s := &scene{T: t, cp: cp}
	r := NewRecorder(s.open(testenv.Options{Namespace: "elsewhere", Via: proxy}))
	busy := proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPost}, Action: testenv.LoseAnswer()})
	r.Event(someEvent(namespace))
	normal := someEvent(namespace)
	normal.Warning, normal.Pod.Name, normal.Message = false, strings.Repeat("a.", 126)+"a", strings.Repeat("ä", 2000)
	r.Event(normal)
	forbidden := someEvent("no-such-namespace")
	r.Event(forbidden)
	for end := time.Now().Add(patience); proxy.Count(testenv.Match{Func: func(r testenv.Request) bool { return r.Done }}) < 4 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	r.Close()
	r.Close() // is no harm
	r.Event(normal)
	events := cp.Must(t).List("/api/v1/namespaces/" + namespace + "/events")
	if len(events) != 2 || busy.Hits() != 1 || r.Dropped() != 2 {
		proxy.Log(t)
		t.Fatalf("%d events, %d answers lost, %d dropped", len(events), busy.Hits(), r.Dropped())
	}
	for _, e := range events {
		if e.String("involvedObject", "name") != "p" {
			continue
		}
		for path, want := range map[string]string{
			"type": "Warning", "reason": "IPAddressGarbageCollectionFailed", "message": "why", "reportingComponent": "whereabouts",
			"source.component": "whereabouts", "involvedObject.kind": "Pod", "involvedObject.namespace": namespace,
			"involvedObject.uid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "involvedObject.apiVersion": "v1",
		} {
			if got := e.String(strings.Split(path, ".")...); got != want {
				t.Errorf("%s is %q, want %q", path, got, want)
			}
		}
		if !strings.HasPrefix(e.Name(), "p.") || e.String("firstTimestamp") == "" || e.String("lastTimestamp") == "" || e.Field("count") != 1.0 {
			t.Errorf("got event %v", e)
		}
	}
}

func TestAFloodOfEventsIsDropped(t *testing.T) {
	var posted atomic.Int64
	hold := make(chan struct{})
	r := NewRecorder(clientOf(t, func(_ http.ResponseWriter, _ *http.Request) {
		posted.Add(1)
		<-hold
	}))
	const sent = 2 * eventQueue
	for range sent {
		r.Event(someEvent("n"))
	}
	if dropped := r.Dropped(); dropped < sent-eventQueue-1 || dropped > sent-eventQueue {
		t.Errorf("dropped %d of %d events with a queue of %d", dropped, sent, eventQueue)
	}
	close(hold)
	r.Close()
	if got := uint64(posted.Load()) + r.Dropped(); got < sent {
		t.Errorf("of %d events %d were posted or dropped", sent, got)
	}
}

func TestClosingARecorderDoesNotWaitForADeadServer(t *testing.T) {
	r := NewRecorder(clientOf(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // or the end of the request would go unnoticed
		<-req.Context().Done()
	}))
	const sent = 3
	for range sent {
		r.Event(someEvent("n"))
	}
	done := make(chan struct{})
	go func() { r.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it waits")
	}
	if r.Dropped() != sent {
		t.Errorf("%d dropped, want %d", r.Dropped(), sent)
	}
}

func TestEventsAreLimited(t *testing.T) {
	start := time.Unix(1000, 0)
	l := limit{left: eventBurst, last: start}
	for i, c := range []struct {
		after time.Duration
		take  int
		left  int
	}{
		{0, eventBurst, 0},
		{eventPause - 1, 0, 0},
		{eventPause, 1, 0},
		{eventPause + eventPause/2, 0, 0},
		{3 * eventPause, 0, 2},
		{time.Hour, 0, eventBurst},
	} {
		l.count(start.Add(c.after))
		l.left -= c.take
		if l.left != c.left {
			t.Errorf("step %d: %d may pass, want %d", i, l.left, c.left)
		}
	}
}
