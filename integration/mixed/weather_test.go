package mixed

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// weather lets faults befall the requests of a node, at random. Many reservations of
// older plugins come late, so that somebody else's is often there first.
func weather(n *node, rng *rand.Rand) {
	writes := func(r testenv.Request) bool {
		return r.Method != http.MethodGet && !strings.Contains(r.Path, "/leases")
	}
	all := func(testenv.Request) bool { return true }
	late := func(r testenv.Request) bool {
		return n.old && r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/"+reservations)
	}
	for _, fault := range []struct {
		of1000 int
		wanted func(testenv.Request) bool
		action testenv.Action
	}{
		{500, late, testenv.Slow(80*time.Millisecond, 0)},
		{10, writes, testenv.LoseAnswer()},
		{5, writes, testenv.CutAnswer()},
		{10, writes, testenv.Answer(http.StatusConflict)},
		{10, writes, testenv.ForwardThenAnswer(http.StatusGatewayTimeout)},
		{5, all, testenv.Refuse()},
		{10, all, testenv.Answer(http.StatusInternalServerError)},
		{5, all, testenv.AnswerStatus(testenv.Status{Code: http.StatusTooManyRequests, RetryAfter: time.Second})},
		{20, all, testenv.Slow(100*time.Millisecond, 0)},
		{20, all, testenv.Slow(0, 100*time.Millisecond)},
	} {
		n.proxy.Inject(testenv.Rule{
			Match: testenv.Match{Func: func(r testenv.Request) bool {
				return fault.wanted(r) && rng.IntN(1000) < fault.of1000 // under the proxy's lock
			}},
			Action: fault.action, Times: testenv.Always,
		})
	}
}

// mentions reports whether the path or body of a write is about an address.
func mentions(text string, nets []network, a netip.Addr) bool {
	for _, n := range nets {
		entry := "/spec/allocations/" + keyIn(n.span.pool, a)
		if strings.Contains(text, `"`+entry+`"`) || strings.Contains(text, `"`+entry+`/`) {
			return true
		}
	}
	name := nets[0].reservation(a)
	return strings.HasSuffix(text, "/"+name) || strings.Contains(text, `"name":"`+name+`"`)
}
