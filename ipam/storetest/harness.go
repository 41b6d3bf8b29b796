// Package storetest is the conformance suite for implementations of ipam.Store:
// what a store must do beyond what its types say. A store's own tests call Run.
//
// The suite knows nothing of how a store works. What it needs beyond the
// interface (a second handle, a way to write half records, faults on the wire)
// the store's tests hand in as a Harness. CheckInvariants is of use to other
// tests too, as their last line.
package storetest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Harness is one fresh, empty store and the means to test it.
type Harness struct {
	Store ipam.Store

	// Other opens an independent handle onto the same data, as another process
	// or another node has. The Injector does not touch it.
	Other func(t *testing.T) ipam.Store

	// Faults makes writes of Store fail. Nil if nothing lies between the store
	// and its data; the cases about faults are not run then.
	Faults Injector

	// Details is true if everything survives that old versions do not know: Gen,
	// UID, Node, Network and Since of a record, container and range of a
	// reservation. Where older resource definitions are installed, it is pruned.
	Details bool

	// SeedReservation writes a reservation without a record, and SeedRecord a
	// record without a reservation, past the store: half records, as a crash or
	// an older version leaves them. Range "" is a reservation that does not say
	// what pool it belongs to; Gen is not stored.
	SeedReservation func(t *testing.T, r ipam.Reservation)
	SeedRecord      func(t *testing.T, id ipam.PoolID, a netip.Addr, r ipam.Record)
}

// FaultKind is what happens to a write request.
type FaultKind string

const (
	// Refuse breaks the connection off before the request is carried out.
	Refuse FaultKind = "refuse"

	// LostAnswer carries the request out and breaks the connection off instead
	// of answering.
	LostAnswer FaultKind = "lost answer"

	// Slow carries the request out at once and answers Fault.Delay later.
	Slow FaultKind = "slow"

	// The others answer with an error of that HTTP status, or what comes nearest
	// to it, and do not carry the request out. 409 stands for a conflict that is
	// no true one: the retry finds nothing in its way. 429 asks for no wait.
	Status409 FaultKind = "status 409"
	Status422 FaultKind = "status 422"
	Status429 FaultKind = "status 429"
	Status500 FaultKind = "status 500"
)

// Fault says which writes fail, and how.
type Fault struct {
	Kind  FaultKind
	Nth   int           // the first write to fail; the next one is 1
	Times int           // how many in a row fail; 0 is all until Disarm
	Delay time.Duration // of Slow
}

// Injector makes write requests fail on their way. A write is one request that
// is to change stored data; reads are never touched. It is used by one test at a
// time, but the store may send its writes at the same time.
type Injector interface {
	// Arm replaces whatever was armed and starts counting anew.
	Arm(f Fault)

	// Disarm lets everything pass.
	Disarm()

	// Fired is how many writes have failed since Arm.
	Fired() int
}

// Run runs all cases, each on a store of its own. Cases that the harness gives
// no means for are skipped by name.
func Run(t *testing.T, newStore func(t *testing.T) Harness) {
	for _, group := range [][]testCase{
		readCases, takeCases, rewriteCases, releaseCases, strictCases, batchCases,
		overlapCases, halfRecordCases, seenCases, concurrentCases, contextCases,
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, newStore(t))) })
		}
	}
	t.Run("faults", func(t *testing.T) { runFaults(t, newStore) })
}

// testCase is a sentence about stores and the test of it.
type testCase struct {
	name string
	run  func(f *fixture)
}
