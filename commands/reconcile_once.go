package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
)

// exitUnfreed is the exit code of a single run that could not free, or complete,
// something that it should have.
const exitUnfreed = 1

// once looks once, and a second time a grace time later if something is only certain
// then. The error has the exit code: exitUnfreed when something is left to do that
// should have been done, else that of no access. It is nil when the context ended.
func (r *reconciler) once(ctx context.Context, grace time.Duration) error {
	result := r.pass(ctx, passStart)
	if ctx.Err() == nil && !result.read {
		return result.err
	}
	if ctx.Err() == nil && !result.Due.IsZero() {
		r.log.Info("looking again after the grace time", "waiting", result.Waiting, "grace", grace)
		select {
		case <-ctx.Done():
		case <-time.After(grace):
			result = r.pass(ctx, passDue)
		}
	}
	r.status.keep(ctx, true)
	switch {
	case ctx.Err() != nil:
		return nil
	case result.err != nil:
		return cli.Exit(fmt.Errorf("not everything was looked at: %w", result.err), exitUnfreed)
	case result.Failed > 0:
		return cli.Exit(fmt.Sprintf("%d addresses could not be freed or completed; the log has the reasons", result.Failed), exitUnfreed)
	}
	return nil
}
