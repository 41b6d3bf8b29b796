package kube_test

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

func TestRemovePool(t *testing.T) {
	cp := shared.ControlPlane(t)
	id := ipam.PoolID{Network: "gone", Range: netip.MustParsePrefix("10.0.0.0/24")}
	at := netip.MustParseAddr("10.0.0.5")
	entry := testenv.Object{"id": "c1", "podref": "default/a"}
	for _, tt := range []struct {
		name    string
		entries testenv.Object // nil: there is no pool
		before  func(t *testing.T, s seeder)
		action  *testenv.Action // what happens to the deletion; nil: nothing
		removed bool
		left    bool
	}{
		{name: "an empty pool is removed", entries: testenv.Object{}, removed: true},
		{name: "a pool with an entry stays", entries: testenv.Object{"5": entry}, left: true},
		{name: "a pool with a key that is no offset stays", entries: testenv.Object{"rubbish": entry}, left: true},
		{name: "a pool that becomes closed just before stays", entries: testenv.Object{}, before: closeSeeded, left: true},
		{name: "a pool that is not there is none to remove"},
		{
			name: "a pool in which somebody takes an address just before stays", entries: testenv.Object{},
			before: func(t *testing.T, s seeder) {
				s.record(t, id, at, ipam.Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a"})
			},
			left: true,
		},
		{name: "a removal whose answer was lost is not claimed", entries: testenv.Object{}, action: new(testenv.LoseAnswer())},
		{name: "a removal that broke off is tried again", entries: testenv.Object{}, action: new(testenv.Refuse()), removed: true},
		{name: "a removal that the server cannot do at the moment is tried again", entries: testenv.Object{}, action: new(testenv.Answer(http.StatusInternalServerError)), removed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			namespace, proxy := cp.Namespace(t), cp.Proxy(t)
			seed := seeder{cp, namespace}
			store := openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Via: proxy}))
			if tt.entries != nil {
				seed.pool(t, id, tt.entries)
			}
			first := true
			deletion := func(r testenv.Request) bool {
				if r.Method != http.MethodDelete || !first {
					return false
				}
				first = false
				if tt.before != nil {
					tt.before(t, seed)
				}
				return tt.action != nil
			}
			action := testenv.Refuse()
			if tt.action != nil {
				action = *tt.action
			}
			proxy.Inject(testenv.Rule{Match: testenv.Match{Func: deletion}, Nth: 1, Times: 1, Action: action})
			removed, err := store.RemovePool(t.Context(), id)
			if err != nil || removed != tt.removed {
				t.Errorf("got %v, %v, want %v", removed, err, tt.removed)
			}
			err = cp.Client().Get(t.Context(), resourcePath(namespace, poolResource, kube.PoolName(id)), nil)
			if left := testenv.StatusCode(err) != http.StatusNotFound; left != tt.left {
				t.Errorf("the object is there: %v, want %v", left, tt.left)
			}
			if tt.removed {
				takeAgain(t, store, id, at)
			}
		})
	}
}

func closeSeeded(t *testing.T, s seeder) {
	t.Helper()
	path := resourcePath(s.namespace, poolResource, "gone-10.0.0.0-24")
	s.cp.Must(t).Patch(path, testenv.MergePatch, testenv.Object{
		"metadata": testenv.Object{"annotations": testenv.Object{"whereabouts.cni.cncf.io/closed": "closed"}},
	})
}

// The mark of a pool that is closed has to stay, or a plugin would write there again.
func TestRemovePoolLeavesClosedPools(t *testing.T) {
	s, _ := sliceStore(t, shared.ControlPlane(t))
	if err := s.CloseNodePool(t.Context(), kube.NodePool{ID: nodeID}); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.RemovePool(t.Context(), nodeID); removed || err != nil {
		t.Errorf("got %v, %v", removed, err)
	}
	state(t, s, slice.Closing)
}

// takeAgain wants a pool to come into being again with its next record.
func takeAgain(t *testing.T, s *kube.Store, id ipam.PoolID, a netip.Addr) {
	t.Helper()
	r := ipam.Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a"}
	if err := errors.Join(s.Commit(t.Context(), []ipam.Change{{Pool: id, Address: a, After: &r, Overlap: true}})...); err != nil {
		t.Errorf("taking an address of the pool again: %v", err)
	}
}
