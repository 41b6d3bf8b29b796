package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Try does work while no process of this node carries out requests, and reports
// whether it did: it does not wait when one is at it. Requests that come meanwhile
// stay for the processes that made them; Beat tells those that work makes progress.
// An error means that the queue is of no use and nothing was done.
func (q *Queue) Try(work func()) (bool, error) {
	lock, err := os.OpenFile(filepath.Join(q.directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, fmt.Errorf("queue: %w", err)
	}
	defer lock.Close()
	if err := flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return false, fmt.Errorf("queue: lock: %w", err)
	}
	work()
	return true, nil
}
