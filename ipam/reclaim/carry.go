package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// batchSize is how many changes are committed at once: a thousand orphans of a
	// pool are twenty writes, and what is known live is seconds old at most.
	batchSize = 50

	// batchTime is what one batch may take with all its retries, so that one
	// object that cannot be written does not stop the pass.
	batchTime = 30 * time.Second

	// maxAsked bounds the questions asked at once.
	maxAsked = 8
)

// carryOut asks again, live, about candidates and does what is still to be done.
func (p *pass) carryOut(ctx context.Context, batch []candidate) {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	p.askAll(ctx, batch)
	var changes []ipam.Change
	var changed []*candidate
	for i := range batch {
		c := &batch[i]
		change, still, err := p.confirm(ctx, c)
		switch {
		case err != nil:
			p.fail("cannot look again before an address is freed or repaired", c, err)
		case still:
			changes, changed = append(changes, change), append(changed, c)
		}
	}
	for i, err := range p.commit(ctx, changes) {
		p.settle(changed[i], err)
	}
}

func (p *pass) commit(ctx context.Context, changes []ipam.Change) []error {
	if len(changes) == 0 {
		return nil
	}
	return p.Store.Commit(ctx, changes)
}

// askAll asks about the pods of candidates, and for the reservation of those that are
// to be completed, several at once.
func (p *pass) askAll(ctx context.Context, batch []candidate) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, maxAsked)
	for i := range batch {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			c := &batch[i]
			c.ask(ctx, p.Live)
			if c.err == nil && c.verdict.Action == Complete {
				c.stored, c.err = p.Store.Reservation(ctx, c.network, c.address)
			}
		})
	}
	wg.Wait()
}

// confirm decides again about a candidate, by live answers, and makes the change. It
// counts those about which nothing is to be done any more.
func (p *pass) confirm(ctx context.Context, c *candidate) (change ipam.Change, still bool, err error) {
	if c.err != nil {
		return ipam.Change{}, false, c.err
	}
	before := c.verdict.Action
	p.decide(c)
	if c.verdict.Action == Complete && before != Complete {
		c.verdict.Action = Keep // for a pass that knows as much
		p.report.due(p.now.Add(p.Grace))
	}
	if c.verdict.Action == Keep || c.verdict.Action == Wait {
		p.count(c.verdict)
		return ipam.Change{}, false, nil
	}
	switch {
	case c.reservation != nil:
		change, still, err = p.changeReservation(ctx, c)
	case c.verdict.Action == Complete:
		change, still, err = p.completeEntry(ctx, c)
	default:
		return ipam.Change{Pool: c.pool, Address: c.address, Before: &c.record, Strict: true}, true, nil
	}
	if err == nil && !still {
		p.report.Changed++
	}
	return change, still, err
}

// completeEntry makes the missing reservation of an entry: it rewrites the entry as
// it is, with overlap protection.
func (p *pass) completeEntry(ctx context.Context, c *candidate) (ipam.Change, bool, error) {
	pool, err := p.read(ctx, c.pool)
	if err != nil || c.stored != nil {
		return ipam.Change{}, false, err
	}
	now, held := pool.Records[c.address]
	if !held || !now.Same(c.record) || now.Gen != c.record.Gen {
		return ipam.Change{}, false, nil
	}
	after := c.record
	after.Unprotected = false
	return ipam.Change{Pool: c.pool, Address: c.address, Before: &c.record, After: &after, Overlap: true}, true, nil
}

// changeReservation frees a bare reservation, or makes its missing entry.
func (p *pass) changeReservation(ctx context.Context, c *candidate) (ipam.Change, bool, error) {
	bare, err := p.stillBare(ctx, c)
	if err != nil || !bare {
		return ipam.Change{}, false, err
	}
	if c.verdict.Action == Free {
		id := ipam.PoolID{Network: c.reservation.Space}
		return ipam.Change{Pool: id, Address: c.address, Seen: c.reservation, Strict: true}, true, nil
	}
	if c.stored == nil || c.stored.Version != c.reservation.Version {
		return ipam.Change{}, false, nil
	}
	return ipam.Change{Pool: c.pool, Address: c.address, After: &c.record, Overlap: true}, true, nil
}

// stillBare reads the pools around a reservation's address and reports whether its
// entry is missing still. To be completed there must be no other's either.
func (p *pass) stillBare(ctx context.Context, c *candidate) (bool, error) {
	ids := []ipam.PoolID{}
	if c.pool.Range.IsValid() {
		ids = append(ids, c.pool)
	}
	for _, pool := range p.snapshot.Pools {
		if pool.ID.Network == c.reservation.Space && pool.ID.Range.Contains(c.address) {
			ids = append(ids, pool.ID)
		}
	}
	for _, id := range ids {
		pool, err := p.read(ctx, id)
		if err != nil {
			return false, err
		}
		record, held := pool.Records[c.address]
		if held && (c.verdict.Action == Complete || c.reservation.Beside(id, record)) {
			return false, nil
		}
	}
	return true, nil
}

// read reads a pool once in a pass.
func (p *pass) read(ctx context.Context, id ipam.PoolID) (*ipam.Pool, error) {
	if pool := p.content[id]; pool != nil {
		return pool, nil
	}
	pool, err := p.Store.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	p.content[id] = pool
	return pool, nil
}

// settle takes down what became of a change.
func (p *pass) settle(c *candidate, err error) {
	switch {
	case errors.Is(err, ipam.ErrConflict):
		p.report.Changed++
		p.looks.forget(c.spot)
	case err != nil && c.verdict.Action == Free:
		p.fail("cannot free an address", c, err)
		p.tell(c, true, "IPAddressGarbageCollectionFailed", fmt.Sprintf("could not free %s, though %s: %v", c.what(), c.verdict.Reason.Words(), err))
	case err != nil:
		p.fail("cannot repair half a record", c, err)
	case c.verdict.Action == Free:
		p.report.Freed++
		p.looks.forget(c.spot)
		p.log().Info("freed an address", "address", c.address, "pool", c.where(), "owner", c.record.Holder(), "reason", string(c.verdict.Reason), "half", c.reservation != nil)
		p.tell(c, false, "IPAddressGarbageCollected", fmt.Sprintf("freed %s: %s", c.what(), c.verdict.Reason.Words()))
		if c.disputed {
			p.report.due(p.now) // the entry's owner can have its reservation now
		}
	default:
		p.report.Completed++
		p.looks.forget(c.spot)
		p.log().Info("completed half a record", "address", c.address, "pool", c.where(), "owner", c.record.Holder(), "reason", string(c.verdict.Reason))
	}
}

// what is the candidate in words.
func (c *candidate) what() string {
	if c.reservation != nil {
		return "the reservation of address " + c.address.String()
	}
	return "address " + c.address.String() + " of pool " + c.pool.String()
}

// tell records an event for the pod whose record the candidate is: that of another
// pod of the same name is not this one's.
func (p *pass) tell(c *candidate, warning bool, reason, message string) {
	if p.Events == nil {
		return
	}
	namespace, name, _ := splitPodRef(c.record.PodRef)
	pod := Pod{Namespace: namespace, Name: name, UID: c.record.UID, Node: c.record.Node}
	if c.pod != nil && c.pod.MayBe(c.record.UID) {
		pod = *c.pod
	}
	p.Events.Event(Event{Pod: pod, Warning: warning, Reason: reason, Message: message})
}
