package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// Scope is what an inspection reads.
type Scope struct {
	Namespace string // of the records; "" is all
	Pods      bool   // pods and nodes too, of all namespaces
}

// Inspection is a cluster as it was when a person looked at it: a Picture of which
// some may be missing, since a person may not be permitted to read all of it. What
// is missing is not known: its questions are answered with an error.
type Inspection struct {
	*Picture
	Definitions []Definition // in the order of their namespaces and names
	Missing     []error      // what could not be read; each wraps ipam.ErrDenied

	noPods, noNodes error
}

// Inspect lists records, and then what else is asked for, again and again until the
// context ends. Credentials that do not reach the records of all namespaces, such as
// those on a node, show those of their own one. flat is as for ReadCluster. An error is
// about records, or wraps ipam.ErrUnavailable.
func Inspect(ctx context.Context, client *Client, flat []byte, scope Scope) (*Inspection, error) {
	in := &Inspection{Picture: &Picture{cluster: newCluster(flat, func() {})}}
	if err := in.listRecords(ctx, client, scope.Namespace); err != nil {
		return nil, err
	}
	notRead := fmt.Errorf("%w: pods are not read", ipam.ErrDenied)
	in.noPods, in.noNodes = notRead, notRead
	if scope.Pods {
		in.noPods = listAgain(ctx, client, podCollection, in.cluster.pods)
		in.noNodes = listAgain(ctx, client, nodeCollection, in.cluster.nodes)
		in.miss(in.noPods)
		in.miss(in.noNodes)
	}
	texts := &definitionTexts{mirror: in.cluster.definitions}
	err := listAgain[definitionObject](ctx, client, definitionCollection, texts)
	if err != nil {
		in.cluster.definitions.missing() // nothing is known of networks
		in.miss(err)
	}
	in.Definitions = texts.sorted()
	for _, err := range in.Missing {
		if !errors.Is(err, ipam.ErrDenied) {
			return nil, err
		}
	}
	return in, nil
}

func (in *Inspection) listRecords(ctx context.Context, client *Client, namespace string) error {
	in.records = newRecords(client, namespace)
	denied := in.records.list(ctx)
	own := client.Namespace()
	if !errors.Is(denied, ipam.ErrDenied) || namespace != "" || own == "" {
		return denied
	}
	in.records = newRecords(client, own)
	if err := in.records.list(ctx); err != nil {
		return denied
	}
	in.miss(fmt.Errorf("records in other namespaces than %s: %w", own, denied))
	return nil
}

func (in *Inspection) miss(err error) {
	if err != nil {
		in.Missing = append(in.Missing, err)
	}
}

// Pod is Picture.Pod; an error if pods could not be read.
func (in *Inspection) Pod(ctx context.Context, namespace, name string) (*reclaim.Pod, error) {
	if in.noPods != nil {
		return nil, in.noPods
	}
	return in.Picture.Pod(ctx, namespace, name)
}

// Node is Picture.Node; an error if nodes could not be read.
func (in *Inspection) Node(ctx context.Context, name string) (*reclaim.Node, error) {
	if in.noNodes != nil {
		return nil, in.noNodes
	}
	return in.Picture.Node(ctx, name)
}

// Pods are all pods that were read, in no order. They must not be changed.
func (in *Inspection) Pods() iter.Seq[*reclaim.Pod] {
	return func(yield func(*reclaim.Pod) bool) {
		var all []*reclaim.Pod
		in.cluster.pods.each(func(_ objectKey, p *reclaim.Pod) { all = append(all, p) })
		for _, p := range all {
			if !yield(p) {
				return
			}
		}
	}
}

// definitionTexts is the mirror of definitions, which keeps their texts beside it.
type definitionTexts struct {
	*mirror[definitionObject, *definitionObject, *definition]
	all []Definition
}

func (t *definitionTexts) begin() {
	t.all = nil
	t.mirror.begin()
}

func (t *definitionTexts) put(o *definitionObject) {
	t.all = append(t.all, Definition{o.Metadata.Namespace, o.Metadata.Name, string(o.Spec.Config)})
	t.mirror.put(o)
}

func (t *definitionTexts) sorted() []Definition {
	slices.SortFunc(t.all, func(a, b Definition) int { return cmpStrings(a.Namespace, b.Namespace, a.Name, b.Name) })
	return t.all
}

func cmpStrings(a, b, c, d string) int {
	switch {
	case a < b || a == b && c < d:
		return -1
	case a == b && c == d:
		return 0
	}
	return 1
}

// Definition is a network attachment definition as it is written.
type Definition struct{ Namespace, Name, Config string }

// String is "namespace/name".
func (d Definition) String() string { return d.Namespace + "/" + d.Name }

// Configs reads the parts of a definition that use this plugin, as a node would
// whose flat file has that content. One that is not known (nil) is taken to add
// nothing: that is good enough to show, and for no more. A part is left out whose
// ranges depend on another file, or that cannot be understood.
func (d Definition) Configs(flat []byte) []*ipam.Config {
	if flat == nil {
		flat = []byte("{}")
	}
	plugins, _ := pluginsOf(d.Config)
	var configs []*ipam.Config
	for _, plugin := range plugins {
		cfg, hidden, err := readAs(plugin, flat, hiddenFiles[0])
		if err != nil || cfg.Datastore != ipam.DatastoreKubernetes {
			continue
		}
		if hidden {
			other, _, err := readAs(plugin, flat, hiddenFiles[1])
			if err != nil || cfg.NetworkName != other.NetworkName || !slices.Equal(prefixes(cfg), prefixes(other)) {
				continue
			}
		}
		if cfg.Name == "" {
			cfg.Name = listName(d.Config)
		}
		configs = append(configs, cfg)
	}
	return configs
}

// Plugins answers the configurations of a network configuration, or a list of them,
// that use this plugin, each with the list's name and version as a runtime passes
// it. ok is false for what is no JSON object.
func Plugins(config string) (plugins []json.RawMessage, ok bool) {
	found, ok := pluginsOf(config)
	var list map[string]json.RawMessage
	_ = json.Unmarshal([]byte(config), &list)
	if list["plugins"] == nil {
		return found, ok
	}
	for _, plugin := range found {
		var members map[string]json.RawMessage
		if json.Unmarshal(plugin, &members) != nil {
			continue
		}
		for _, key := range []string{"name", "cniVersion"} {
			if list[key] != nil {
				members[key] = list[key]
			}
		}
		if whole, err := json.Marshal(members); err == nil {
			plugins = append(plugins, whole)
		}
	}
	return plugins, ok
}

func listName(config string) string {
	var list struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal([]byte(config), &list)
	return list.Name
}

// ClusterRange is a range that the cluster itself uses.
type ClusterRange struct {
	Range netip.Prefix
	For   string // in words: "pods on node a", "services"
}

// ClusterRanges lists the ranges of pods, node by node, and of services, as far as
// the cluster tells and they may be read. It does not know those of a network plugin
// that keeps its own. Errors wrap ipam.ErrUnavailable or ipam.ErrDenied; what could
// be read is answered beside them.
func ClusterRanges(ctx context.Context, client *Client) ([]ClusterRange, error) {
	var all []ClusterRange
	add := func(cidr, use string) {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			all = append(all, ClusterRange{p.Masked(), use})
		}
	}
	nodes := newMirror(func(o *cidrObject) (struct{}, bool) {
		for _, cidr := range o.cidrs() {
			add(cidr, "pods on node "+o.Metadata.Name)
		}
		return struct{}{}, true
	}, nil)
	services := newMirror(func(o *cidrObject) (struct{}, bool) {
		for _, cidr := range o.cidrs() {
			add(cidr, "services")
		}
		return struct{}{}, true
	}, nil)
	err := errors.Join(
		listAgain(ctx, client, nodeCollection, nodes),
		listAgain(ctx, client, collection{name: "service CIDRs", path: "apis/networking.k8s.io/v1/servicecidrs", optional: true}, services),
	)
	return all, err
}

// cidrObject is a Node or a ServiceCIDR with the ranges it names.
type cidrObject struct {
	Metadata objectMeta `json:"metadata"`
	Spec     struct {
		PodCIDR  string   `json:"podCIDR"`
		PodCIDRs []string `json:"podCIDRs"`
		CIDRs    []string `json:"cidrs"`
	} `json:"spec"`
}

func (o *cidrObject) ident() identity { return o.Metadata.ident() }

func (o *cidrObject) cidrs() []string {
	if len(o.Spec.PodCIDRs) == 0 && o.Spec.PodCIDR != "" {
		return []string{o.Spec.PodCIDR}
	}
	return append(o.Spec.PodCIDRs, o.Spec.CIDRs...)
}
