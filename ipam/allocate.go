package ipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// rollbackTimeout is for taking back what a failed ADD got, when its own time may
// be over.
const rollbackTimeout = 5 * time.Second

// Allocator takes and gives back addresses: the policy on top of a Store.
type Allocator struct {
	Store   Store
	Journal Journal
	Now     func() time.Time
	Rand    func(n int) int // uniform in [0, n)
	Log     *slog.Logger
}

// Assigned is one address of the result of an ADD.
type Assigned struct {
	Address netip.Prefix // with the mask of the configured range
	Gateway netip.Addr   // zero when there is none
}

// Add gives the owner one address from each range of the configuration, in order,
// then its fixed addresses, then the requested ones outside the ranges. Either all
// are recorded or none: what a failed Add took is released again. An owner that
// asks again gets the addresses it has.
//
// Errors wrap ErrInvalid, ErrExhausted (*ExhaustedError), ErrConflict (a requested
// address that somebody holds), ErrUnavailable, ErrDenied or ErrCorrupt.
func (a *Allocator) Add(ctx context.Context, cfg *Config, owner Owner) ([]Assigned, error) {
	if err := errors.Join(cfg.Invalid...); err != nil {
		return nil, err
	}
	p := newPlan(cfg, owner)
	m := a.recall(owner)
	p.prefer = m.older(owner)
	for {
		changes, slots, err := a.choose(ctx, p)
		if err == nil && len(changes) > 0 {
			m.intend(p, changes)
			err = a.commit(ctx, p, changes, slots)
		}
		if err != nil {
			a.rollback(ctx, p, m)
			return nil, err
		}
		if p.settled() {
			break
		}
	}
	a.releaseLeftovers(ctx, p)
	return p.result(), nil
}

// choose reads the pools that need it and picks an address for every open slot.
func (a *Allocator) choose(ctx context.Context, p *plan) ([]Change, []*slot, error) {
	if err := a.readPools(ctx, p); err != nil {
		return nil, nil, err
	}
	for {
		changes, slots, unsure := p.pick(a.Rand, a.Now())
		if unsure == nil {
			return changes, slots, p.err
		}
		if err := a.share(ctx, p, unsure); err != nil {
			return nil, nil, err
		}
	}
}

func (a *Allocator) readPools(ctx context.Context, p *plan) error {
	var stale []PoolID
	for _, id := range p.pools() {
		if p.content[id] == nil {
			stale = append(stale, id)
		}
	}
	read := make([]*Pool, len(stale))
	errs := make([]error, len(stale))
	done := make(chan struct{})
	for i, id := range stale {
		go func() {
			read[i], errs[i] = a.Store.Read(ctx, id)
			done <- struct{}{}
		}()
	}
	for range stale {
		<-done
	}
	for i, id := range stale {
		p.content[id] = read[i]
	}
	return errors.Join(errs...)
}

// commit writes the changes and notes for each slot what came of it. The error is
// one that ends the Add; a lost race is none.
func (a *Allocator) commit(ctx context.Context, p *plan, changes []Change, slots []*slot) error {
	var failed error
	for i, err := range a.Store.Commit(ctx, changes) {
		s, c := slots[i], changes[i]
		var conflict *ConflictError
		switch {
		case err == nil:
			s.change, s.done = c, true
		case errors.As(err, &conflict):
			failed = errors.Join(failed, a.lost(ctx, p, s, c, conflict))
		default:
			p.doubtful = append(p.doubtful, c)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// lost learns from a change whose precondition did not hold, so that the next
// choice is another.
func (a *Allocator) lost(ctx context.Context, p *plan, s *slot, c Change, conflict *ConflictError) error {
	a.Log.Debug("address is held, choosing again", "address", c.Address, "holder", conflict.Holder.Holder(), "range", conflict.Range)
	if !conflict.Reserved {
		p.content[c.Pool] = nil // what was read is out of date
	}
	switch {
	case conflict.Reserved && c.Before != nil:
		p.foreign[holding{c.Pool, c.Address}] = true // the reservation beside our record is another's
	case conflict.Reserved && s.fixed:
		return p.shareOrFail(s, c.Address, conflict.Holder, a.Log)
	case s.fixed:
		return nil
	}
	if s.want.IsValid() {
		return &RequestError{Address: c.Address, Source: s.source, Holder: conflict.Holder}
	}
	p.collisions++
	if !conflict.Reserved {
		return nil
	}
	p.blocked[c.Address] = true
	return a.blockOther(ctx, p, c.Pool, conflict)
}

// blockOther skips all addresses that are held through another range at once, so
// that the number of requests does not grow with the number of addresses that two
// ranges share.
func (a *Allocator) blockOther(ctx context.Context, p *plan, own PoolID, conflict *ConflictError) error {
	prefix, err := ParsePrefix(conflict.Range)
	if err != nil {
		p.unknown++ // a reservation of an older version
		return nil
	}
	other := PoolID{Network: own.Network, Range: prefix.Masked()}
	if other.Range == own.Range || p.seen[other] {
		return nil
	}
	p.seen[other] = true
	pool, err := a.Store.Read(ctx, other)
	if err == nil && !pool.Exists && conflict.Holder.Node != "" {
		other.Node = conflict.Holder.Node // a node's slice
		pool, err = a.Store.Read(ctx, other)
	}
	if err != nil {
		return fmt.Errorf("range %s of the same address space: %w", conflict.Range, err)
	}
	for address := range pool.Records {
		p.blocked[address] = true
	}
	return nil
}

// share decides about a fixed address that somebody has recorded already: pods of
// the same network share it.
func (a *Allocator) share(ctx context.Context, p *plan, s *slot) error {
	address := s.want
	record := p.content[s.pool].Records[address]
	if record.Network == "" {
		r, err := a.Store.Reservation(ctx, s.pool.Network, address)
		if err != nil {
			return err
		}
		if r != nil && r.ContainerID == record.ContainerID {
			record.Network = r.Record.Network
		}
	}
	return p.shareOrFail(s, address, record, a.Log)
}

// rollback releases what a failed Add took. What the owner held before stays its
// own, and so does what a rewrite gave a new container id: the release of that
// container frees it.
func (a *Allocator) rollback(ctx context.Context, p *plan, m *memory) {
	defer m.restore()
	var undo []Change
	for _, s := range p.slots {
		if s.done && s.change.After != nil {
			undo = append(undo, s.change)
		}
	}
	undo = append(undo, p.doubtful...)
	var release []Change
	for _, c := range undo {
		if c.Before == nil {
			release = append(release, Change{Pool: c.Pool, Address: c.Address, Before: c.After})
		}
	}
	if len(release) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	for i, err := range a.Store.Commit(ctx, release) {
		if err != nil {
			a.Log.Error("address of a failed ADD could not be released", "address", release[i].Address, "error", err)
		}
	}
}

// releaseLeftovers frees what the owner held in these pools and no longer gets: an
// address that is excluded by now, or one that a requested address replaces. The
// ADD succeeds whatever becomes of it.
func (a *Allocator) releaseLeftovers(ctx context.Context, p *plan) {
	var release []Change
	for _, c := range p.leftovers() {
		if !a.mayDrop(ctx, p.owner, c) {
			continue
		}
		release = append(release, c)
	}
	if len(release) == 0 {
		return
	}
	for i, err := range a.Store.Commit(ctx, release) {
		if err != nil {
			a.Log.Warn("address that is no longer used could not be released", "address", release[i].Address, "error", err)
			continue
		}
		a.Log.Info("released address that the owner no longer uses", "address", release[i].Address)
	}
}

// mayDrop makes sure that a record under another container id is this pod's and
// not another's of the same name.
func (a *Allocator) mayDrop(ctx context.Context, owner Owner, c Change) bool {
	if c.Before.ContainerID == owner.ContainerID || c.Before.UID != "" || owner.UID == "" {
		return true
	}
	r, err := a.Store.Reservation(ctx, c.Pool.Network, c.Address)
	if err != nil {
		a.Log.Warn("address that is no longer used could not be released", "address", c.Address, "error", err)
		return false
	}
	return r == nil || r.ContainerID != c.Before.ContainerID || r.UID == "" || r.UID == owner.UID
}

// RequestError says that an address somebody asked for by number is held.
type RequestError struct {
	Address netip.Addr
	Source  string // where it was asked for
	Holder  Record
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("requested address %s (%s) is held by %s", e.Address, e.Source, e.Holder.Holder())
}

func (e *RequestError) Unwrap() error { return ErrConflict }
