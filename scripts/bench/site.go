package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	groupVersion = "whereabouts.cni.cncf.io/v1alpha1"
	pools        = "ippools"
	reservations = "overlappingrangeipreservations"
	slicePools   = "nodeslicepools"
)

// Object is short for JSON objects.
type Object = testenv.Object

// site is a namespace of its own with a plugin that uses it, and its nodes. Nothing
// of one site is seen in another.
type site struct {
	client    *testenv.Client
	namespace string // or, on etcd, the network_name
	plugin    string
	store     Object     // the keys of every network that say where the records are
	dir       string     // configurations and logs
	memory    string     // directories of nodes
	etcd      ipam.Store // nil for Kubernetes
}

// newSite makes a site for our plugin. Its plugin goes through the proxy if there
// is one.
func (b *bench) newSite(ctx context.Context, name string, via *proxy) (*site, error) {
	s, err := b.newPlace(name)
	if err != nil {
		return nil, err
	}
	server, ca := b.apiServer(via)
	if err := writeJSON(s.path("kubeconfig"), kubeconfig(server, ca, b.cp.Token(testenv.Admin), s.namespace)); err != nil {
		return nil, err
	}
	s.store = Object{"kubernetes": Object{"kubeconfig": s.path("kubeconfig")}}
	// A file that this machine may have must not count, and some plugins want one.
	if err := s.writeFlatFile("kubernetes"); err != nil {
		return nil, err
	}
	return s, s.client.Create(ctx, "/api/v1/namespaces", Object{"metadata": Object{"name": s.namespace}}, nil)
}

// newPlace makes a site's directory.
func (b *bench) newPlace(name string) (*site, error) {
	name = fmt.Sprintf("bench-%s-%d", name, b.sites.Add(1))
	s := &site{
		client: b.cp.Client(), namespace: name, plugin: b.programs.ours,
		dir: b.path(name), memory: filepath.Join(b.memory, name),
	}
	return s, os.Mkdir(s.dir, 0o700)
}

func (s *site) writeFlatFile(datastore string) error {
	flat := maps.Clone(s.store)
	flat["datastore"] = datastore
	return writeJSON(s.path("whereabouts.conf"), flat)
}

// apiServer is how to reach it, through a proxy if there is one: its URL, and who
// signed its certificate.
func (b *bench) apiServer(via *proxy) (url string, ca []byte) {
	if via != nil {
		return via.url(), via.ca()
	}
	return b.cp.URL, b.cp.CA
}

func kubeconfig(server string, ca []byte, token, namespace string) Object {
	return Object{
		"apiVersion": "v1", "kind": "Config", "current-context": "bench",
		"clusters": []Object{{"name": "bench", "cluster": Object{"server": server, "certificate-authority-data": ca}}},
		"users":    []Object{{"name": "bench", "user": Object{"token": token}}},
		"contexts": []Object{{"name": "bench", "context": Object{"cluster": "bench", "user": "bench", "namespace": namespace}}},
	}
}

func writeJSON(path string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// network writes the configuration of a network and answers its path.
func (s *site) network(name string, ipam Object) (string, error) {
	full := Object{"type": "whereabouts", "configuration_path": s.path("whereabouts.conf")}
	maps.Copy(full, s.store)
	maps.Copy(full, ipam)
	path := s.path(name + ".json")
	return path, writeJSON(path, Object{"cniVersion": "1.0.0", "name": name, "type": "macvlan", "ipam": full})
}

// nodes are n machines of the site.
func (s *site) nodes(n int) []node {
	var all []node
	for i := range n {
		name := fmt.Sprint("node-", i+1)
		all = append(all, node{
			name: name, runDir: filepath.Join(s.memory, name, "run"), stateDir: filepath.Join(s.memory, name, "state"),
		})
	}
	return all
}

// call is one run of the site's plugin.
func (s *site) call(verb string, n node, pod, ifName, config string) call {
	return call{plugin: s.plugin, verb: verb, node: n, pod: pod, ifName: ifName, config: config}
}

// collection is the path of the site's objects of a kind.
func (s *site) collection(plural string) string {
	return "/apis/" + groupVersion + "/namespaces/" + s.namespace + "/" + plural
}

func (s *site) createPool(ctx context.Context, name, written string, allocations Object) error {
	return s.client.Create(ctx, s.collection(pools), Object{
		"apiVersion": groupVersion, "kind": "IPPool", "metadata": Object{"name": name},
		"spec": Object{"range": written, "allocations": allocations},
	}, nil)
}

func (s *site) createReservation(ctx context.Context, name string, spec Object) error {
	return s.client.Create(ctx, s.collection(reservations), Object{
		"apiVersion": groupVersion, "kind": "OverlappingRangeIPReservation",
		"metadata": Object{"name": name}, "spec": spec,
	}, nil)
}

// createSlices gives each of n nodes a slice of the range of floods, as the controller does.
func (s *site) createSlices(ctx context.Context, n int) error {
	allocations := []Object{}
	for i, node := range s.nodes(n) {
		allocations = append(allocations, Object{"nodeName": node.name, "sliceRange": fmt.Sprintf("10.30.%d.0%s", i, floodSlice)})
	}
	return s.client.Create(ctx, s.collection(slicePools), Object{
		"apiVersion": groupVersion, "kind": "NodeSlicePool", "metadata": Object{"name": "net-a"},
		"spec":   Object{"range": floodRange, "sliceSize": floodSlice},
		"status": Object{"allocations": allocations},
	}, nil)
}
