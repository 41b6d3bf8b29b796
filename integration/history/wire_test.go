package history

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// wire is a write that a node sent to the API server, for the history of an address.
type wire struct {
	at     time.Duration
	node   string
	what   string // method and path
	body   string
	result string
}

func (w wire) String() string {
	return fmt.Sprintf("%s %s %s %s", w.node, w.what, w.result, w.body)
}

// wireLog keeps the writes of all nodes for a while.
type wireLog struct {
	nodes []*node
	atlas *atlas
	start time.Time

	mu       sync.Mutex
	writes   []wire
	requests int
	faults   map[string]int // by name of the action
}

// harvest takes over what the proxies have recorded. Requests that are under way
// are written down as such.
func (l *wireLog) harvest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.nodes {
		requests := n.proxy.Requests()
		n.proxy.ResetRequests()
		l.requests += len(requests)
		for _, r := range requests {
			if r.Fault != "" {
				l.faults[r.Fault]++
			}
			if r.Method != http.MethodGet {
				l.writes = append(l.writes, l.wireOf(n, r))
			}
		}
	}
}

func (l *wireLog) wireOf(n *node, r testenv.Request) wire {
	path := r.Path
	if _, tail, ok := strings.Cut(path, "/namespaces/"); ok {
		_, path, _ = strings.Cut(tail, "/")
	}
	w := wire{at: r.Begin.Sub(l.start), node: n.name, what: r.Method + " " + path, body: string(r.Body)}
	w.result = fmt.Sprintf("answered %d after %s", r.Status, r.Duration.Round(time.Millisecond))
	switch {
	case !r.Done:
		w.result = "under way"
	case r.Fault != "":
		w.result = fmt.Sprintf("answered %d (in truth %d) after %s because of %q", r.Status, r.Upstream, r.Duration.Round(time.Millisecond), r.Fault)
	}
	return w
}

// mentioning answers the writes that are about a place.
func (l *wireLog) mentioning(p place) []wire {
	l.harvest()
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.atlas.byPlace[p]
	if here == nil {
		return nil
	}
	var found []wire
	for _, w := range l.writes {
		if w.about(here) {
			found = append(found, w)
		}
	}
	return found
}

func (w wire) about(s *slot) bool {
	if strings.HasSuffix(w.what, "/"+s.reservation) || strings.Contains(w.body, `"name":"`+s.reservation+`"`) {
		return true
	}
	for i, pool := range s.pools {
		entry := "/spec/allocations/" + s.keys[i]
		patched := strings.Contains(w.body, `"`+entry+`"`) || strings.Contains(w.body, `"`+entry+`/`)
		if strings.HasSuffix(w.what, "/"+pool) && patched {
			return true
		}
		if strings.Contains(w.body, `"name":"`+pool+`"`) && strings.Contains(w.body, `"`+s.keys[i]+`":{`) {
			return true
		}
	}
	return false
}

// trim forgets what happened before a time.
func (l *wireLog) trim(before time.Duration) {
	l.harvest()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = slices.DeleteFunc(l.writes, func(w wire) bool { return w.at < before })
}

func (l *wireLog) counts() (requests int, faults map[string]int) {
	l.harvest()
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := map[string]int{}
	for name, n := range l.faults {
		copied[name] = n
	}
	return l.requests, copied
}

var containerField = regexp.MustCompile(`"(?:id|containerid)":"([^"]+)"`)

// containersIn lists the containers for which a write records something.
func containersIn(body string) []string {
	var found []string
	for _, match := range containerField.FindAllStringSubmatch(body, -1) {
		if !slices.Contains(found, match[1]) {
			found = append(found, match[1])
		}
	}
	return found
}
