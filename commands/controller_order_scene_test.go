package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	onlyList  = "storage"
	onlySlice = "10.5.0.0/26"
)

// orderScene is a cluster on a real API server with one network of one slice, for which
// the nodes a and b compete. What others do there between two requests of the
// controller is written out in each test: who is late is decided here, and not by
// chance.
type orderScene struct {
	t          *testing.T
	cp         *testenv.ControlPlane
	proxy      *testenv.Proxy // before the controller
	others     *kube.Store    // around the proxy
	cluster    pictured
	controller *sliceController
}

// pictured is the real cluster, with watches that show what a test has them show.
type pictured struct {
	watchedSlices
	picture func() kube.SlicePicture
}

func (p pictured) Picture() kube.SlicePicture { return p.picture() }

func newOrderScene(t *testing.T, nodes ...string) *orderScene {
	t.Helper()
	cp := testenv.Start(t)
	cp.ApplyCRDs(t, "../manifests/crds")
	cp.ApplyCRDs(t, "../kube/testdata/definitions")
	s := &orderScene{t: t, cp: cp, proxy: cp.Proxy(t)}
	namespace := cp.Namespace(t)
	s.others = kube.NewStore(s.client(testenv.Options{Namespace: namespace}), nil)
	own := s.client(testenv.Options{Namespace: namespace, Via: s.proxy})
	s.cluster = pictured{watchedSlices: watchedSlices{kube.NewSliceWatcher(own, nil), kube.NewStore(own, nil), own, nil}}
	s.cluster.picture = s.now
	for _, name := range nodes {
		cp.Must(t).Create("/api/v1/nodes", testenv.Object{"metadata": testenv.Object{"name": name}})
	}
	return s
}

func (s *orderScene) client(o testenv.Options) *kube.Client {
	s.t.Helper()
	client, err := kube.NewClient(kube.Options{Kubeconfig: s.cp.Kubeconfig(s.t, o), Getenv: os.Getenv})
	s.check(err)
	s.t.Cleanup(client.Close)
	return client
}

func (s *orderScene) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *orderScene) define() {
	s.t.Helper()
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "ipam": {"type": "whereabouts", "range": %q, "node_slice_size": "/26"}}`, onlyList, onlySlice)
	s.cp.Must(s.t).Create("/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", testenv.Object{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": testenv.Object{"name": onlyList}, "spec": testenv.Object{"config": config},
	})
}

// now is what watches that are up to date show.
func (s *orderScene) now() kube.SlicePicture {
	s.t.Helper()
	picture, err := s.cluster.Read(context.Background())
	s.check(err)
	return picture
}

// pass is one of a controller that knows nothing from before. Somebody else who was
// faster is no failure.
func (s *orderScene) pass() {
	s.t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	if s.controller == nil {
		s.controller = newSliceController(s.cluster, nil, newMetrics(), time.Now, quiet)
	}
	if err := s.controller.pass(context.Background()); err != nil && !onlyChanged(err) {
		s.t.Fatal(err)
	}
}

// give writes the list: the slice is a node's, or nobody's for "".
func (s *orderScene) give(node string) {
	s.t.Helper()
	list, err := s.others.SlicePool(context.Background(), onlyList)
	s.check(err)
	if list == nil {
		space := ""
		list = &kube.SlicePool{Name: onlyList, Range: onlySlice, Size: "/26", Network: onlyList, Space: &space}
	}
	list.Allocations = []slice.Allocation{{NodeName: node, SliceRange: onlySlice}}
	_, err = s.others.WriteSlicePool(context.Background(), *list)
	s.check(err)
}

// owner is whose the slice is by the list; "no list" if there is none.
func (s *orderScene) owner() string {
	s.t.Helper()
	list, err := s.others.SlicePool(context.Background(), onlyList)
	s.check(err)
	if list == nil {
		return "no list"
	}
	for _, a := range list.Allocations {
		if a.SliceRange == onlySlice {
			return a.NodeName
		}
	}
	return ""
}

func (s *orderScene) poolID(node string) ipam.PoolID {
	return ipam.PoolID{Node: node, Range: netip.MustParsePrefix(onlySlice)}
}

func (s *orderScene) pool(node string) kube.NodePool {
	s.t.Helper()
	p, err := s.others.NodePool(context.Background(), s.poolID(node))
	s.check(err)
	return p
}

func (s *orderScene) closing(node string) {
	s.t.Helper()
	s.check(s.others.CloseNodePool(context.Background(), s.pool(node)))
}

func (s *orderScene) sealed(node string) {
	s.t.Helper()
	s.check(s.others.SealNodePool(context.Background(), s.pool(node)))
}

func (s *orderScene) opened(node string) {
	s.t.Helper()
	s.check(s.others.OpenNodePool(context.Background(), s.pool(node)))
}

// take is the write of a plugin on a node, from whatever list it has read.
func (s *orderScene) take(node string) error {
	r := ipam.Record{ContainerID: "c-" + node, IfName: "net1", PodRef: "default/" + node, Gen: "01020304"}
	return errors.Join(s.others.Commit(context.Background(), []ipam.Change{{
		Pool: s.poolID(node), Address: netip.MustParseAddr("10.5.0.1"), After: &r,
	}})...)
}

// between has others act once the controller has read a first collection and before the
// API server gets to see its request for the second one.
func (s *orderScene) between(act func()) *testenv.Injection {
	// The pictures of the watches go through the proxy as well; they are taken now.
	picture := s.now()
	s.cluster.picture = func() kube.SlicePicture { return picture }
	reads := testenv.Match{Method: http.MethodGet, Path: "/(nodeslicepools|ippools)$"}
	s.proxy.ResetRequests()
	return s.proxy.Inject(testenv.Rule{Match: reads, Nth: 2, Action: testenv.Before(func(testenv.Request) {
		for end := time.Now().Add(time.Minute); s.answered(reads) == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		act()
	})})
}

func (s *orderScene) answered(m testenv.Match) int {
	n := 0
	for _, r := range s.proxy.Find(m) {
		if r.Done {
			n++
		}
	}
	return n
}
