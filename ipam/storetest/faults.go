package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// patience is how many failures a call that fails for good meets before its
	// context is cancelled.
	patience = 2

	slowness     = 20 * time.Millisecond // an answer worth waiting for
	verySlowness = time.Second           // an answer nobody waits for

	// maxWrites is more than any single change needs. It only ends the loop over
	// a change's writes in a store that writes without end.
	maxWrites = 12
)

// runFaults makes each write of each kind of change fail in each way: once, and
// from then on for good. After that the same call is made again on a sound line,
// and nothing may be left but what that call is to leave.
func runFaults(t *testing.T, newStore func(t *testing.T) Harness) {
	if newStore(t).Faults == nil {
		t.Skip("SKIPPED: nothing lies between this store and its data that could fail")
	}
	for _, kind := range []FaultKind{Refuse, LostAnswer, Slow, Status409, Status422, Status429, Status500} {
		t.Run(string(kind), func(t *testing.T) {
			newFaulty(t, newStore(t), kind).run()
		})
	}
}

// faulty is a store of which writes fail in one way. Each trial has an address
// of its own, so that all of them can share the store.
type faulty struct {
	*fixture
	kind FaultKind
	next *netip.Addr
}

func newFaulty(t *testing.T, h Harness, kind FaultKind) *faulty {
	first := netip.MustParseAddr("10.10.0.1")
	return &faulty{newFixture(t, h), kind, &first}
}

// operation is a change to be disturbed.
type operation struct {
	name string

	// prepare answers the change for an address, after what has to be there
	// before.
	prepare func(f *fixture, a netip.Addr) ipam.Change
}

var operations = []operation{
	{"take", func(_ *fixture, a netip.Addr) ipam.Change { return take(narrow, a, recordOf("a")) }},
	{"rewrite", func(f *fixture, a netip.Addr) ipam.Change {
		old := recordOf("a")
		f.must(take(narrow, a, old))
		return rewrite(narrow, a, old, restarted(old))
	}},
	{"release", func(f *fixture, a netip.Addr) ipam.Change {
		r := recordOf("a")
		f.must(take(narrow, a, r))
		return release(narrow, a, r)
	}},
}

func (f *faulty) run() {
	for _, op := range operations {
		f.eachWrite(op.name+", once", 1, func(f *faulty, fault Fault) bool { return f.once(op, fault) })
		f.eachWrite(op.name+", for good, then again", 0, func(f *faulty, fault Fault) bool { return f.again(op, fault) })
	}
	take := operations[0]
	f.eachWrite("take, for good, then a rival", 0, func(f *faulty, fault Fault) bool { return f.rival(take, fault) })
	f.eachWrite("take, for good, then an unprotected rival", 0, func(f *faulty, fault Fault) bool { return f.unprotectedRival(take, fault) })
	f.eachWrite("take, for good, then a release", 0, func(f *faulty, fault Fault) bool { return f.takenBack(take, fault) })
	f.batch()
	f.empty()
}

// eachWrite runs a trial for the first write of a change, the second, and so on
// until the fault hits nothing any more. A trial reports whether it did.
func (f *faulty) eachWrite(name string, times int, trial func(*faulty, Fault) (hit bool)) {
	f.Helper()
	for nth := 1; nth <= maxWrites; nth++ {
		hit := false
		ran := f.Run(fmt.Sprintf("%s, write %d", name, nth), func(t *testing.T) {
			each := &faulty{&fixture{t, f.Harness}, f.kind, f.next}
			hit = trial(each, Fault{Kind: f.kind, Nth: nth, Times: times, Delay: slowness})
			if !hit && nth == 1 {
				t.Error("the fault hit nothing: the injector does not see this change's writes")
			}
		})
		if !hit || !ran {
			return
		}
	}
}

func (f *faulty) address() netip.Addr {
	a := *f.next
	*f.next = a.Next()
	return a
}

// once disturbs one write. What a store is to try again must succeed.
func (f *faulty) once(op operation, fault Fault) bool {
	c := op.prepare(f.fixture, f.address())
	f.Faults.Arm(fault)
	err := f.do(c)
	hit := f.Faults.Fired() > 0
	f.Faults.Disarm()
	mayFail := f.kind == Status409 || f.kind == Status422
	if err != nil && !mayFail {
		f.Errorf("%s with one write disturbed: %v", describe(c), err)
	}
	f.clean(c, err)
	f.settle(c)
	return hit
}

// again disturbs all writes until the caller gives up, then repeats the call.
func (f *faulty) again(op operation, fault Fault) bool {
	c := op.prepare(f.fixture, f.address())
	hit := f.disturbedForGood(c, fault)
	f.settle(c)
	return hit
}

func (f *faulty) disturbedForGood(c ipam.Change, fault Fault) bool {
	ctx, cancel := context.WithCancel(f.ctx())
	defer cancel()
	failures := patience
	if fault.Kind == Slow {
		fault.Delay, failures = verySlowness, 1
	}
	f.Faults.Arm(fault)
	defer f.Faults.Disarm()
	go cancelAfter(ctx, cancel, func() bool { return f.Faults.Fired() >= failures })
	err := commit(ctx, f.Store, c)
	f.clean(c, err)
	return f.Faults.Fired() > 0
}

// cancelAfter cancels a context once enough has happened.
func cancelAfter(ctx context.Context, cancel context.CancelFunc, enough func() bool) {
	for !enough() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
}

// clean wants a failure either to say that its outcome may be unknown, or to
// have changed nothing.
func (f *faulty) clean(c ipam.Change, err error) {
	f.Helper()
	if err == nil || errors.Is(err, ipam.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return
	}
	if c.Before != nil {
		f.held(c.Pool, c.Address, *c.Before)
		return
	}
	f.free(c.Pool, c.Address)
	f.unreserved(c.Pool.Network, c.Address)
}

// settle repeats a change undisturbed, wants its outcome, and clears up.
func (f *faulty) settle(c ipam.Change) {
	f.Helper()
	f.must(c)
	if c.After != nil {
		f.held(c.Pool, c.Address, *c.After)
		f.reserved(c.Pool, c.Address, *c.After)
		CheckInvariants(f, f.Store)
		f.must(release(c.Pool, c.Address, *c.After))
	} else {
		f.heal(c, *c.Before)
	}
	f.free(c.Pool, c.Address)
	f.unreserved(c.Pool.Network, c.Address)
}

// heal lets the owner's pod take the address again and release it, where nothing
// tells whose the reservation is that an interrupted release leaves: without
// container ids it may be the claim of the pod's next container, and is left to it.
func (f *faulty) heal(c ipam.Change, r ipam.Record) {
	f.Helper()
	if !f.Details {
		f.must(take(c.Pool, c.Address, r), release(c.Pool, c.Address, r))
	}
}

// rival lets somebody else take the address after a take with an unknown
// outcome. One of them has it in the end, and the other one nothing.
func (f *faulty) rival(op operation, fault Fault) bool {
	c := op.prepare(f.fixture, f.address())
	hit := f.disturbedForGood(c, fault)
	other := f.another()
	theirs := take(wide, c.Address, recordOf("rival"))
	errs := []error{other.do(theirs), f.do(c)}
	if errs[0] == nil && errs[1] == nil {
		f.Errorf("%s has two holders", c.Address)
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, ipam.ErrConflict) {
			f.Errorf("got error %v, want a conflict", err)
		}
	}
	CheckInvariants(f, f.Store)
	f.must(release(c.Pool, c.Address, *c.After), release(theirs.Pool, c.Address, *theirs.After))
	f.heal(c, *c.After)
	f.unreserved("", c.Address)
	return hit
}

// unprotectedRival lets somebody else take the address without overlap
// protection. If it gets it, repeating the take frees the reservation that may
// have been left.
func (f *faulty) unprotectedRival(op operation, fault Fault) bool {
	c := op.prepare(f.fixture, f.address())
	hit := f.disturbedForGood(c, fault)
	rival := recordOf("rival")
	err := f.another().do(unprotected(take(c.Pool, c.Address, rival)))
	switch {
	case err == nil:
		f.conflict(c)
		f.held(c.Pool, c.Address, rival)
		f.unreserved("", c.Address)
	case errors.Is(err, ipam.ErrConflict):
		f.must(c)
	default:
		f.Errorf("the rival gets %v, want nothing or a conflict", err)
	}
	f.must(release(c.Pool, c.Address, *c.After), release(c.Pool, c.Address, rival))
	f.heal(c, *c.After)
	f.unreserved("", c.Address)
	return hit
}

// takenBack gives up after a take with an unknown outcome: the release that
// follows leaves nothing behind, whatever the outcome was.
func (f *faulty) takenBack(op operation, fault Fault) bool {
	c := op.prepare(f.fixture, f.address())
	hit := f.disturbedForGood(c, fault)
	f.must(release(c.Pool, c.Address, *c.After))
	f.heal(c, *c.After)
	f.free(c.Pool, c.Address)
	f.unreserved(c.Pool.Network, c.Address)
	return hit
}

// batch disturbs each write of a batch once; repeating the batch settles it.
func (f *faulty) batch() {
	f.eachWrite("batch, once", 1, func(f *faulty, fault Fault) bool {
		held, freed := recordOf("held"), recordOf("freed")
		first, second, third := f.address(), f.address(), f.address()
		f.must(take(narrow, second, freed), take(narrow, third, held))
		changes := []ipam.Change{
			take(narrow, first, recordOf("new")), release(narrow, second, freed), take(narrow, third, recordOf("new")),
		}
		f.Faults.Arm(fault)
		errs := f.Store.Commit(f.ctx(), changes)
		hit := f.Faults.Fired() > 0
		f.Faults.Disarm()
		if len(errs) != len(changes) || !errors.Is(errs[2], ipam.ErrConflict) && !errors.Is(errs[2], ipam.ErrUnavailable) {
			f.Fatalf("got errors %v, want the third to be a conflict", errs)
		}
		f.held(narrow, third, held)
		f.reserved(narrow, third, held)
		f.outcomes(f.Store.Commit(f.ctx(), changes), nil, nil, ipam.ErrConflict)
		f.held(narrow, first, *changes[0].After)
		f.heal(changes[1], freed)
		f.free(narrow, second)
		CheckInvariants(f, f.Store)
		f.must(release(narrow, first, *changes[0].After), release(narrow, third, held))
		return hit
	})
}
