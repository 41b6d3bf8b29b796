package cluster

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// writeFiles puts on the node's disk what an administrator would.
func (n *Node) writeFiles() error {
	for _, image := range n.cluster.images {
		if err := n.keepImage(image); err != nil {
			return err
		}
	}
	if err := copyPrograms(n.cluster.plugins, n.File("opt/cni/bin")); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/passwd":                        "root:x:0:0:root:/root:/bin/sh\n",
		"etc/group":                         "root:x:0:\n",
		"etc/hosts":                         "127.0.0.1 localhost\n" + n.address().String() + " " + n.Name + "\n",
		"etc/hostname":                      n.Name + "\n",
		"etc/resolv.conf":                   "",
		"etc/containerd.toml":               containerdConfig,
		"etc/kubelet.yaml":                  kubeletConfig + "cgroupRoot: " + n.groups.path + "\n",
		"etc/kubelet.kubeconfig":            n.cluster.kubeconfig("system:node:" + n.Name),
		"etc/cni/net.d/multus.d/kubeconfig": n.cluster.kubeconfig(multusUser),
		"etc/cni/net.d/00-multus.conf":      n.networks(),
	} {
		path := n.File(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func copyPrograms(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := copyFile(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return err
	}
	return target.Close()
}

// object is any JSON object.
type object = map[string]any

// networks is Multus' configuration: the pods' first interface is on a bridge of the
// node, with an address of host-local; further ones are as the pods ask for.
func (n *Node) networks() string {
	text, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": "multus", "type": "multus",
		"kubeconfig": "/etc/cni/net.d/multus.d/kubeconfig",
		"logFile":    "/var/log/multus.log", "logLevel": "error",
		"delegates": []object{{
			"cniVersion": "1.0.0", "name": "cluster",
			"plugins": []object{{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
				"ipam": object{
					"type": "host-local", "dataDir": "/run/cni/networks",
					"ranges": [][]object{{{"subnet": n.podRange().String()}}},
				},
			}},
		}},
	}, "", "  ")
	if err != nil {
		panic(err) // there is nothing in it that JSON has no form for
	}
	return string(text)
}

// containerdConfig disables what a machine may lack and nobody needs here.
var containerdConfig = strings.NewReplacer("SOCKET", containerdSocket, "SANDBOX", sandboxImage, "TOOLS", toolsInside).Replace(`version = 3
disabled_plugins = [
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.btrfs',
  'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.erofs',
  'io.containerd.snapshotter.v1.zfs', 'io.containerd.nri.v1.nri',
]
[grpc]
  address = 'SOCKET'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'SANDBOX'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/opt/cni/bin']
  conf_dir = '/etc/cni/net.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = 'TOOLS/plainrunc'
  SystemdCgroup = false
`)

// kubeletConfig is that of a kubelet that evicts and pulls nothing, and tells often
// that it lives, so that a cut of its power is noticed soon.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + containerdSocket + `
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%", pid.available: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeLeaseDurationSeconds: 12
nodeStatusUpdateFrequency: 4s
kubeAPIQPS: 200
kubeAPIBurst: 400
maxPods: 250
`
