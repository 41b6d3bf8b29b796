package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// insideVariable carries a node's plan to its first process.
const insideVariable = "WHEREABOUTS_E2E_NODE"

// plan is what a node's first process has to know.
type plan struct {
	Name    string
	Home    string // the node's directory on the machine
	Tools   string // directory of the programs
	Address string
	Gateway string
	Routes  map[string]string // other nodes' pods, and by way of whom
	Images  []string          // archives
}

// toolsInside is where a node finds the cluster's programs.
const toolsInside = "/tools"

// RunNode is the whole life of a node's first process, if this process is one: a test
// calls it before all else. Otherwise it returns at once.
func RunNode() {
	text := os.Getenv(insideVariable)
	if text == "" {
		return
	}
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.run()
	}
	fmt.Fprintln(os.Stderr, "node:", err)
	os.Exit(1)
}

// run does not return but for an error. Standard input ends when the cables are
// plugged.
func (p plan) run() error {
	if err := p.enter(); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	s := newSupervisor()
	if err := p.network(s); err != nil {
		return err
	}
	s.keep("containerd", toolsInside+"/containerd", "--config", "/etc/containerd.toml")
	if err := waitForSocket(containerdSocket); err != nil {
		return err
	}
	for _, image := range p.Images {
		if err := s.run(toolsInside+"/ctr", "--address", containerdSocket, "-n", "k8s.io", "images", "import", "--local", image); err != nil {
			return fmt.Errorf("image %s: %w", image, err)
		}
	}
	s.keep("kubelet", toolsInside+"/kubelet", "--config=/etc/kubelet.yaml", "--kubeconfig=/etc/kubelet.kubeconfig",
		"--hostname-override="+p.Name, "--node-ip="+p.Address, "--v=2")
	select {}
}

const containerdSocket = "/run/containerd/containerd.sock"

func waitForSocket(path string) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		connection, err := net.Dial("unix", path)
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

func (p plan) network(s *supervisor) error {
	lines := []string{
		"link set lo up", "link set eth0 up", "link set eth1 up",
		"addr add " + p.Address + "/24 dev eth0", "route add default via " + p.Gateway,
	}
	for pods, node := range p.Routes {
		lines = append(lines, "route add "+pods+" via "+node)
	}
	for _, line := range lines {
		ip, err := exec.LookPath("ip")
		if err != nil {
			return err
		}
		if err := s.run(ip, strings.Fields(line)...); err != nil {
			return fmt.Errorf("ip %s: %w", line, err)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// mount is one mount(2) below the new root.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// enter makes the node's own root directory and goes there: the machine's programs
// and devices, and the node's own files.
func (p plan) enter() error {
	if err := unix.Sethostname([]byte(p.Name)); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root := filepath.Join(p.Home, "root")
	mounts := []mount{{"tmpfs", "", "tmpfs", 0, "mode=755"}}
	for _, name := range []string{"etc", "var", "opt", "root"} {
		mounts = append(mounts, mount{filepath.Join(p.Home, "disk", name), name, "", unix.MS_BIND, ""})
	}
	mounts = append(mounts,
		mount{"/usr", "usr", "", unix.MS_BIND | unix.MS_REC, ""},
		mount{p.Tools, toolsInside, "", unix.MS_BIND, ""},
		mount{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC, ""},
		mount{"proc", "proc", "proc", 0, ""},
		mount{"sysfs", "sys", "sysfs", 0, ""},
		mount{cgroupMount, cgroupMount, "", unix.MS_BIND | unix.MS_REC, ""},
		mount{"tmpfs", "run", "tmpfs", 0, "mode=755"},
		mount{"tmpfs", "tmp", "tmpfs", 0, "mode=1777"},
		mount{filepath.Join(p.Home, "images"), "images", "", unix.MS_BIND, ""},
	)
	for _, m := range mounts {
		if err := m.below(root); err != nil {
			return err
		}
	}
	if err := copyTopDirectories(root); err != nil {
		return err
	}
	if err := pivot(root); err != nil {
		return err
	}
	return p.hideSettings()
}

func (m mount) below(root string) error {
	target := filepath.Join(root, m.target)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", m.source, target, err)
	}
	return nil
}

// copyTopDirectories makes /bin, /lib and so on: links, as on most machines, or the
// directories themselves.
func copyTopDirectories(root string) error {
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		link, err := os.Readlink("/" + name)
		switch {
		case err == nil:
			err = os.Symlink(link, filepath.Join(root, name))
		case errors.Is(err, os.ErrNotExist):
			err = nil
		default:
			err = mount{"/" + name, name, "", unix.MS_BIND | unix.MS_REC, ""}.below(root)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pivot makes the directory the root and forgets the old one. Mounts are shared from
// there on, as systemd does it: pods may ask for the node's later ones.
func pivot(root string) error {
	old := filepath.Join(root, "machine")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/machine", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// settings of the whole machine that the kubelet wants to be so.
var settings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// hideSettings puts files in their place, so that the machine stays as it is.
func (p plan) hideSettings() error {
	for name, value := range settings {
		file := "/run/settings/" + strings.ReplaceAll(name, "/", ".")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
