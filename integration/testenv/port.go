package testenv

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// port is a TCP port on 127.0.0.1 that belongs to this process until it is
// released, whether or not somebody listens on it: a socket is bound to it that
// never listens. The servers share it by SO_REUSEPORT. So no other process can
// take it between two starts of a server, and while the server is down clients
// are refused.
type port struct {
	fd     int
	number uint16
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	number, err := bindLoopback(fd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reserving a port on 127.0.0.1: %w", err), unix.Close(fd))
	}
	return &port{fd: fd, number: number}, nil
}

func bindLoopback(fd int) (uint16, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return uint16(name.(*unix.SockaddrInet4).Port), nil
}

func (p *port) release() {
	if p != nil {
		_ = unix.Close(p.fd)
	}
}

// address is host:port.
func (p *port) address() string {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.number).String()
}
