package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// netnsSpace is a network namespace. It is held by a file of this process and has
// no name in the file system, so that nothing stays behind even when the tests are
// killed.
type netnsSpace struct {
	handle *os.File
}

// newNetnsSpace skips the test where network namespaces cannot be made.
func newNetnsSpace(t *testing.T) *netnsSpace {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}
	var space *netnsSpace
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		handle, err := os.Open("/proc/thread-self/ns/net")
		space = &netnsSpace{handle}
		return err
	})
	if err != nil {
		t.Skipf("SKIPPED: network namespaces cannot be made here: %v", err)
	}
	t.Cleanup(func() { _ = space.handle.Close() })
	return space
}

// path is where other processes find the namespace.
func (s *netnsSpace) path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.handle.Fd())
}

// do runs f in the namespace: sockets it makes and processes it starts are there.
func (s *netnsSpace) do(f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(s.handle.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		return f()
	})
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

// interfaceOf is an interface in the namespace and its global addresses.
func (s *netnsSpace) interfaceOf(name string) (found *net.Interface, addresses []netip.Prefix, err error) {
	err = s.do(func() error {
		if found, err = net.InterfaceByName(name); err != nil {
			return err
		}
		all, err := found.Addrs()
		if err != nil {
			return err
		}
		for _, a := range all {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				return err
			}
			if prefix.Addr().IsGlobalUnicast() {
				addresses = append(addresses, prefix)
			}
		}
		return nil
	})
	return found, addresses, err
}

// netnsPatience ends a test that would hang; nothing depends on how long it is.
const netnsPatience = 30 * time.Second

// serve says the greeting to whoever connects to the address, and answers where
// it listens. It ends with the test.
func (s *netnsSpace) serve(t *testing.T, address netip.Addr, greeting string) netip.AddrPort {
	t.Helper()
	var listener net.Listener
	err := s.whenAssigned(func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(t.Context(), "tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		t.Fatalf("listening on %s: %v", address, err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, greeting)
			_ = connection.Close()
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// whenAssigned does something in the namespace, again while its IPv6 address is being
// tried for duplicates (RFC 4862, section 5.4): until then it cannot be used.
func (s *netnsSpace) whenAssigned(f func() error) error {
	for end := time.Now().Add(netnsPatience); ; time.Sleep(50 * time.Millisecond) {
		err := s.do(f)
		if !errors.Is(err, unix.EADDRNOTAVAIL) || time.Now().After(end) {
			return err
		}
	}
}

// greeting is what is said at an address when it is called from this namespace.
func (s *netnsSpace) greeting(ctx context.Context, at netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, netnsPatience)
	defer cancel()
	var said []byte
	err := s.whenAssigned(func() error {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", at.String())
		if err != nil {
			return err
		}
		defer connection.Close()
		said, err = io.ReadAll(connection)
		return err
	})
	return string(said), err
}
