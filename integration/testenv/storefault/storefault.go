// Package storefault brings the faults of the conformance suite to a store that is
// reached through a proxy of package testenv.
package storefault

import (
	"net/http"
	"sync"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
)

// New makes the writes of a store fail that reaches its servers through the proxies;
// isWrite tells them from reads. They are counted together.
func New(isWrite func(testenv.Request) bool, proxies ...*testenv.Proxy) storetest.Injector {
	return &injector{proxies: proxies, isWrite: isWrite}
}

type injector struct {
	proxies []*testenv.Proxy
	isWrite func(testenv.Request) bool
	armed   []*testenv.Injection
}

// Arm puts a fault in force.
func (s *injector) Arm(f storetest.Fault) {
	s.Disarm()
	s.armed = nil
	due := s.due(f)
	for _, p := range s.proxies {
		s.armed = append(s.armed, p.Inject(testenv.Rule{Match: testenv.Match{Func: due}, Times: testenv.Always, Action: actionOf(f)}))
	}
}

// due reports for each request whether the fault befalls it.
func (s *injector) due(f storetest.Fault) func(testenv.Request) bool {
	var mu sync.Mutex
	seen, first := 0, max(f.Nth, 1)
	return func(r testenv.Request) bool {
		if !s.isWrite(r) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
		return seen >= first && (f.Times == 0 || seen < first+f.Times)
	}
}

func actionOf(f storetest.Fault) testenv.Action {
	switch f.Kind {
	case storetest.Refuse:
		return testenv.Refuse()
	case storetest.LostAnswer:
		return testenv.LoseAnswer()
	case storetest.Slow:
		return testenv.Slow(0, f.Delay)
	case storetest.Status409:
		return testenv.Answer(http.StatusConflict)
	case storetest.Status422:
		return testenv.Answer(http.StatusUnprocessableEntity)
	case storetest.Status429:
		return testenv.Answer(http.StatusTooManyRequests)
	case storetest.Status500:
		return testenv.Answer(http.StatusInternalServerError)
	}
	panic("unknown fault " + f.Kind)
}

// Disarm lets everything pass.
func (s *injector) Disarm() {
	for _, armed := range s.armed {
		armed.Remove()
	}
}

// Fired is how many writes have failed.
func (s *injector) Fired() int {
	hits := 0
	for _, armed := range s.armed {
		hits += armed.Hits()
	}
	return hits
}
