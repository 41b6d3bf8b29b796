package kube

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// Where the objects of a cluster are, those of all namespaces.
var (
	podCollection  = collection{name: "pods", path: "api/v1/pods"}
	nodeCollection = collection{name: "nodes", path: "api/v1/nodes"}

	// A cluster without Multus need not know the resource.
	definitionCollection = collection{
		name: "network attachment definitions", path: "apis/k8s.cni.cncf.io/v1/network-attachment-definitions", optional: true,
	}
)

// Live answers what there is by asking the API server each time, again and again
// until the context ends.
func Live(client *Client) reclaim.Cluster { return live{client} }

type live struct{ client *Client }

func (l live) Pod(ctx context.Context, namespace, name string) (*reclaim.Pod, error) {
	var object podObject
	path := "api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	found, err := l.get(ctx, "pod "+namespace+"/"+name, path, name, &object)
	if err != nil || !found {
		return nil, err
	}
	return object.pod(nil), nil
}

func (l live) Node(ctx context.Context, name string) (*reclaim.Node, error) {
	var object nodeObject
	found, err := l.get(ctx, "node "+name, "api/v1/nodes/"+url.PathEscape(name), name, &object)
	if err != nil || !found {
		return nil, err
	}
	node := object.node()
	return &node, nil
}

func (l live) get(ctx context.Context, what, path, name string, into any) (found bool, err error) {
	err = l.client.read(ctx, request{method: http.MethodGet, path: path}, into)
	if isMissing(err, name) {
		return false, nil
	}
	if err != nil {
		return false, l.client.explain("read "+what, err)
	}
	return true, nil
}

// cluster is what is known of pods, nodes and definitions.
type cluster struct {
	pods        *mirror[podObject, *podObject, *reclaim.Pod]
	nodes       *mirror[nodeObject, *nodeObject, reclaim.Node]
	definitions *mirror[definitionObject, *definitionObject, *definition]

	outdated atomic.Bool // a definition has changed since networks was made
	making   sync.Mutex
	networks definitions
}

// newCluster is told of changes that may make clean-up necessary by concerns.
func newCluster(flat []byte, concerns func()) *cluster {
	names := interner{}
	c := &cluster{}
	c.pods = newMirror(
		func(o *podObject) (*reclaim.Pod, bool) { return o.pod(names), true },
		func(before, after **reclaim.Pod) {
			if podConcerns(value(before), value(after)) {
				concerns()
			}
		})
	c.nodes = newMirror(
		func(o *nodeObject) (reclaim.Node, bool) { return o.node(), true },
		func(before, after *reclaim.Node) {
			if nodeConcerns(before, after) {
				concerns()
			}
		})
	c.definitions = newMirror(
		func(o *definitionObject) (*definition, bool) {
			return readDefinition(string(o.Spec.Config), flat), true
		},
		func(before, after **definition) {
			if before, after := value(before), value(after); before != nil && after != nil && before.sum == after.sum {
				return
			}
			c.outdated.Store(true)
			concerns()
		})
	c.outdated.Store(true)
	return c
}

// value is what a pointer to a pointer leads to, or nil.
func value[V any](p **V) *V {
	if p == nil {
		return nil
	}
	return *p
}

// pod and node answer from what is known.
func (c *cluster) pod(namespace, name string) *reclaim.Pod {
	pod, _ := c.pods.get(namespace, name)
	return pod
}

func (c *cluster) node(name string) *reclaim.Node {
	node, ok := c.nodes.get("", name)
	if !ok {
		return nil
	}
	return &node
}

// nets answers what the definitions say, once they have been read. Of a cluster that
// has no such resource nothing is known: networks may be defined on the nodes.
func (c *cluster) nets() *definitions {
	if c.definitions.isMissing() {
		return &definitions{}
	}
	c.making.Lock()
	defer c.making.Unlock()
	if c.outdated.Swap(false) {
		var all []*definition
		c.definitions.each(func(_ objectKey, d *definition) { all = append(all, d) })
		c.networks.set(all)
	}
	return &c.networks
}

// Picture is a cluster as it was when it was read, records before pods: whoever held
// an address by then and lives is among the pods.
type Picture struct {
	cluster *cluster
	records *records
}

var (
	_ reclaim.Cluster  = (*Picture)(nil)
	_ reclaim.Networks = (*Picture)(nil)
)

// ReadCluster lists the records of all namespaces, and then pods, nodes and
// definitions, again and again until the context ends. flat is the content of the
// nodes' flat file, "{}" if there is none; nil when it is not known, and then
// definitions say only what they write out themselves. Errors wrap
// ipam.ErrUnavailable or ipam.ErrDenied.
func ReadCluster(ctx context.Context, client *Client, flat []byte) (*Picture, error) {
	p := &Picture{cluster: newCluster(flat, func() {}), records: newRecords(client, "")}
	if err := p.records.list(ctx); err != nil {
		return nil, err
	}
	c := p.cluster
	if err := listAgain(ctx, client, podCollection, c.pods); err != nil {
		return nil, err
	}
	if err := listAgain(ctx, client, nodeCollection, c.nodes); err != nil {
		return nil, err
	}
	return p, listAgain(ctx, client, definitionCollection, c.definitions)
}

// Pod returns nil if there was no such pod. The answer is shared: it must not be
// changed.
func (p *Picture) Pod(_ context.Context, namespace, name string) (*reclaim.Pod, error) {
	return p.cluster.pod(namespace, name), nil
}

// Node returns nil if there was no such node.
func (p *Picture) Node(_ context.Context, name string) (*reclaim.Node, error) {
	return p.cluster.node(name), nil
}

// Protection reports whether overlap protection is on for a pool.
func (p *Picture) Protection(id ipam.PoolID) (on, known bool) { return p.cluster.nets().Protection(id) }

// Named reports whether a definition names a pool, or may.
func (p *Picture) Named(id ipam.PoolID) bool { return p.cluster.nets().Named(id) }

// Snapshots are the records by the namespace of their objects. They must not be
// changed.
func (p *Picture) Snapshots(context.Context) (map[string]*ipam.Snapshot, error) {
	return p.records.snapshots(p.cluster.nets()), nil
}
