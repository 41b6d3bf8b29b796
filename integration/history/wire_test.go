package history

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// wire is a write that a node sent to the datastore, for the history of an address.
type wire struct {
	at     time.Duration
	node   string
	what   string
	body   string
	result string
}

func (w wire) String() string {
	return fmt.Sprintf("%s %s %s %s", w.node, w.what, w.result, w.body)
}

// wireLog keeps the writes of all nodes for a while.
type wireLog struct {
	nodes []*node
	store datastore
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
		for _, p := range n.proxies {
			l.harvestOf(n, p)
		}
	}
}

func (l *wireLog) harvestOf(n *node, p *testenv.Proxy) {
	requests := p.Requests()
	p.ResetRequests()
	l.requests += len(requests)
	for _, r := range requests {
		if r.Fault != "" {
			l.faults[r.Fault]++
		}
		if l.store.isWrite(r) {
			l.writes = append(l.writes, l.wireOf(n, r))
		}
	}
}

func (l *wireLog) wireOf(n *node, r testenv.Request) wire {
	w := wire{at: r.Begin.Sub(l.start), node: n.name}
	w.what, w.body = l.store.say(r)
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
		if l.store.mentions(w, here) {
			found = append(found, w)
		}
	}
	return found
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
