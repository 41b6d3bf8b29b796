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
	firstPause = 40 * time.Millisecond
	lastPause  = 2 * time.Second
)

// backoff is the pause between two tries of a request: it doubles, with jitter,
// so that many clients do not come back at the same moment.
type backoff struct {
	next time.Duration
}

// wait sleeps until the next try. cause is what the last one answered; a server
// that says when to come back is obeyed. It returns an error that wraps
// ipam.ErrUnavailable and cause if the context ends first.
func (b *backoff) wait(ctx context.Context, cause error) error {
	if b.next == 0 {
		b.next = firstPause
	}
	pause := b.next/2 + rand.N(b.next)
	b.next = min(2*b.next, lastPause)
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
