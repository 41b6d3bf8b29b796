package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// scratchSpace is how many bytes must be free: etcd alone sets 64 MiB aside for
// each member, twice over. Containers often have less than that in memory.
const scratchSpace = 1 << 30

// scratch is a directory for the data of the servers, in memory where that is
// possible: disks of test machines stall, and nothing in it outlives the test.
// A lock on a file in it tells whether its process still lives, so that the
// next one can clear up behind a process that was killed.
type scratch struct {
	path string
	lock *os.File
}

func newScratch() (*scratch, error) {
	// Each user has a prefix, since nobody else may open the lock.
	prefix := filepath.Join(scratchParent(), fmt.Sprintf("whereabouts-testenv-%d-", os.Getuid()))
	all, err := lockFile(prefix+"lock", unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sweepScratch(prefix)
	path, err := os.MkdirTemp(filepath.Dir(prefix), filepath.Base(prefix)+"data-")
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(path, "lock"), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &scratch{path: path, lock: lock}, nil
}

func scratchParent() string {
	const memory = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Access(memory, unix.W_OK) == nil && unix.Statfs(memory, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= scratchSpace {
		return memory
	}
	return os.TempDir()
}

// sweepScratch removes the directories whose process is dead. It runs under the
// lock that guards making new ones.
func sweepScratch(prefix string) {
	stale, _ := filepath.Glob(prefix + "data-*") // the pattern is good
	for _, path := range stale {
		lock, err := lockFile(filepath.Join(path, "lock"), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // in use, or somebody else's
		}
		_ = os.RemoveAll(path)
		lock.Close()
	}
}

func (s *scratch) file(name string) string { return filepath.Join(s.path, name) }

// remove is called when nobody writes there any more.
func (s *scratch) remove() error {
	defer s.lock.Close()
	return os.RemoveAll(s.path)
}

// lockFile opens a file, which is made if need be, and locks it as flock(2)
// does. Closing the file frees the lock.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

// poll calls f until it answers nil. It gives up when time is over or when
// alive says that waiting is useless, and answers f's last error.
func poll(timeout time.Duration, alive func() bool, f func() error) error {
	const pause = 50 * time.Millisecond
	for end := time.Now().Add(timeout); ; time.Sleep(pause) {
		err := f()
		if err == nil {
			return nil
		}
		if !alive() {
			return fmt.Errorf("it ended: %w", err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %s: %w", timeout, err)
		}
	}
}
