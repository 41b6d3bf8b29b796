package testenv

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Space is a network namespace. It is held by a file of this process and has no name
// in the file system, so that nothing stays behind even when the tests are killed.
type Space struct {
	handle *os.File
}

// NewSpace makes a network namespace that ends with the test. It skips the test where
// none can be made.
func NewSpace(tb testing.TB) *Space {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("SKIPPED: network namespaces need root")
	}
	space, err := MakeSpace()
	if err != nil {
		tb.Skipf("SKIPPED: network namespaces cannot be made here: %v", err)
	}
	tb.Cleanup(space.Close)
	return space
}

// MakeSpace makes a network namespace without a test; the caller has to Close it.
func MakeSpace() (*Space, error) {
	var space *Space
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		handle, err := os.Open("/proc/thread-self/ns/net")
		space = &Space{handle}
		return err
	})
	return space, err
}

// Close lets go of the namespace, which ends with its last process.
func (s *Space) Close() { _ = s.handle.Close() }

// Path is where other processes find the namespace.
func (s *Space) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.handle.Fd())
}

// Do runs f in the namespace: sockets it makes and processes it starts are there.
func (s *Space) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the calling thread, which must not run anything else afterwards.
func (s *Space) enter() error {
	if err := unix.Setns(int(s.handle.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	return nil
}

// IP runs the command ip in the namespace, once for each line of arguments, which have
// no blanks in them, as long as nothing fails.
func (s *Space) IP(lines ...string) error {
	return s.Do(func() error {
		for _, args := range lines {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, out)
			}
		}
		return nil
	})
}

// NeedsIP skips the test where the command ip is missing.
func NeedsIP(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		tb.Skip("SKIPPED: the command ip is missing (Debian package iproute2)")
	}
}

// dial connects from within the namespace. The connection can be used anywhere.
func (s *Space) dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = s.Do(func() error {
		// To an address that is no name there is one way: the dialer needs no other
		// goroutine, which would run outside.
		var dialer net.Dialer
		connection, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// onOwnThread runs f on a thread that ends with it: it never goes back to the
// runtime, which would run others' code in the wrong namespace.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
