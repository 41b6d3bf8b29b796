package testenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Action is what a proxy does to a request instead of passing it on quietly.
// Make one with the functions of this file. In all of them "forward" means that
// the API server has carried the request out and answered.
type Action struct {
	name     string
	before   func(Request)
	wait     time.Duration
	forward  bool
	detached bool
	after    func(Request)
	hold     time.Duration
	finish   finish
	status   Status
	wholly   bool
}

// finish says how a request ends.
type finish int

const (
	pass    finish = iota // the API server's answer
	drop                  // no answer
	cut                   // half of the answer
	hang                  // nothing until the client gives up
	replace               // another answer
)

// Refuse drops the request before it reaches the API server and closes the
// connection. (Where nobody listens at all, see Proxy.Down.)
func Refuse() Action { return Action{name: "refuse", finish: drop} }

// LoseAnswer forwards the request and closes the connection without an answer:
// the client cannot know what happened.
func LoseAnswer() Action { return Action{name: "lose answer", forward: true, finish: drop} }

// CutAnswer forwards the request and closes the connection after half of the
// answer's body, that of a watch before its first event.
func CutAnswer() Action { return Action{name: "cut answer", forward: true, finish: cut} }

// Slow waits before it forwards the request and again before it answers. A
// client that gives up in the first pause has its request dropped, unless the
// action is Detached.
func Slow(before, after time.Duration) Action {
	return Action{name: "slow", wait: before, forward: true, hold: after}
}

// Answer answers with a status such as 409 or 503 in the API server's form
// instead of forwarding.
func Answer(code int) Action { return AnswerStatus(Status{Code: code}) }

// AnswerStatus is Answer with details.
func AnswerStatus(s Status) Action {
	return Action{name: fmt.Sprintf("answer %d", s.Code), finish: replace, status: s}
}

// ForwardThenAnswer forwards the request and then answers something else: as a
// load balancer whose patience ended does, with a 504.
func ForwardThenAnswer(code int) Action {
	return Action{name: fmt.Sprintf("forward then answer %d", code), forward: true, finish: replace, status: Status{Code: code}}
}

// Hang does not forward and says nothing until the client gives up or the proxy
// goes down.
func Hang() Action { return Action{name: "hang", finish: hang} }

// ForwardThenHang forwards and says nothing until the client gives up or the
// proxy goes down.
func ForwardThenHang() Action { return Action{name: "forward then hang", forward: true, finish: hang} }

// Before calls f and then forwards the request: to let another writer in
// between, to kill a process, or to hold the request until a channel is closed.
// While f runs other requests go on.
func Before(f func(Request)) Action { return Action{name: "before", before: f, forward: true} }

// After forwards the request, calls f and then answers.
func After(f func(Request)) Action { return Action{name: "after", forward: true, after: f} }

// WithBefore is the action with a call of f at its start.
func (a Action) WithBefore(f func(Request)) Action {
	a.before = f
	return a
}

// WithAfter is the action with a call of f when the API server has answered.
// What is not forwarded has no such moment.
func (a Action) WithAfter(f func(Request)) Action {
	a.after = f
	return a
}

// Detached is the action for a request that is on its way already and cannot be
// called back: it reaches the API server even if the client has given up or
// died meanwhile. With Before it makes a write that comes late.
func (a Action) Detached() Action {
	a.detached = true
	return a
}

// WholeConnection is the action with the TCP connection reset at its end, where
// an HTTP/2 client's other requests on it suffer, too. Without it such a client
// loses one stream only.
func (a Action) WholeConnection() Action {
	a.wholly = true
	return a
}

// Rule says which requests an action befalls.
type Rule struct {
	Match
	Nth    int // begin with the nth matching request; 0 is 1
	Times  int // end after so many; 0 is 1, Always has no end
	Action Action
}

// Always is for Rule.Times.
const Always = -1

// Injection is a rule in force.
type Injection struct {
	proxy *Proxy
	rule  Rule
	match matcher
	seen  int
	acted int
	ended bool
}

// Hits answers how often the rule has acted. A test should check it: a fault that
// did not happen proves nothing.
func (i *Injection) Hits() int {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	return i.acted
}

// Remove ends the rule.
func (i *Injection) Remove() {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	i.ended = true
}

// due counts a matching request and reports whether the rule acts on it, given
// that no rule before it does. The proxy's lock is held.
func (i *Injection) due(taken bool) bool {
	i.seen++
	if taken || i.ended || i.seen < max(i.rule.Nth, 1) {
		return false
	}
	if i.rule.Times >= 0 && i.acted >= max(i.rule.Times, 1) {
		return false
	}
	i.acted++
	return true
}

// Status is an answer of the API server that is not a success.
type Status struct {
	Code       int
	Reason     string        // "" is the usual one of the code
	Message    string        // "" is one that says where it comes from
	RetryAfter time.Duration // in whole seconds; 0 is no Retry-After
}

// reason is what the API server says with a code, as far as faults need it.
// 409 is Conflict; a create that meets an existing object has AlreadyExists.
func (s Status) reason(method string) string {
	if s.Reason != "" {
		return s.Reason
	}
	if s.Code == http.StatusConflict && method == http.MethodPost {
		return "AlreadyExists"
	}
	return map[int]string{
		http.StatusBadRequest:          "BadRequest",
		http.StatusUnauthorized:        "Unauthorized",
		http.StatusForbidden:           "Forbidden",
		http.StatusNotFound:            "NotFound",
		http.StatusConflict:            "Conflict",
		http.StatusGone:                "Expired",
		http.StatusUnprocessableEntity: "Invalid",
		http.StatusTooManyRequests:     "TooManyRequests",
		http.StatusInternalServerError: "InternalError",
		http.StatusServiceUnavailable:  "ServiceUnavailable",
		http.StatusGatewayTimeout:      "Timeout",
	}[s.Code]
}

// answer makes the HTTP answer to a request.
func (s Status) answer(method string) *answer {
	message := s.Message
	if message == "" {
		message = fmt.Sprintf("injected by the test: %d %s", s.Code, http.StatusText(s.Code))
	}
	status := Object{
		"kind": "Status", "apiVersion": "v1", "metadata": Object{},
		"status": "Failure", "message": message, "reason": s.reason(method), "code": s.Code,
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if seconds := int(s.RetryAfter / time.Second); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
		status["details"] = Object{"retryAfterSeconds": seconds}
	}
	body, _ := json.Marshal(status) // strings and numbers: cannot fail
	return &answer{code: s.Code, header: header, body: body}
}
