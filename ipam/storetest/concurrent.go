package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var concurrentCases = []testCase{
	{"of two writers that take one address exactly one wins", func(f *fixture) {
		f.race(narrow, narrow)
	}},
	{"of two writers that take one address through two ranges at most one wins", func(f *fixture) {
		f.race(narrow, wide)
	}},
	{"a loser against a writer without overlap protection leaves no reservation", func(f *fixture) {
		other := f.another()
		for range 8 {
			a, b := recordOf("a"), recordOf("b")
			errs := make([]error, 2)
			together(2, func(i int) {
				errs[i] = []*fixture{f, other}[i].do([]ipam.Change{take(narrow, addr, a), unprotected(take(narrow, addr, b))}[i])
			})
			winner := f.oneWins(errs, a, b)
			f.held(narrow, addr, winner)
			if winner == b {
				f.unreserved("", addr)
			}
			f.must(release(narrow, addr, winner))
			f.empty()
		}
	}},
	{"many writers that take an address each all succeed", func(f *fixture) {
		const writers = 16
		handles := []*fixture{f, f.another()}
		together(writers, func(i int) {
			a := netip.AddrFrom4([4]byte{10, 10, 0, byte(i + 1)})
			if err := handles[i%2].do(take(narrow, a, recordOf(fmt.Sprint("pod-", i)))); err != nil {
				f.Errorf("take %s: %v", a, err)
			}
		})
		if got := len(f.read(narrow).Records); got != writers {
			f.Errorf("%d addresses are recorded, want %d", got, writers)
		}
		CheckInvariants(f, f.Store)
	}},
	{"many releases at once all succeed", func(f *fixture) {
		const writers = 16
		handles := []*fixture{f, f.another()}
		records := make([]ipam.Record, writers)
		for i := range records {
			records[i] = recordOf(fmt.Sprint("pod-", i))
			f.must(take(narrow, netip.AddrFrom4([4]byte{10, 10, 0, byte(i + 1)}), records[i]))
		}
		together(writers, func(i int) {
			a := netip.AddrFrom4([4]byte{10, 10, 0, byte(i + 1)})
			if err := handles[i%2].do(release(narrow, a, records[i])); err != nil {
				f.Errorf("release %s: %v", a, err)
			}
		})
		f.empty()
	}},
	{"of two rewrites of one record exactly one wins", func(f *fixture) {
		other := f.another()
		for range 5 {
			old := recordOf("a")
			f.must(take(narrow, addr, old))
			first, second := restarted(old), restarted(old)
			second.ContainerID += "-other"
			errs := make([]error, 2)
			together(2, func(i int) {
				errs[i] = []*fixture{f, other}[i].do(rewrite(narrow, addr, old, []ipam.Record{first, second}[i]))
			})
			winner := f.oneWins(errs, first, second)
			f.held(narrow, addr, winner)
			f.reserved(narrow, addr, winner)
			f.must(release(narrow, addr, winner))
		}
		f.empty()
	}},
	{"a release and a take of one address leave the taker or nobody", func(f *fixture) {
		other := f.another()
		for range 5 {
			a, b := recordOf("a"), recordOf("b")
			f.must(take(narrow, addr, a))
			errs := make([]error, 2)
			together(2, func(i int) {
				errs[i] = []*fixture{f, other}[i].do([]ipam.Change{release(narrow, addr, a), take(narrow, addr, b)}[i])
			})
			switch {
			case errs[0] != nil:
				f.Fatalf("the release answers %v", errs[0])
			case errs[1] == nil:
				f.held(narrow, addr, b)
			case !errors.Is(errs[1], ipam.ErrConflict):
				f.Fatalf("the take answers %v", errs[1])
			default:
				f.free(narrow, addr)
			}
			CheckInvariants(f, f.Store)
			f.must(release(narrow, addr, b))
		}
		f.empty()
	}},
	{"a crowded pool of ten addresses never has two holders of one", func(f *fixture) {
		newCrowd(f, pool("", "10.10.0.0/28")).run()
	}},
	{"two crowded ranges that overlap never have two holders of one address", func(f *fixture) {
		newCrowd(f, pool("", "10.10.0.0/28"), pool("", "10.10.0.0/16")).run()
	}},
}

// together runs fn n times at once and waits.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// race lets two handles take one address through a pool each, several times.
// In one pool there is always a winner; where they meet only in the reservation,
// both may step back.
func (f *fixture) race(pools ...ipam.PoolID) {
	f.Helper()
	handles := []*fixture{f, f.another()}
	for range 8 {
		records := []ipam.Record{recordOf("a"), recordOf("b")}
		errs := make([]error, 2)
		together(2, func(i int) { errs[i] = handles[i].do(take(pools[i], addr, records[i])) })
		won := 0
		for i, err := range errs {
			switch {
			case err == nil:
				won++
				f.held(pools[i], addr, records[i])
				f.reserved(pools[i], addr, records[i])
			case !errors.Is(err, ipam.ErrConflict):
				f.Errorf("the loser gets %v, want a conflict", err)
			}
		}
		if won > 1 || won == 0 && pools[0] == pools[1] {
			f.Errorf("%d writers won", won)
		}
		CheckInvariants(f, f.Store)
		f.must(release(pools[0], addr, records[0]), release(pools[1], addr, records[1]))
	}
	f.empty()
}

// oneWins wants one success and one conflict, and answers the winner's record.
func (f *fixture) oneWins(errs []error, records ...ipam.Record) ipam.Record {
	f.Helper()
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), ipam.ErrConflict) {
		f.Fatalf("got errors %v, want one success and one conflict", errs)
	}
	if errs[0] == nil {
		return records[0]
	}
	return records[1]
}

// crowd is workers on two handles that take and release more often than there
// are addresses. Each writes down what it was told; nobody may be told that it
// has an address before its last holder began to give it back.
type crowd struct {
	*fixture
	handles []*fixture
	pools   []ipam.PoolID
	holders [crowdSize]atomic.Pointer[ipam.Record]
	kept    sync.Map // by address: the pool it is kept in
}

const (
	crowdSize    = 10 // addresses
	crowdWorkers = 6
	crowdRounds  = 8
	crowdTries   = 30 * crowdSize
)

func newCrowd(f *fixture, pools ...ipam.PoolID) *crowd {
	return &crowd{fixture: f, handles: []*fixture{f, f.another()}, pools: pools}
}

func (c *crowd) run() {
	together(crowdWorkers, c.work)
	CheckInvariants(c, c.Store)
	c.kept.Range(func(i, id any) bool {
		c.held(id.(ipam.PoolID), crowdAddress(i.(int)), *c.holders[i.(int)].Load())
		return true
	})
	c.onlyKept()
}

// work takes an address in each round, and keeps that of the last one.
func (c *crowd) work(worker int) {
	handle, id := c.handles[worker%len(c.handles)], c.pools[worker%len(c.pools)]
	for round := range crowdRounds {
		r := recordOf(fmt.Sprintf("pod-%d-%d", worker, round))
		i, ok := c.takeAny(handle, id, &r)
		if !ok {
			return
		}
		if round == crowdRounds-1 {
			c.kept.Store(i, id)
			return
		}
		c.holders[i].Store(nil)
		if err := handle.do(release(id, crowdAddress(i), r)); err != nil {
			c.Errorf("release %s: %v", crowdAddress(i), err)
		}
	}
}

// takeAny tries addresses until it gets one. There are more of them than
// workers, so it gets one soon.
func (c *crowd) takeAny(handle *fixture, id ipam.PoolID, r *ipam.Record) (int, bool) {
	start := rand.N(crowdSize)
	for try := range crowdTries {
		i := (start + try) % crowdSize
		err := handle.do(take(id, crowdAddress(i), *r))
		if err == nil {
			if !c.holders[i].CompareAndSwap(nil, r) {
				c.Errorf("%s was given to %s while somebody else had it", crowdAddress(i), r.Holder())
			}
			return i, true
		}
		if !errors.Is(err, ipam.ErrConflict) {
			c.Errorf("take %s: %v", crowdAddress(i), err)
			return 0, false
		}
	}
	c.Errorf("%s got no address in %d tries", r.Holder(), crowdTries)
	return 0, false
}

// onlyKept wants no record but the kept ones.
func (c *crowd) onlyKept() {
	records := 0
	for _, id := range c.pools {
		records += len(c.read(id).Records)
	}
	if records != crowdWorkers {
		c.Errorf("%d addresses are recorded at the end, want %d", records, crowdWorkers)
	}
}

func crowdAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 10, 0, byte(i + 1)}) }
