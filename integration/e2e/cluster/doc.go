// Package cluster runs a whole Kubernetes cluster on one Linux machine, as a child of
// the test that uses it: etcd, API server, controller manager and scheduler, and one
// to nine nodes of containerd, runc, kubelet and Multus, all built from Go modules.
//
// # Namespaces
//
// Nothing of it is seen on the machine itself but its processes and a directory:
//
//   - The control plane listens in a network namespace of its own (see newFabric), where
//     the API server has the address of the service "kubernetes". Two bridges there
//     join the nodes: the one of their first interface eth0, and that of eth1, for
//     secondary networks.
//   - A node is a first process (see RunNode) in new mount, network, process, IPC and
//     host-name namespaces, on a root directory of its own: what a pod of a DaemonSet
//     writes to /opt/cni/bin of its node is a file below the node's directory. When
//     the first process is killed all of the node dies, as at a power cut.
//
// There is no kube-proxy and no DNS: the API server's is the only service address
// that answers. Nothing can be pulled: images come from archives.
//
// # What differs from a usual cluster
//
// runc is built without libseccomp, a C library; plainrunc takes the system call
// filters out of what containerd asks for. The kubelet finds files in place of the
// machine's settings that it would change.
package cluster
