// Package storefault brings the faults of the conformance suite to a store that is
// reached through a proxy of package testenv.
package storefault

import (
	"net/http"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
)

// New makes the writes of a store fail that reaches its server through the proxy;
// isWrite tells them from reads.
func New(p *testenv.Proxy, isWrite func(testenv.Request) bool) storetest.Injector {
	return &injector{proxy: p, isWrite: isWrite}
}

type injector struct {
	proxy   *testenv.Proxy
	isWrite func(testenv.Request) bool
	armed   *testenv.Injection
}

// Arm puts a fault in force.
func (s *injector) Arm(f storetest.Fault) {
	s.Disarm()
	times := f.Times
	if times == 0 {
		times = testenv.Always
	}
	s.armed = s.proxy.Inject(testenv.Rule{Match: testenv.Match{Func: s.isWrite}, Nth: f.Nth, Times: times, Action: actionOf(f)})
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
	if s.armed != nil {
		s.armed.Remove()
	}
}

// Fired is how many writes have failed.
func (s *injector) Fired() int { return s.armed.Hits() }
