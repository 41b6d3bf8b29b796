package kube

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// patience is how long a test waits for what has to come. It is no measure.
const patience = 30 * time.Second

// scene is a cluster with a watcher before it.
type scene struct {
	*testing.T
	cp        *testenv.ControlPlane
	proxy     *testenv.Proxy
	client    *Client // direct
	watcher   *Watcher
	namespace string
}

// newScene starts a control plane of its own: what the tests of other things do in a
// shared one would be seen here.
func newScene(t *testing.T) *scene {
	cp := testenv.Start(t)
	cp.ApplyCRDs(t, "../manifests/crds")
	s := &scene{T: t, cp: cp, proxy: cp.Proxy(t), namespace: cp.Namespace(t)}
	s.client = s.open(testenv.Options{Namespace: s.namespace})
	return s
}

func (s *scene) open(o testenv.Options) *Client {
	s.Helper()
	client, err := NewClient(Options{Kubeconfig: s.cp.Kubeconfig(s, o), Getenv: os.Getenv})
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// watch starts the watcher, through the proxy, and waits until it knows everything.
func (s *scene) watch() {
	s.Helper()
	s.watcher = NewWatcher(s.open(testenv.Options{Namespace: s.namespace, Via: s.proxy}), []byte("{}"))
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watcher.Run(ctx)
	}()
	s.Cleanup(func() { cancel(); <-done })
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := s.watcher.Synced(limited); err != nil {
		s.Fatal(err)
	}
}

// eventually waits until f is true.
func (s *scene) eventually(what string, f func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.proxy.Log(s)
			s.Fatalf("%s: it never came", what)
		}
	}
}

func (s *scene) hasPod(name string) bool {
	pod, err := s.watcher.Pod(s.Context(), s.namespace, name)
	if err != nil {
		s.Fatal(err)
	}
	return pod != nil
}

// signalled takes a signal away, if there is one, and reports whether there was.
func (s *scene) signalled() bool {
	select {
	case <-s.watcher.Changed():
		return true
	default:
		return false
	}
}

func (s *scene) pods() string { return "/api/v1/namespaces/" + s.namespace + "/pods" }

func (s *scene) makePod(name string, annotations testenv.Object) {
	s.Helper()
	s.cp.Must(s).Create(s.pods(), testenv.Object{
		"metadata": testenv.Object{"name": name, "annotations": annotations},
		"spec":     testenv.Object{"nodeName": "n1", "containers": []any{testenv.Object{"name": "c", "image": "i"}}},
	})
}

func (s *scene) phase(name string, phase reclaim.Phase) {
	s.Helper()
	s.cp.Must(s).Patch(s.pods()+"/"+name+"/status", testenv.MergePatch, testenv.Object{"status": testenv.Object{"phase": phase}})
}

func (s *scene) killPod(name string) {
	s.Helper()
	err := s.cp.Client().Delete(s.Context(), s.pods()+"/"+name, testenv.Object{"gracePeriodSeconds": 0})
	if err != nil {
		s.Fatal(err)
	}
}

const definitionPath = "/apis/k8s.cni.cncf.io/v1/namespaces/%s/network-attachment-definitions"

func (s *scene) define(name, config string) {
	s.Helper()
	s.cp.Must(s).Create(fmt.Sprintf(definitionPath, s.namespace), testenv.Object{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": testenv.Object{"name": name}, "spec": testenv.Object{"config": config},
	})
}

func (s *scene) take(pool ipam.PoolID, address, pod string, overlap bool) ipam.Change {
	s.Helper()
	record := ipam.NewRecord(ipam.Owner{ContainerID: "c-" + pod, IfName: "net1", PodRef: s.namespace + "/" + pod, UID: "u-" + pod, Node: pool.Node}, time.Now())
	change := ipam.Change{Pool: pool, Address: netip.MustParseAddr(address), After: &record, Overlap: overlap}
	s.commit(change)
	return change
}

func (s *scene) commit(change ipam.Change) {
	s.Helper()
	if err := NewStore(s.client, nil).Commit(s.Context(), []ipam.Change{change})[0]; err != nil {
		s.Fatal(err)
	}
}

func (s *scene) snapshot(read func(context.Context) (map[string]*ipam.Snapshot, error)) *ipam.Snapshot {
	s.Helper()
	all, err := read(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if all[s.namespace] == nil {
		return &ipam.Snapshot{}
	}
	return all[s.namespace]
}
