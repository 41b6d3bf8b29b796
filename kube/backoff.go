package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// backoff is the pause between two tries of a request: at random up to a bound that
// doubles, so that many clients spread out and do not come back at the same moment.
type backoff struct {
	bound time.Duration
}

// wait sleeps until the next try. cause is what the last one answered; a server
// that says when to come back is obeyed. It returns an error that wraps
// ipam.ErrUnavailable and cause if the context ends first.
func (b *backoff) wait(ctx context.Context, cause error) error {
	b.bound = min(max(2*b.bound, firstPause), lastPause)
	pause := rand.N(b.bound)
	var status *statusError
	if errors.As(cause, &status) {
		pause = max(pause, status.retryAfter)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
		return fmt.Errorf("%w: no time left for another try: %w", ipam.ErrUnavailable, cause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w: %w", ipam.ErrUnavailable, ctx.Err(), cause)
	}
}

// read makes a request that changes nothing, again and again while that may help
// and the context lasts.
func (c *Client) read(ctx context.Context, r request, into any) error {
	var b backoff
	for {
		err := c.do(ctx, r, into)
		if err == nil {
			return nil
		}
		if !transient(err) {
			return err
		}
		if waitErr := b.wait(ctx, err); waitErr != nil {
			return waitErr
		}
	}
}
