package commands

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// changeSettle is the pause between a change in the cluster and the pass for
	// it: pods end in crowds.
	changeSettle = 100 * time.Millisecond

	// passGap lies between the beginnings of two passes, whatever happens.
	passGap = 500 * time.Millisecond

	// What a part of a pass may take. The requests in it have shorter deadlines
	// of their own.
	listTimeout  = time.Minute
	cleanTimeout = 5 * time.Minute

	// heartbeat is the longest sleep of the loop, so that a clock that is set is
	// noticed, and a loop that is stuck. stuckAfter is longer than any part of a
	// pass.
	heartbeat  = 30 * time.Second
	stuckAfter = cleanTimeout + time.Minute

	// After a pass that failed the pause doubles from passGap up to one of
	// these. What can be freed must not wait long for what cannot.
	unreadableBackoff = 30 * time.Second // nothing could be read
	failureBackoff    = 5 * time.Second  // some addresses could not be freed

	// retryFailed is when to look again, without being told, at what could not
	// be freed.
	retryFailed = 30 * time.Second
)

// stored is where the loop finds what is recorded in the cluster.
type stored interface {
	// Snapshots is the content of all namespaces that have any. It may be some
	// seconds old unless it is to be fresh. Namespaces that could not be read are
	// missing, and there is an error.
	Snapshots(ctx context.Context, fresh bool) (map[string]*ipam.Snapshot, error)
	// Changed gets a value when something happened that may make clean-up
	// necessary.
	Changed() <-chan struct{}
	// Ready answers why Snapshots cannot be trusted now; nil is fine.
	Ready() error
}

// cleaner frees what nobody holds in one namespace. It remembers between passes
// what it has seen once, so there is one for each namespace as long as that has
// records.
type cleaner interface {
	Pass(ctx context.Context, snapshot *ipam.Snapshot) report
}

// passReason is why a pass is made, in the words of the log.
type passReason string

const (
	passStart    passReason = "start"
	passSchedule passReason = "schedule"
	passChange   passReason = "change"
	passDue      passReason = "due"
)

// loud reports whether the log tells of a pass that had nothing to do. Those that
// the cluster causes would flood it.
func (r passReason) loud() bool { return r == passStart || r == passSchedule }

// reconciler makes one pass after the other. Any number of processes may do so at
// once: each release is a compare-and-delete.
type reconciler struct {
	stored   stored
	newClean func(namespace string) cleaner
	schedule *schedule                      // nil: never on its own
	status   *statusKeeper                  // nil: nobody counts
	waiting  *waitingTeller                 // nil: nobody tells pods
	ranges   func(ipam.PoolID) []ipam.Range // of the definitions that name a pool
	figures  *reconcileFigures
	heart    *heart
	now      func() time.Time
	log      *slog.Logger

	cleaners  map[string]cleaner
	began     time.Time // the last pass
	scheduled time.Time // the last one that the schedule counts from
	failures  int       // passes that failed, in a row
}

// run makes passes until the context ends.
func (r *reconciler) run(ctx context.Context) {
	if !r.waitUntilReady(ctx) {
		return
	}
	for reason := passStart; ctx.Err() == nil; {
		last := r.pass(ctx, reason)
		if reason == passStart {
			r.status.keep(ctx, last.Freed > 0)
		}
		reason = r.wait(ctx, last)
	}
}

// waitUntilReady answers false when the context has ended first.
func (r *reconciler) waitUntilReady(ctx context.Context) bool {
	complain := r.now().Add(heartbeat)
	for {
		r.heart.beat()
		err := r.stored.Ready()
		if err == nil {
			return true
		}
		if now := r.now(); now.After(complain) {
			r.log.Warn("waiting for the cluster's state", "error", err)
			complain = now.Add(heartbeat)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(changeSettle):
		}
	}
}

// wait sleeps until there is a reason for another pass.
func (r *reconciler) wait(ctx context.Context, last outcome) passReason {
	var change time.Time // when to look at what changed; zero: nothing did
	for ctx.Err() == nil {
		r.heart.beat()
		r.waiting.tell(ctx)
		now := r.now()
		if now.Before(r.scheduled) { // the clock was set back
			r.scheduled = now
		}
		if reached(now, r.status.due()) {
			r.status.keep(ctx, false)
			return passChange // whatever no signal told of
		}
		schedule := r.nextScheduled()
		due := r.nextDue(last)
		switch {
		case reached(now, schedule):
			return passSchedule
		case reached(now, change):
			return passChange
		case reached(now, due):
			return passDue
		}
		select {
		case <-ctx.Done():
		case <-r.stored.Changed():
			if change.IsZero() {
				change = later(r.now().Add(changeSettle), r.began.Add(r.pause(last)))
			}
		case <-r.rescheduled():
			r.scheduled = r.now()
		case <-time.After(untilFirst(now, schedule, change, due, r.status.due(), r.waiting.due())):
		}
	}
	return ""
}

func (r *reconciler) nextScheduled() time.Time {
	if r.schedule == nil {
		return time.Time{}
	}
	return r.schedule.next(r.scheduled)
}

func (r *reconciler) rescheduled() <-chan struct{} {
	if r.schedule == nil {
		return nil
	}
	return r.schedule.changed
}

// pause is the least time from the beginning of the last pass to the next one.
func (r *reconciler) pause(last outcome) time.Duration {
	longest := failureBackoff
	if !last.read {
		longest = unreadableBackoff
	}
	pause := passGap
	for range r.failures {
		if pause *= 2; pause >= longest {
			return longest
		}
	}
	return pause
}

// nextDue is when another look is worthwhile without being told; zero if it is not.
func (r *reconciler) nextDue(last outcome) time.Time {
	due := last.Due
	earliest := r.began.Add(r.pause(last))
	switch {
	case !last.read:
		return earliest
	case last.failed():
		due = first(due, r.began.Add(retryFailed))
	}
	if due.IsZero() {
		return due
	}
	return later(due, earliest)
}

// heart tells a loop that waits from one that is stuck. Safe for concurrent use.
type heart struct {
	now  func() time.Time
	last atomic.Int64 // nanoseconds since 1970
}

func newHeart(now func() time.Time) *heart {
	h := &heart{now: now}
	h.beat()
	return h
}

func (h *heart) beat() { h.last.Store(h.now().UnixNano()) }

// alive answers an error when there was no beat for longer than any work takes.
func (h *heart) alive() error {
	if still := h.now().Sub(time.Unix(0, h.last.Load())); still > stuckAfter {
		return fmt.Errorf("the clean-up is stuck: it has not moved for %v", still.Round(time.Second))
	}
	return nil
}

func reached(now, t time.Time) bool { return !t.IsZero() && !now.Before(t) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// first is the earlier of two times; zero ones do not count.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// untilFirst is how long to sleep until the first of these times, zero ones not
// counted, and at most a heartbeat.
func untilFirst(now time.Time, times ...time.Time) time.Duration {
	next := now.Add(heartbeat)
	for _, t := range times {
		next = first(next, t)
	}
	return next.Sub(now)
}
