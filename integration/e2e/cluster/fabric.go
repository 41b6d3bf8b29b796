package cluster

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Addresses. Nothing outside the cluster's own namespaces sees them.
const (
	apiAddress   = "10.96.0.1" // of the service "kubernetes"
	serviceRange = "10.96.0.0/16"
	fabricOnLAN  = "10.231.0.1"
	lanBridge    = "lan"
	sanBridge    = "san"
)

// newFabric makes the network namespace in which the control plane listens and the
// nodes' cables end.
func newFabric() (*testenv.Space, error) {
	space, err := testenv.MakeSpace()
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	return space, space.IP(
		"link set lo up",
		"addr add "+apiAddress+"/32 dev lo",
		"link add "+lanBridge+" type bridge",
		"link add "+sanBridge+" type bridge",
		"link set "+lanBridge+" up",
		"link set "+sanBridge+" up",
		"addr add "+fabricOnLAN+"/24 dev "+lanBridge,
	)
}

// plug lays the node's two cables. Its first process waits until that is done.
func (n *Node) plug(fabric *testenv.Space) error {
	for bridge, device := range map[string]string{lanBridge: "eth0", sanBridge: "eth1"} {
		err := fabric.IP(
			fmt.Sprintf("link add %s%d type veth peer name %s netns %d", bridge, n.index, device, n.process.ID()),
			fmt.Sprintf("link set %s%d master %s up", bridge, n.index, bridge),
		)
		if err != nil {
			return err
		}
	}
	return fabric.IP(fmt.Sprintf("route replace %s via %s", n.podRange(), n.address()))
}

// address is the node's on its first interface.
func (n *Node) address() netip.Addr { return netip.AddrFrom4([4]byte{10, 231, 0, byte(10 + n.index)}) }

// podRange is what the node's bridge gives to its pods' first interfaces.
func (n *Node) podRange() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n.index), 0}), 24)
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
