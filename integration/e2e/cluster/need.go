package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Needs says what this machine lacks to run a cluster on it: all of it, with the
// remedy.
func Needs() error {
	var errs []error
	for program, packet := range map[string]string{
		"go": "golang", "gcc": "gcc", "ip": "iproute2", "nsenter": "util-linux", "mount": "mount",
	} {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("no program %s (Debian package %s)", program, packet))
		}
	}
	if os.Getuid() != 0 {
		return errors.Join(append(errs, errors.New("you are not root"))...)
	}
	if kinds, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(kinds), "\toverlay\n") {
		errs = append(errs, errors.New("the kernel has no overlay file system: modprobe overlay"))
	}
	for _, path := range []string{"/proc/self/ns/net", "/proc/self/ns/pid", cgroupMount} {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("the kernel has no %s", path))
		}
	}
	if err := (cgroups{path: "/whereabouts-needs/try"}).try(); err != nil {
		errs = append(errs, fmt.Errorf("control groups cannot be made: %w", err))
	}
	return errors.Join(errs...)
}

func (c cgroups) try() error {
	defer c.remove()
	if unix.Access(cgroupMount, unix.W_OK) != nil {
		return errors.New(cgroupMount + " is read-only: in a container, it has to be privileged")
	}
	return c.make()
}
