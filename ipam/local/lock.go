package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// The file has a lock file of its own beside bbolt's lock on the file itself:
// bbolt looks only every 50 ms whether its lock is free, and one that is taken
// before the file is opened also covers making it. The kernel drops the lock
// when its holder dies; the lock file stays and is never removed.
//
// Waiting is trying again every few milliseconds: a wait inside the kernel
// could not be called off when the context ends.
const (
	lockPauseMin = 500 * time.Microsecond
	lockPauseMax = 3 * time.Millisecond
)

// lock waits until this call is the only one that uses the file, and answers
// what ends that.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, s.gaveUp(ctx)
	}
	f, err := s.lockFile(ctx)
	if err != nil {
		<-s.turn
		return nil, err
	}
	return func() {
		_ = f.Close() // drops the lock
		<-s.turn
	}, nil
}

func (s *Store) lockFile(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, s.explain(err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			_ = f.Close()
			return nil, s.explain(fmt.Errorf("lock %s: %w", f.Name(), err))
		case !pause(ctx, lockPauseMin+rand.N(lockPauseMax-lockPauseMin)):
			_ = f.Close()
			return nil, s.gaveUp(ctx)
		}
	}
}

// pause waits and reports whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// gaveUp is the error of a call whose context ended before it had the file.
// Nothing has been changed then.
func (s *Store) gaveUp(ctx context.Context) error {
	return fmt.Errorf("%w: local_path %s: waiting while others use it: %w",
		ipam.ErrUnavailable, s.path, context.Cause(ctx))
}
