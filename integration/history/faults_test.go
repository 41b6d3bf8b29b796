package history

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// faults befall the requests of one node at random.
type faults struct {
	rate    atomic.Int64 // so many of 1000 requests suffer; 0 is none
	isWrite func(testenv.Request) bool
	late    func(testenv.Request)

	mu  sync.Mutex
	rng *rand.Rand
}

// fault is an action and how often it is chosen, compared with the others.
type fault struct {
	weight int
	match  testenv.Match
	action testenv.Action
}

// repertoire lists the faults. late is called when a write is on its way that will
// arrive whatever becomes of its sender.
func repertoire(isWrite func(testenv.Request) bool, late func(testenv.Request)) []fault {
	any, writes := testenv.Match{}, testenv.Match{Func: isWrite}
	list := []fault{
		{10, any, testenv.Refuse()},
		{5, any, testenv.Refuse().WholeConnection()},
		{20, writes, testenv.LoseAnswer()},
		{10, writes, testenv.LoseAnswer().WholeConnection()},
		{10, any, testenv.CutAnswer()},
		{10, any, testenv.Slow(100*time.Millisecond, 0)},
		{10, any, testenv.Slow(0, 200*time.Millisecond)},
		{4, any, testenv.Slow(2*time.Second, 0)},
		{2, any, testenv.ForwardThenHang()},
		{10, writes, testenv.Answer(http.StatusConflict)},
		{5, testenv.Match{Method: http.MethodPatch}, testenv.Answer(http.StatusUnprocessableEntity)},
		{10, any, testenv.AnswerStatus(testenv.Status{Code: http.StatusTooManyRequests, RetryAfter: time.Second})},
		{10, any, testenv.Answer(http.StatusInternalServerError)},
		{10, any, testenv.Answer(http.StatusServiceUnavailable)},
		{10, writes, testenv.ForwardThenAnswer(http.StatusGatewayTimeout)},
	}
	for _, delay := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second} {
		list = append(list, fault{8, writes, testenv.Slow(delay, 0).WithBefore(late).Detached()})
	}
	return list
}

// allWeights is what the weights are measured against: about their sum.
const allWeights = 150

// install puts the faults in force, at the rate of the moment.
func (f *faults) install(p *testenv.Proxy) {
	for _, each := range repertoire(f.isWrite, f.late) {
		wanted := each.match.Func
		each.match.Func = func(r testenv.Request) bool {
			return f.chosen(each.weight) && (wanted == nil || wanted(r))
		}
		p.Inject(testenv.Rule{Match: each.match, Action: each.action, Times: testenv.Always})
	}
}

func (f *faults) chosen(weight int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.Int64N(1000*allWeights) < f.rate.Load()*int64(weight)
}
