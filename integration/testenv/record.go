package testenv

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"time"
)

// Request is what a proxy knows of a request. A record that is not Done is still
// under way, as a watch is for most of its life.
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Header http.Header // without Authorization
	Body   []byte
	Proto  string // "HTTP/1.1" or "HTTP/2.0"

	Status       int    // what the client was answered; 0 for nothing
	Upstream     int    // what the API server answered; 0 if it was not asked or did not
	ResponseSize int64  // bytes of the body sent to the client
	Fault        string // name of the action of the rule that acted; "" for none
	Err          error  // why the API server did not answer
	Begin        time.Time
	Duration     time.Duration // until the answer was complete; 0 unless Done
	Done         bool

	cancel context.CancelFunc // breaks it off
}

// String is the request in one line.
func (r Request) String() string {
	line := r.Method + " " + r.Path
	if len(r.Query) > 0 {
		line += "?" + r.Query.Encode()
	}
	return line
}

// Match chooses requests: by all of its fields that are set.
type Match struct {
	Method string             // such as "PATCH"
	Path   string             // regular expression, found anywhere in the path
	Func   func(Request) bool // anything else; must not call the proxy
}

// matcher is a Match made ready.
type matcher struct {
	Match
	path *regexp.Regexp
}

// compile panics on a bad expression, which is a mistake in the test.
func (m Match) compile() matcher {
	return matcher{Match: m, path: regexp.MustCompile(m.Path)}
}

func (m matcher) matches(r Request) bool {
	return (m.Method == "" || m.Method == r.Method) &&
		m.path.MatchString(r.Path) &&
		(m.Func == nil || m.Func(r))
}
