package history

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// datastore is what a run has to know of the place where the records are.
type datastore interface {
	// reach gives a node its own way there: its proxies and settings.
	reach(t *testing.T, n *node)

	// read answers all that is stored, by place. What does not belong to any is
	// unknown. An error is no finding: the servers may be away.
	read(ctx context.Context) (all map[place]*stored, unknown []string, err error)

	// age makes the records of a node and network an hour old, which garbage
	// collection looks at, and answers where those are that it did this to, by
	// container.
	age(ctx context.Context, n *node, net *network) map[string]place

	// holder is the container that has a place; "" if nobody has, or if the
	// servers are away.
	holder(ctx context.Context, p place) string

	// outages are what can happen to the servers, which run again after it.
	outages() []outage

	// isWrite tells writes from reads, say puts one in words: what it does, and what
	// is recorded by it; and mentions reports whether it is about a place.
	isWrite(r testenv.Request) bool
	say(r testenv.Request) (what, body string)
	mentions(w wire, s *slot) bool

	// lateTraces reports whether a write that arrives after the DEL of its container
	// may leave a record behind.
	lateTraces() bool
}

// outage is a server that is away for some time, or something like it.
type outage = testenv.Trouble

// forAWhile lets some seconds pass.
func forAWhile(ctx context.Context, rng *rand.Rand) { sleep(ctx, within(rng, 3*time.Second)) }
