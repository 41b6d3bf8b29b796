package integration

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// netnsSpace is a network namespace with questions about what is in it.
type netnsSpace struct{ *testenv.Space }

// newNetnsSpace skips the test where network namespaces cannot be made.
func newNetnsSpace(t *testing.T) *netnsSpace {
	t.Helper()
	return &netnsSpace{testenv.NewSpace(t)}
}

// interfaceOf is an interface in the namespace and its global addresses.
func (s *netnsSpace) interfaceOf(name string) (found *net.Interface, addresses []netip.Prefix, err error) {
	err = s.Do(func() error {
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
		err := s.Do(f)
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
