package ipcontrol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/etcd"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// nodeKubeconfigs is where install puts the node's kubeconfig, as this process may
// see it: on the host, or in a pod that has the host's directory mounted.
var nodeKubeconfigs = []string{
	"/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.kubeconfig",
	"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig",
	"/host/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig",
}

// access is a way to where the records are: one of client and local is set.
type access struct {
	client *kube.Client
	local  ipam.Store // a file of this host, or etcd
	flat   []byte     // content of the flat file; nil if there is none here
	state  string     // the plugin's directory on this node
}

// open finds the datastore, as the options, the environment and this node say.
func (o options) open() (*access, error) {
	cfg, flat, flatErr := o.readFlatFile()
	a := &access{flat: flat, state: ipam.DefaultStateDirectory}
	if cfg != nil {
		a.state = o.here(cfg.StateDirectory)
	}
	path := o.local
	if path == "" && o.kubeconfig == "" && o.Getenv("KUBECONFIG") == "" {
		if flatErr != nil {
			return nil, flatErr
		}
		if cfg.Datastore == ipam.DatastoreEtcd {
			store, err := o.openEtcd(cfg.Etcd)
			if err != nil {
				return nil, err
			}
			a.local = store
			return a, nil
		}
		if cfg.Datastore == ipam.DatastoreLocal {
			path = cfg.LocalPath
		}
	}
	if path != "" {
		store, err := o.openLocal(path)
		a.local = store
		return a, err
	}
	return a, o.connect(a, cfg)
}

// openEtcd opens the store that the flat file names. There is no option for it: a
// password does not belong on a command line.
func (o options) openEtcd(cfg ipam.EtcdConfig) (*etcd.Store, error) {
	for _, path := range []*string{&cfg.CAFile, &cfg.CertFile, &cfg.KeyFile} {
		if *path != "" {
			*path = o.here(*path)
		}
	}
	return etcd.Open(cfg, nil)
}

// openLocal refuses a file that is not there: the store would read as empty, and a
// slip of the pen would look like a host without records.
func (o options) openLocal(path string) (ipam.Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--local: %w", err)
	}
	if _, err := o.ReadFile(path); err != nil {
		return nil, fmt.Errorf("local datastore: %w; correct the path (--local, or local_path of the flat file)", err)
	}
	return local.Open(path)
}

func (o options) connect(a *access, cfg *ipam.Config) (err error) {
	path := o.findKubeconfig(cfg)
	if path == "" && o.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return fmt.Errorf("%w: no cluster found: there is no kubeconfig of this node, and this is no pod; "+
			"use --kubeconfig or KUBECONFIG, or --local for the file of a local datastore", ipam.ErrInvalid)
	}
	a.client, err = kube.NewClient(kube.Options{Kubeconfig: path, AllowExec: true, Getenv: o.Getenv})
	return err
}

// findKubeconfig answers "" for the pod's service account.
func (o options) findKubeconfig(cfg *ipam.Config) string {
	if o.kubeconfig != "" {
		return o.kubeconfig
	}
	for _, path := range filepath.SplitList(o.Getenv("KUBECONFIG")) {
		if path != "" {
			return path
		}
	}
	if cfg != nil && cfg.Kubeconfig != "" {
		return o.here(cfg.Kubeconfig)
	}
	own := ""
	if home := o.Getenv("HOME"); home != "" {
		own = filepath.Join(home, ".kube", "config")
	}
	candidates := nodeKubeconfigs
	if o.Getenv("KUBERNETES_SERVICE_HOST") == "" { // nothing else would be left
		candidates = append(append([]string(nil), candidates...), own)
	}
	for _, path := range candidates {
		if o.exists(path) {
			return path
		}
	}
	return ""
}

// here is where this process sees a file or directory of the host.
func (o options) here(path string) string {
	if mounted := "/host" + path; !o.exists(path) && o.exists(mounted) {
		return mounted
	}
	return path
}

// exists also holds for a directory, which reads with an error of its own.
func (o options) exists(path string) bool {
	if path == "" {
		return false
	}
	_, err := o.ReadFile(path)
	return err == nil || isDirectory(err)
}

// readFlatFile reads what the node's flat file says, if there is one. The
// configuration is there beside an error that is merely about the datastore.
func (o options) readFlatFile() (*ipam.Config, []byte, error) {
	inline := map[string]any{"type": "whereabouts"}
	if o.flatFile != "" {
		if _, err := o.ReadFile(o.flatFile); err != nil {
			return nil, nil, usage("--flat-file: %w; correct the path or leave it out", err)
		}
		inline["configuration_path"] = o.flatFile
	}
	stdin, err := json.Marshal(map[string]any{"ipam": inline})
	if err != nil {
		return nil, nil, err
	}
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: stdin, ReadFile: o.ReadFile, Getenv: o.onNode})
	if cfg == nil || err != nil {
		return nil, nil, fmt.Errorf("flat file: %w", err)
	}
	if cfg.FlatFile == "" {
		return cfg, nil, nil
	}
	flat, err := o.ReadFile(cfg.FlatFile)
	if err != nil {
		return nil, nil, fmt.Errorf("flat file: %w", err)
	}
	return cfg, flat, nil
}

// onNode is the environment as a configuration is read in: one without a kubeconfig
// is not wrong, since the kubeconfig is looked for elsewhere too.
func (o options) onNode(name string) string {
	if name == "KUBERNETES_SERVICE_HOST" {
		return "a node"
	}
	return o.Getenv(name)
}

func (a *access) close() {
	if a.client != nil {
		a.client.Close()
	}
}

// store is where the records of a namespace are.
func (a *access) store(namespace string) ipam.Store {
	if a.client == nil {
		return a.local
	}
	return kube.NewStore(a.client.In(namespace), nil)
}

// live answers about pods by asking for each. Without a cluster nothing is known.
func (a *access) live() reclaim.Cluster {
	if a.client == nil {
		return noCluster{}
	}
	return kube.Live(a.client)
}

type noCluster struct{}

var errNoCluster = fmt.Errorf("%w: a datastore outside Kubernetes knows no pods", ipam.ErrUnavailable)

func (noCluster) Pod(context.Context, string, string) (*reclaim.Pod, error) { return nil, errNoCluster }

func (noCluster) Node(context.Context, string) (*reclaim.Node, error) { return nil, errNoCluster }

// plain is the text of an error for a person, without what only a programmer needs.
func plain(err error) string {
	text := err.Error()
	for _, kind := range []error{ipam.ErrUnavailable, ipam.ErrDenied, ipam.ErrInvalid} {
		if errors.Is(err, kind) {
			text = strings.TrimPrefix(text, kind.Error()+": ")
		}
	}
	return text
}
