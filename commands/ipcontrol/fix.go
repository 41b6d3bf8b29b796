package ipcontrol

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// repairDocument is what --fix did.
type repairDocument struct {
	Freed     int `json:"freed"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// checkAndFix finds problems, repairs what is safe and finds again.
func (ch checker) checkAndFix(ctx context.Context) error {
	before, err := ch.find(ctx)
	if err != nil {
		return err
	}
	safe := 0
	for _, p := range before.problems {
		if p.Safe {
			safe++
		}
	}
	if safe == 0 || ch.client == nil {
		if safe > 0 {
			ch.warn("nothing is repaired: a local datastore does not tell which pods live; use `%s release`", Name)
		}
		return ch.finish(before, &repairDocument{})
	}
	if !ch.machine() {
		if err := ch.write(before); err != nil {
			return err
		}
		fmt.Fprintln(ch.Stdout)
	}
	question := fmt.Sprintf("repair %s that can be repaired safely? It may wait %s between two looks", plural(safe, "problem"), ch.grace)
	if err := ch.confirm(question); err != nil {
		return err
	}
	repaired, err := ch.repair(ctx)
	if err != nil {
		return err
	}
	after, err := ch.find(ctx)
	if err != nil {
		return err
	}
	if !ch.machine() {
		fmt.Fprintf(ch.Stdout, "freed %d, completed %d, failed %d; what is left:\n", repaired.Freed, repaired.Completed, repaired.Failed)
	}
	return ch.finish(after, repaired)
}

// recordsOnly hides that a store can remove pools, which a person did not ask for.
type recordsOnly struct{ ipam.Store }

// repair is the clean-up, once or twice.
func (ch checker) repair(ctx context.Context) (*repairDocument, error) {
	sum := &repairDocument{}
	reclaimers := map[string]*reclaim.Reclaimer{}
	// Three looks: what one frees may let another be completed.
	for range 3 {
		v, err := ch.lookEverywhere(ctx)
		if err != nil {
			return sum, err
		}
		due := ch.pass(ctx, v, reclaimers, sum)
		if due.IsZero() || ctx.Err() != nil {
			return sum, ctx.Err()
		}
		if pause := min(due.Sub(ch.Now()), ch.grace); pause > 0 {
			_, _ = io.WriteString(ch.Stderr, fmt.Sprintf("waiting %s before the second look: what still looks the same then is freed\n", pause.Round(time.Second)))
			if err := ch.sleep(ctx, pause); err != nil {
				return sum, err
			}
		}
	}
	return sum, nil
}

// pass is one pass of the clean-up over the namespaces that are asked about. It
// answers when another is worthwhile; zero is never.
func (ch checker) pass(ctx context.Context, v *view, reclaimers map[string]*reclaim.Reclaimer, sum *repairDocument) (due time.Time) {
	sum.Failed = 0
	for _, s := range v.spaces {
		if ch.skips(s.namespace) {
			continue
		}
		r := reclaimers[s.namespace]
		if r == nil {
			r = &reclaim.Reclaimer{
				Store: recordsOnly{ch.store(s.namespace)}, Live: ch.live(), Grace: ch.grace, Now: ch.Now,
				Log: slog.New(slog.NewTextHandler(ch.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			}
			reclaimers[s.namespace] = r
		}
		r.Known, r.Networks = v.cluster, v.cluster
		report := r.Pass(ctx, s.Snapshot)
		sum.Freed += report.Freed
		sum.Completed += report.Completed
		sum.Failed += report.Failed
		if !report.Due.IsZero() && (due.IsZero() || report.Due.Before(due)) {
			due = report.Due
		}
	}
	return due
}
