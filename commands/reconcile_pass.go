package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// report is what came of the pass of one namespace, or of all.
type report struct {
	Records    int // that were looked at
	Freed      int
	Completed  int       // halves of a record that were made whole
	Failed     int       // of those that should have been freed or completed
	Removed    int       // pools without records or a definition
	Duplicates int       // addresses that are recorded twice; left as they are
	Unreadable int       // left as they are
	Waiting    int       // that look like orphans, to be looked at again
	Due        time.Time // when another look is worthwhile; zero: no time
}

// outcome is what came of a pass over all namespaces.
type outcome struct {
	report
	read bool  // false: nothing could be looked at
	err  error // why something, or everything, was not looked at
}

func (o outcome) failed() bool { return o.err != nil || o.Failed > 0 }

func (r *report) add(o report) {
	r.Records += o.Records
	r.Freed += o.Freed
	r.Completed += o.Completed
	r.Failed += o.Failed
	r.Removed += o.Removed
	r.Duplicates += o.Duplicates
	r.Unreadable += o.Unreadable
	r.Waiting += o.Waiting
	r.Due = first(r.Due, o.Due)
}

// pass looks at everything once.
func (r *reconciler) pass(ctx context.Context, reason passReason) outcome {
	select {
	case <-r.stored.Changed(): // this pass sees it
	default:
	}
	r.began = r.now()
	if reason.loud() {
		r.scheduled = r.began
		r.log.Info("starting reconciler run", "reason", string(reason))
	}
	result := r.look(ctx, reason)
	if ctx.Err() != nil {
		return result // it is the end, and no failure
	}
	if result.failed() {
		r.failures++
	} else {
		r.failures = 0
	}
	took := r.now().Sub(r.began)
	r.figures.passed(reason, result, took, r.now())
	r.tell(reason, result, took)
	return result
}

func (r *reconciler) look(ctx context.Context, reason passReason) outcome {
	r.heart.beat()
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	snapshots, err := r.stored.Snapshots(listing, reason != passChange)
	cancel()
	// A pass over what is long out of date is no success, though it does no harm.
	sum := outcome{read: err == nil || len(snapshots) > 0, err: errors.Join(err, r.stored.Ready())}
	if err == nil {
		r.figures.pools(snapshots, r.ranges)
		maps.DeleteFunc(r.cleaners, func(namespace string, _ cleaner) bool { return snapshots[namespace] == nil })
	}
	for _, namespace := range slices.Sorted(maps.Keys(snapshots)) {
		r.heart.beat()
		snapshot := snapshots[namespace]
		if reason.loud() {
			r.log.Info("listing IP pools", "namespace", namespace, "pools", len(snapshot.Pools), "reservations", len(snapshot.Reservations))
		}
		part, err := r.clean(ctx, namespace, snapshot)
		sum.add(part)
		sum.err = errors.Join(sum.err, err)
	}
	return sum
}

// clean makes the pass of one namespace. A fault of ours there is no reason to leave
// the other namespaces alone.
func (r *reconciler) clean(ctx context.Context, namespace string, snapshot *ipam.Snapshot) (result report, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("panic", "namespace", namespace, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("namespace %s: internal error: %v", namespace, p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	c := r.cleaners[namespace]
	if c == nil {
		if r.cleaners == nil {
			r.cleaners = map[string]cleaner{}
		}
		c = r.newClean(namespace)
		r.cleaners[namespace] = c
	}
	return c.Pass(ctx, snapshot), nil
}

// tell writes the messages that the manuals tell operators to look for.
func (r *reconciler) tell(reason passReason, result outcome, took time.Duration) {
	log := r.log.With("reason", string(reason))
	did := result.Freed + result.Completed
	if !reason.loud() {
		if did == 0 && result.Removed == 0 && !result.failed() {
			return
		}
		log.Info("starting reconciler run")
	}
	switch {
	case did > 0:
		log.Info("successfully cleanup IPs", "freed", result.Freed, "completed", result.Completed)
	case !result.failed():
		log.Info("no IP addresses to cleanup", "records", result.Records, "waiting", result.Waiting)
	}
	switch {
	case result.err != nil:
		log.Error("reconciler failure", "failed", result.Failed, "error", result.err)
	case result.Failed > 0:
		log.Error("reconciler failure", "failed", result.Failed)
	default:
		log.Info("reconciler success", "took", took.Round(time.Millisecond))
	}
}
