package ipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// addJob is an ADD on its way.
type addJob struct {
	*Addition
	allocator *Allocator
	plan      *plan
	memory    *memory // nil until the job's turn comes
	after     []job   // of the same owner, that come first
	done      bool
}

func newAddJob(a *Allocator, add *Addition, known map[SliceList]listing) *addJob {
	j := &addJob{Addition: add, allocator: a}
	add.job = j
	var err error
	j.plan, err = newPlan(add.Config, add.Owner, known)
	if invalid := errors.Join(add.Config.Invalid...); invalid != nil {
		err = invalid
	}
	if err != nil {
		j.fail(err)
	}
	return j
}

func (j *addJob) pools() []PoolID { return j.plan.pools() }
func (j *addJob) fail(err error)  { j.Err = errors.Join(j.Err, err) }
func (j *addJob) finished() bool  { return j.Err != nil || j.done }

// finish ends the job when every slot is settled.
func (j *addJob) finish() {
	if j.Err == nil && j.plan.settled() {
		j.Assigned, j.done = j.plan.result(), true
		j.memory.confirm(j.plan)
	}
}

func (j *addJob) propose(ctx context.Context, v *view) []Change {
	for _, other := range j.after {
		if !other.finished() {
			return nil
		}
	}
	if j.memory == nil {
		j.memory = j.allocator.recall(j.Owner)
		j.plan.prefer = j.memory.intended(j.Owner)
	}
	for {
		changes, unsure, err := j.plan.pick(v, j.allocator)
		if err != nil {
			var exhausted *ExhaustedError
			if errors.As(err, &exhausted) && slices.ContainsFunc(append(exhausted.More, exhausted.Pool), v.wait) {
				return nil
			}
			j.fail(err)
			return nil
		}
		if unsure == nil && len(changes) == 0 {
			j.finish() // all is shared, or lies outside the ranges
			return nil
		}
		if unsure == nil {
			j.memory.intend(j.plan, changes)
			return changes
		}
		if err := j.share(ctx, v, unsure); err != nil {
			j.fail(err)
			return nil
		}
	}
}

// learn notes what came of a change. A lost race is no error: the next round
// chooses again.
func (j *addJob) learn(ctx context.Context, v *view, c Change, err error) {
	s := j.plan.slotOf(c)
	var conflict *ConflictError
	var closed *ClosedError
	switch {
	case err == nil:
		s.change, s.done = c, true
		j.finish()
	case errors.As(err, &closed): // the next round sees it, and may have another slice
	case errors.As(err, &conflict):
		if err := j.lost(ctx, v, s, c, conflict); err != nil {
			j.fail(err)
		}
	default:
		j.plan.doubtful = append(j.plan.doubtful, c)
		j.fail(err)
	}
}

func (j *addJob) lost(ctx context.Context, v *view, s *slot, c Change, conflict *ConflictError) error {
	j.allocator.Log.Debug("address is held, choosing again", "owner", j.Owner,
		"address", c.Address, "holder", conflict.Holder.Holder(), "reserved", conflict.Reserved, "range", conflict.Range)
	switch {
	case conflict.Reserved && c.Before != nil:
		// The reservation beside our record is another's.
		j.plan.foreign[holding{c.Pool, c.Address}] = true
	case conflict.Reserved && s.fixed:
		return j.shareOrFail(s, conflict.Holder)
	case s.fixed:
		return nil
	}
	if s.want.IsValid() {
		return &RequestError{Address: c.Address, Source: s.source, Holder: conflict.Holder}
	}
	return v.collide(ctx, c, conflict)
}

// share decides about a fixed address that somebody has recorded already.
func (j *addJob) share(ctx context.Context, v *view, s *slot) error {
	id := s.sites[0].pool
	record := v.content[id].Records[s.want]
	if record.Network == "" {
		r, err := v.store.Reservation(ctx, id.Network, s.want)
		if err != nil {
			return err
		}
		if r != nil && r.ContainerID == record.ContainerID {
			record.Network = r.Network
		}
	}
	return j.shareOrFail(s, record)
}

// shareOrFail settles the slot of a fixed address that somebody holds: a pod of
// the same network shares it, one of another network makes the ADD fail. Records
// of old versions do not say of which network they are: shared, as it was then.
func (j *addJob) shareOrFail(s *slot, holder Record) error {
	if holder.Network != "" && holder.Network != j.Owner.Network {
		return &RequestError{Address: s.want, Source: fmt.Sprintf("addresses of network %s", j.Owner.Network), Holder: holder}
	}
	j.allocator.Log.Warn("fixed address is shared", "owner", j.Owner, "address", s.want, "holder", holder.Holder())
	s.done, s.shared = true, true
	j.finish()
	return nil
}
