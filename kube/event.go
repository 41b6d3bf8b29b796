package kube

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

const (
	// eventSource is who tells, as `kubectl describe pod` shows it.
	eventSource = "whereabouts"

	// eventQueue is how many events may wait. More are dropped.
	eventQueue = 256

	// eventPause is between two events when there have been eventBurst of them in
	// a row.
	eventPause = 200 * time.Millisecond
	eventBurst = 25

	// eventTimeout bounds the delivery of one event, flushTimeout that of all that
	// wait when the recorder is closed.
	eventTimeout = 5 * time.Second
	flushTimeout = time.Second
)

// eventObject is an Event of the core API, which describes what it is about.
type eventObject struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   objectMeta   `json:"metadata"`
	About      eventSubject `json:"involvedObject"`
	Reason     string       `json:"reason"`
	Message    string       `json:"message"`
	Type       string       `json:"type"`
	Source     struct {
		Component string `json:"component"`
	} `json:"source"`
	Controller string `json:"reportingComponent"`
	First      string `json:"firstTimestamp"`
	Last       string `json:"lastTimestamp"`
	Count      int    `json:"count"`
}

type eventSubject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// Recorder posts events on pods and definitions, in the background and not too fast. What does not
// fit into its queue or cannot be delivered is dropped and counted.
type Recorder struct {
	client  *Client
	queue   chan eventObject
	dropped atomic.Uint64

	context context.Context // of the requests; ends when closing takes too long
	cancel  context.CancelFunc
	closing chan struct{}
	done    chan struct{}
	once    sync.Once
}

var _ reclaim.Recorder = (*Recorder)(nil)

// NewRecorder starts a recorder. It has to be closed.
func NewRecorder(client *Client) *Recorder {
	r := &Recorder{
		client: client, queue: make(chan eventObject, eventQueue),
		closing: make(chan struct{}), done: make(chan struct{}),
	}
	r.context, r.cancel = context.WithCancel(context.Background())
	go r.run()
	return r
}

// Event posts an event on its pod. It does not wait.
func (r *Recorder) Event(e reclaim.Event) { r.enqueue(newEvent(e, time.Now())) }

func (r *Recorder) enqueue(o eventObject) {
	select {
	case <-r.closing:
		r.dropped.Add(1)
		return
	default:
	}
	select {
	case r.queue <- o:
	default:
		r.dropped.Add(1)
	}
}

// Dropped counts the events that nobody will see.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// Close delivers what waits, for a second at most.
func (r *Recorder) Close() {
	r.once.Do(func() { close(r.closing) })
	timer := time.AfterFunc(flushTimeout, r.cancel)
	defer timer.Stop()
	<-r.done
	r.cancel()
}

func (r *Recorder) run() {
	defer close(r.done)
	rate := limit{left: eventBurst, last: time.Now()}
	for {
		select {
		case e := <-r.queue:
			rate.wait(r.closing)
			r.post(e)
		case <-r.closing:
			r.flush()
			return
		}
	}
}

// flush delivers what waits until the context ends, and drops the rest.
func (r *Recorder) flush() {
	for {
		select {
		case e := <-r.queue:
			r.post(e)
		default:
			return
		}
	}
}

func (r *Recorder) post(e eventObject) {
	ctx, cancel := context.WithTimeout(r.context, eventTimeout)
	defer cancel()
	path := "api/v1/namespaces/" + url.PathEscape(e.Metadata.Namespace) + "/events"
	var pause backoff
	for {
		err := r.client.do(ctx, request{method: http.MethodPost, path: path, body: e}, nil)
		if err == nil || isStatus(err, http.StatusConflict) { // an earlier try has made it
			return
		}
		if !transient(err) || pause.wait(ctx, err) != nil {
			r.dropped.Add(1)
			return
		}
	}
}

func newEvent(e reclaim.Event, now time.Time) eventObject {
	o := eventObject{
		APIVersion: "v1", Kind: "Event", Reason: e.Reason, Message: shortMessage(e.Message), Type: "Normal",
		Metadata:   objectMeta{Namespace: e.Pod.Namespace, Name: eventName(e.Pod.Name)},
		About:      eventSubject{APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID},
		Controller: eventSource, First: formatTime(now), Last: formatTime(now), Count: 1,
	}
	if e.Once != "" {
		o.Metadata.Name = eventNameOf(e.Pod.Name, e.Once)
	}
	o.Source.Component = eventSource
	if e.Warning {
		o.Type = "Warning"
	}
	return o
}

// eventName is a name of its own for each event, of which one can see the pod.
func eventName(pod string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return nameWithTail(pod, b[:])
}

// eventNameOf is a name that whoever tells the same of a pod comes to. The server
// then refuses all but the first.
func eventNameOf(pod, once string) string {
	sum := sha256.Sum256([]byte(once))
	return nameWithTail(pod, sum[:8])
}

func nameWithTail(pod string, unique []byte) string {
	tail := "." + hex.EncodeToString(unique)
	if most := maxName - len(tail); len(pod) > most {
		// A dot or dash at the cut could not stand before a dot.
		pod = trimEnd(pod[:most])
	}
	return pod + tail
}

func trimEnd(s string) string {
	for s != "" && !alphanumeric(s, len(s)-1) {
		s = s[:len(s)-1]
	}
	return s
}

// shortMessage keeps a message below the 1024 bytes that the API server allows.
func shortMessage(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && s[end]&0xC0 == 0x80 { // within a character
		end--
	}
	return s[:end] + "…"
}

// limit lets eventBurst events pass at once, and one more every eventPause.
type limit struct {
	left int
	last time.Time // when left was counted
}

// wait returns when the next event may pass, or when there is no time to wait.
func (l *limit) wait(closing <-chan struct{}) {
	for l.count(time.Now()); l.left == 0; l.count(time.Now()) {
		timer := time.NewTimer(eventPause)
		select {
		case <-timer.C:
		case <-closing:
			timer.Stop()
			return
		}
	}
	l.left--
}

func (l *limit) count(now time.Time) {
	earned := now.Sub(l.last) / eventPause
	l.left = min(eventBurst, l.left+int(min(earned, eventBurst)))
	l.last = l.last.Add(earned * eventPause)
}
