package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	netnslocal "github.com/whereabouts-cni/whereabouts/ipam/local"
)

// netnsPlugins builds the reference CNI plugins once, beside the binary under
// test, with which they are removed.
var netnsPlugins = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(suite.Binary), "cni")
	cmd := exec.Command("go", "build", "-C", "cniplugins", "-buildvcs=false", "-o", dir+"/", "tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the reference CNI plugins: %w\n%s", err, out)
	}
	return dir, nil
})

// netnsNode is a machine with a network of its own and a container runtime's
// library on it. Plugins are run inside its namespace: the network of the machine
// that runs the tests is not touched.
type netnsNode struct {
	t       *testing.T
	space   *netnsSpace
	exec    *netnsExec
	runtime *libcni.CNIConfig
	records string // path of the local store
}

func newNetnsNode(t *testing.T) *netnsNode {
	t.Helper()
	space := newNetnsSpace(t)
	plugins, err := netnsPlugins()
	if err != nil {
		t.Fatal(err)
	}
	dirs := newNode(t, "node-a")
	n := &netnsNode{t: t, space: space, records: filepath.Join(t.TempDir(), "records.db")}
	n.exec = &netnsExec{
		DefaultExec: invoke.DefaultExec{RawExec: &invoke.RawExec{}, PluginDecoder: cniversion.PluginDecoder{}},
		space:       space,
		path:        []string{plugins, filepath.Dir(suite.Binary)},
		env: []string{
			"NODENAME=" + dirs.name, "WHEREABOUTS_RUN_DIR=" + dirs.runDir, "WHEREABOUTS_STATE_DIR=" + dirs.stateDir,
		},
	}
	n.restartRuntime()
	return n
}

// restartRuntime gives the node a container runtime that remembers no attachment.
func (n *netnsNode) restartRuntime() {
	n.runtime = libcni.NewCNIConfigWithCacheDir(n.exec.path, n.t.TempDir(), n.exec)
}

// netnsExec runs plugins in a node's namespace with the node's environment.
type netnsExec struct {
	invoke.DefaultExec
	space *netnsSpace
	path  []string
	env   []string
}

func (e *netnsExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) (out []byte, err error) {
	err = e.space.Do(func() error {
		out, err = e.DefaultExec.ExecPlugin(ctx, path, stdin, append(slices.Clip(environ), e.env...))
		return err
	})
	return out, err
}

// local is an ipam section with the node's own store.
func (n *netnsNode) local(more Object) Object {
	section := Object{
		"type": "whereabouts", "datastore": "local", "local_path": n.records,
		// What this machine may have been told about Whereabouts does not count.
		"configuration_path": writeJSON(n.t, "whereabouts.conf", Object{}),
	}
	maps.Copy(section, more)
	return section
}

// network is a network configuration list.
func (n *netnsNode) network(version string, plugins ...Object) *libcni.NetworkConfigList {
	n.t.Helper()
	data, err := json.Marshal(Object{"cniVersion": version, "name": "net-a", "plugins": plugins})
	if err != nil {
		n.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// netnsPod is a pod's namespace and what was attached to it.
type netnsPod struct {
	name      string
	space     *netnsSpace
	conf      *libcni.RuntimeConf
	result    *types100.Result
	addresses []netip.Addr
}

// pod makes a pod without a network.
func (n *netnsNode) pod(name string) *netnsPod {
	n.t.Helper()
	space := newNetnsSpace(n.t)
	return &netnsPod{name: name, space: space, conf: &libcni.RuntimeConf{
		ContainerID: "container-of-" + name, NetNS: space.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}},
	}}
}

// attach makes a pod and attaches it to a network.
func (n *netnsNode) attach(list *libcni.NetworkConfigList, name string) *netnsPod {
	n.t.Helper()
	p := n.pod(name)
	result, err := n.runtime.AddNetworkList(n.t.Context(), list, p.conf)
	if err != nil {
		n.t.Fatalf("ADD of pod %s: %v", name, err)
	}
	if result.Version() != list.CNIVersion {
		n.t.Errorf("the result has version %s, want %s", result.Version(), list.CNIVersion)
	}
	if p.result, err = types100.NewResultFromResult(result); err != nil {
		n.t.Fatal(err)
	}
	for _, ip := range p.result.IPs {
		address, _ := netip.AddrFromSlice(ip.Address.IP)
		p.addresses = append(p.addresses, address.Unmap())
	}
	return p
}

func (n *netnsNode) check(list *libcni.NetworkConfigList, p *netnsPod) error {
	return n.runtime.CheckNetworkList(n.t.Context(), list, p.conf)
}

func (n *netnsNode) detach(list *libcni.NetworkConfigList, p *netnsPod) {
	n.t.Helper()
	if err := n.runtime.DelNetworkList(n.t.Context(), list, p.conf); err != nil {
		n.t.Errorf("DEL of pod %s: %v", p.name, err)
	}
}

// collect is GC with the pods that live.
func (n *netnsNode) collect(list *libcni.NetworkConfigList, alive ...*netnsPod) error {
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, p := range alive {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: p.conf.ContainerID, IfName: p.conf.IfName})
	}
	return n.runtime.GCNetworkList(n.t.Context(), list, args)
}

// store opens the local store; it is closed with the test.
func (n *netnsNode) store() *netnslocal.Store {
	n.t.Helper()
	store, err := netnslocal.Open(n.records)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = store.Close() })
	return store
}

// snapshot is what the local store holds; its records and reservations agree.
func (n *netnsNode) snapshot() *ipam.Snapshot {
	n.t.Helper()
	snapshot, err := n.store().Snapshot(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	always := func(ipam.PoolID, ipam.Record) bool { return true }
	for _, finding := range ipam.Check(snapshot, ipam.CheckOptions{NeedsReservation: always}) {
		n.t.Errorf("%s: %s", finding.Kind, finding.Text)
	}
	return snapshot
}

// holders are the pods that the local store knows, by address.
func (n *netnsNode) holders() map[string]string {
	n.t.Helper()
	held := map[string]string{}
	for _, pool := range n.snapshot().Pools {
		for address, record := range pool.Records {
			held[address.String()] = record.PodRef
		}
	}
	return held
}

// rewrite changes all records of the local store. What f makes of a record
// replaces it; nil releases it.
func (n *netnsNode) rewrite(f func(ipam.Record) *ipam.Record) {
	n.t.Helper()
	var changes []ipam.Change
	for _, pool := range n.snapshot().Pools {
		for address, record := range pool.Records {
			changes = append(changes, ipam.Change{Pool: pool.ID, Address: address, Before: &record, After: f(record), Overlap: true})
		}
	}
	for _, err := range n.store().Commit(n.t.Context(), changes) {
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// ip runs the command of that name in the node's namespace.
func (n *netnsNode) ip(args string) {
	n.t.Helper()
	testenv.NeedsIP(n.t)
	if err := n.space.IP(args); err != nil {
		n.t.Fatal(err)
	}
}

// relayTo lets processes of the node reach a server of the test at its own
// address on loopback.
func (n *netnsNode) relayTo(server string) {
	n.t.Helper()
	n.ip("link set lo up")
	target, err := url.Parse(server)
	if err != nil {
		n.t.Fatal(err)
	}
	var listener net.Listener
	err = n.space.Do(func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(n.t.Context(), "tcp", target.Host)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			inside, err := listener.Accept()
			if err != nil {
				return
			}
			go netnsRelay(inside, target.Host)
		}
	}()
}

func netnsRelay(inside net.Conn, address string) {
	defer inside.Close()
	outside, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer outside.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
}
