package mixed

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// holding is the time in which a sandbox definitely has an address: it has been told so,
// and its DEL has not begun.
type holding struct {
	sandbox
	address netip.Addr
	node    string
	from    time.Time
}

func (h holding) String() string {
	return fmt.Sprintf("%s on %s, since %s", h.container, h.node, clock(h.from))
}

// double is two holdings of one address that overlap in time.
type double struct {
	first, second holding
}

// ledger writes down who was told what. Its methods may be called from any goroutine.
type ledger struct {
	mu       sync.Mutex
	open     map[netip.Addr][]*holding
	doubles  []double
	holdings int
}

func newLedger() *ledger { return &ledger{open: map[netip.Addr][]*holding{}} }

// granted notes that an ADD has returned an address, and finds whoever has it too.
func (l *ledger) granted(s sandbox, node string, a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := &holding{sandbox: s, address: a, node: node, from: time.Now()}
	for _, other := range l.open[a] {
		l.doubles = append(l.doubles, double{*other, *mine})
	}
	l.open[a] = append(l.open[a], mine)
	l.holdings++
}

// ends notes that the DEL of a sandbox is about to start.
func (l *ledger) ends(s sandbox, a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []*holding
	for _, h := range l.open[a] {
		if h.container != s.container {
			left = append(left, h)
		}
	}
	l.open[a] = left
}
