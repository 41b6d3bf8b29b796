package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Node is a machine of the cluster. Its disk outlives its power.
type Node struct {
	Name string // "node1", "node2", ...

	cluster *Cluster
	index   int
	home    string // root, disk, images, and what the first process says
	process *testenv.Process
	groups  cgroups
}

func (c *Cluster) newNode(index int) (*Node, error) {
	n := &Node{Name: fmt.Sprintf("node%d", index), cluster: c, index: index}
	n.home = filepath.Join(c.dir, n.Name)
	n.groups = cgroups{path: "/whereabouts-" + strconv.Itoa(os.Getpid()) + "/" + n.Name}
	for _, directory := range []string{"root", "disk/etc/cni/net.d", "disk/opt/cni/bin", "disk/var/log/pods", "disk/var/log/containers", "disk/var/lib", "disk/var/tmp", "disk/root", "images"} {
		if err := os.MkdirAll(filepath.Join(n.home, directory), 0o755); err != nil {
			return nil, err
		}
	}
	return n, n.writeFiles()
}

// PowerOn starts the node; Ready tells when it takes pods.
func (n *Node) PowerOn() error {
	if n.process.Alive() {
		return fmt.Errorf("%s runs already", n.Name)
	}
	if err := n.groups.make(); err != nil {
		return fmt.Errorf("control groups of %s: %w", n.Name, err)
	}
	if err := n.boot(); err != nil {
		return fmt.Errorf("%s: %w; it said: %s", n.Name, err, n.said())
	}
	return nil
}

func (n *Node) boot() error {
	plan, err := json.Marshal(n.plan())
	if err != nil {
		return err
	}
	unplugged, plugged, err := os.Pipe()
	if err != nil {
		return err
	}
	defer unplugged.Close()
	defer plugged.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Stdin = unplugged
	cmd.Env = []string{insideVariable + "=" + string(plan)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if n.process, err = testenv.StartProcess(nil, filepath.Join(n.home, "node.log"), cmd); err != nil {
		return err
	}
	if err := n.plug(n.cluster.fabric); err != nil {
		n.process.Kill()
		return err
	}
	return nil
}

func (n *Node) plan() plan {
	p := plan{Name: n.Name, Home: n.home, Tools: n.cluster.tools, Address: n.address().String(), Gateway: fabricOnLAN, Routes: map[string]string{}}
	for _, other := range n.cluster.Nodes {
		if other != n {
			p.Routes[other.podRange().String()] = other.address().String()
		}
	}
	for _, image := range n.cluster.images {
		p.Images = append(p.Images, "/images/"+filepath.Base(image))
	}
	return p
}

func (n *Node) said() string {
	text, _ := os.ReadFile(filepath.Join(n.home, "node.log")) // none: nothing
	return strings.TrimSpace(string(text))
}

// CutPower ends every process of the node at once. Its disk stays, and so does its
// object in the cluster.
func (n *Node) CutPower() {
	n.process.Kill()
	n.groups.remove()
}

// File is where the machine finds a file of the node.
func (n *Node) File(path string) string { return filepath.Join(n.home, "disk", path) }

// Command is a command that runs on the node, as from its console.
func (n *Node) Command(program string, args ...string) *exec.Cmd {
	target := strconv.Itoa(n.process.ID())
	return exec.Command("nsenter", append([]string{"--target", target, "--mount", "--net", "--pid", "--uts", "--ipc", "--", program}, args...)...)
}

// Run runs a command on the node and answers what it prints.
func (n *Node) Run(program string, args ...string) (string, error) {
	return output(n.Command(program, args...))
}

// KillKubelet ends the node's kubelet, which starts again a second later.
func (n *Node) KillKubelet() error {
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.process.ID()))
	if err != nil {
		return err
	}
	for _, file := range children {
		list, _ := os.ReadFile(file) // a thread that has ended had none
		for _, field := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(field)
			name, _ := os.ReadFile("/proc/" + field + "/comm")
			if err == nil && strings.TrimSpace(string(name)) == "kubelet" {
				return syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return errors.New(n.Name + " runs no kubelet")
}

// Load brings an image archive to the node.
func (n *Node) Load(archive string) error {
	if err := n.keepImage(archive); err != nil {
		return err
	}
	_, err := n.Run(toolsInside+"/ctr", "--address", containerdSocket, "-n", "k8s.io", "images", "import", "--local", "/images/"+filepath.Base(archive))
	return err
}

// keepImage lays an archive where the node finds it when it starts.
func (n *Node) keepImage(archive string) error {
	data, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.home, "images", filepath.Base(archive)), data, 0o644)
}
