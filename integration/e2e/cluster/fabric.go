package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Addresses. Nothing outside the cluster's own namespaces sees them.
const (
	apiAddress   = "10.96.0.1" // of the service "kubernetes"
	serviceRange = "10.96.0.0/16"
	fabricOnLAN  = "10.231.0.1"
	lanBridge    = "lan"
	sanBridge    = "san"
)

// fabric is the network namespace in which the control plane listens and the nodes'
// cables end. It is held by a file of this process and has no name, so that nothing
// stays behind even when the test is killed.
type fabric struct {
	handle *os.File
}

func newFabric() (*fabric, error) {
	f := &fabric{}
	done := make(chan error)
	go func() {
		// The thread ends with the function: it must not go back to the runtime, which
		// would run others' code in the namespace.
		runtime.LockOSThread()
		done <- f.make()
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	return f, f.ip(
		"link set lo up",
		"addr add "+apiAddress+"/32 dev lo",
		"link add "+lanBridge+" type bridge",
		"link add "+sanBridge+" type bridge",
		"link set "+lanBridge+" up",
		"link set "+sanBridge+" up",
		"addr add "+fabricOnLAN+"/24 dev "+lanBridge,
	)
}

func (f *fabric) make() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	f.handle, err = os.Open("/proc/thread-self/ns/net")
	return err
}

// command is a command that runs in the namespace. It is one process: nsenter becomes
// the program.
func (f *fabric) command(program string, args ...string) *exec.Cmd {
	path := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), f.handle.Fd())
	return exec.Command("nsenter", append([]string{path, "--", program}, args...)...)
}

// ip runs lines of the command ip in the namespace.
func (f *fabric) ip(lines ...string) error {
	for _, line := range lines {
		if err := run(f.command("ip", strings.Fields(line)...)); err != nil {
			return err
		}
	}
	return nil
}

// plug lays the node's two cables. Its first process waits until that is done.
func (f *fabric) plug(n *Node) error {
	for bridge, device := range map[string]string{lanBridge: "eth0", sanBridge: "eth1"} {
		err := f.ip(fmt.Sprintf("link add %s%d type veth peer name %s netns %d", bridge, n.index, device, n.process.ID()),
			fmt.Sprintf("link set %s%d master %s up", bridge, n.index, bridge))
		if err != nil {
			return err
		}
	}
	return f.ip(fmt.Sprintf("route replace %s via %s", n.podRange(), n.address()))
}

// address is the node's on its first interface.
func (n *Node) address() netip.Addr { return netip.AddrFrom4([4]byte{10, 231, 0, byte(10 + n.index)}) }

// podRange is what the node's bridge gives to its pods' first interfaces.
func (n *Node) podRange() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n.index), 0}), 24)
}

// run runs a command to its end. The error has what it said.
func run(cmd *exec.Cmd) error {
	_, err := output(cmd)
	return err
}

// output runs a command to its end and answers its standard output.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}
