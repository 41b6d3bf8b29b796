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

var (
	nodeID  = ipam.PoolID{Network: "net", Node: "w", Range: netip.MustParsePrefix("10.5.1.0/24")}
	nodeAt  = netip.MustParseAddr("10.5.1.1")
	someone = ipam.Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a", Gen: "01020304"}
)

func take(t *testing.T, s *kube.Store, overlap bool) error {
	t.Helper()
	r := someone
	return errors.Join(s.Commit(t.Context(), []ipam.Change{{Pool: nodeID, Address: nodeAt, After: &r, Overlap: overlap}})...)
}

func release(t *testing.T, s *kube.Store) error {
	t.Helper()
	r := someone
	return errors.Join(s.Commit(t.Context(), []ipam.Change{{Pool: nodeID, Address: nodeAt, Before: &r}})...)
}

// state reads the pool and wants it in a state.
func state(t *testing.T, s *kube.Store, want slice.State) kube.NodePool {
	t.Helper()
	p := must(s.NodePool(t.Context(), nodeID))(t)
	if p.State != want {
		t.Fatalf("state is %d, want %d", p.State, want)
	}
	closed := want == slice.Closing || want == slice.Closed
	if read := must(s.Read(t.Context(), nodeID))(t); read.Closed != closed {
		t.Fatalf("as it is read the pool is closed: %t, want %t", read.Closed, closed)
	}
	return p
}

func changed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, kube.ErrChanged) {
		t.Errorf("%s answers %v", what, err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A pool goes through its states, and in each only what may be done can be done.
func TestNodePoolChangesHands(t *testing.T) {
	onBothDefinitions(t, func(t *testing.T, s *kube.Store, seed seeder) {
		ctx := t.Context()
		missing := state(t, s, slice.Empty)
		ok(t, take(t, s, true))
		changed(t, "to close a pool that has been made since", s.CloseNodePool(ctx, missing))
		inUse := state(t, s, slice.InUse)
		changed(t, "to close a pool with a record", s.CloseNodePool(ctx, inUse))
		ok(t, release(t, s))
		changed(t, "to close what was written since", s.CloseNodePool(ctx, inUse))

		empty := state(t, s, slice.Empty)
		changed(t, "to seal an open pool", s.SealNodePool(ctx, empty))
		changed(t, "to open an open pool", s.OpenNodePool(ctx, empty))
		ok(t, s.CloseNodePool(ctx, empty))
		closing := state(t, s, slice.Closing)
		changed(t, "to open a closing pool", s.OpenNodePool(ctx, closing))
		ok(t, s.SealNodePool(ctx, closing))
		changed(t, "to seal again what was read before", s.SealNodePool(ctx, closing))
		closed := state(t, s, slice.Closed)

		// Whoever is late with an opening fails, since closing always writes.
		ok(t, s.CloseNodePool(ctx, closed))
		changed(t, "a late opening", s.OpenNodePool(ctx, closed))
		ok(t, s.SealNodePool(ctx, state(t, s, slice.Closing)))
		ok(t, s.OpenNodePool(ctx, state(t, s, slice.Closed)))
		state(t, s, slice.Empty)
		ok(t, take(t, s, true))
		ok(t, release(t, s))
		if node := poolObject(t, seed).String("metadata", "annotations", "whereabouts.cni.cncf.io/node"); node != "w" {
			t.Errorf("the object says it is of node %q", node)
		}
	})
}

func poolObject(t *testing.T, seed seeder) testenv.Object {
	t.Helper()
	return seed.cp.Must(t).Get(resourcePath(seed.namespace, poolResource, kube.PoolName(nodeID)))
}

func TestCloseMakesTheObject(t *testing.T) {
	s, seed := sliceStore(t, shared.ControlPlane(t))
	ok(t, s.CloseNodePool(t.Context(), state(t, s, slice.Empty)))
	state(t, s, slice.Closing)
	if written := poolObject(t, seed).String("spec", "range"); written != "10.5.1.0/24" {
		t.Errorf("range is %q", written)
	}
	var closed *ipam.ClosedError
	if err := take(t, s, true); !errors.As(err, &closed) || closed.Pool != nodeID {
		t.Errorf("taking an address answers %v", err)
	}
}

func TestMarksThatAreNotOursAreClosing(t *testing.T) {
	s, seed := sliceStore(t, shared.ControlPlane(t))
	seed.pool(t, nodeID, testenv.Object{})
	annotate(t, seed, testenv.Object{"whereabouts.cni.cncf.io/closed": "later"})
	ok(t, s.SealNodePool(t.Context(), state(t, s, slice.Closing)))
	state(t, s, slice.Closed)
}

func TestAPoolWithEntriesThatCannotBeReadIsNotClosed(t *testing.T) {
	for name, entries := range map[string]testenv.Object{
		"a key":    {"rubbish": testenv.Object{"id": "c", "podref": "a/b"}},
		"an empty": {"7": testenv.Object{"id": "", "podref": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s, seed := sliceStore(t, shared.ControlPlane(t))
			seed.pool(t, nodeID, entries)
			changed(t, "to close it", s.CloseNodePool(t.Context(), state(t, s, slice.InUse)))
		})
	}
}

func annotate(t *testing.T, seed seeder, annotations testenv.Object) {
	t.Helper()
	seed.cp.Must(t).Patch(resourcePath(seed.namespace, poolResource, kube.PoolName(nodeID)), testenv.MergePatch,
		testenv.Object{"metadata": testenv.Object{"annotations": annotations}})
}

// Somebody annotates, or closes, a pool between the time when it is read and when it
// is written.
func TestTakingFromAPoolWhoseAnnotationsChange(t *testing.T) {
	const mark = "whereabouts.cni.cncf.io/closed"
	for _, test := range []struct {
		says          string
		before, after testenv.Object // nil: none
		closed        bool
	}{
		{says: "never any"},
		{says: "others all the time", before: testenv.Object{"x": "y"}},
		{says: "another appears", after: testenv.Object{"x": "y"}},
		{says: "another disappears", before: testenv.Object{"x": "y"}, after: testenv.Object{"x": nil}},
		{says: "the mark appears", after: testenv.Object{mark: "closing"}, closed: true},
		{says: "the mark appears beside another", before: testenv.Object{"x": "y"}, after: testenv.Object{mark: "closing"}, closed: true},
		{says: "the mark has been there", before: testenv.Object{mark: "closed"}, closed: true},
		{says: "the mark disappears", before: testenv.Object{mark: "closed"}, after: testenv.Object{mark: nil}},
		{says: "an empty mark", after: testenv.Object{mark: ""}, closed: true},
	} {
		t.Run(test.says, func(t *testing.T) {
			s, seed := sliceStore(t, shared.ControlPlane(t))
			seed.pool(t, nodeID, testenv.Object{})
			if test.before != nil {
				annotate(t, seed, test.before)
			}
			must(s.Read(t.Context(), nodeID))(t)
			if test.after != nil {
				annotate(t, seed, test.after)
			}
			err := take(t, s, true)
			var closed *ipam.ClosedError
			if errors.As(err, &closed) != test.closed || !test.closed && err != nil {
				t.Errorf("taking an address answers %v, want that it is closed: %t", err, test.closed)
			}
			r := must(s.Reservation(t.Context(), nodeID.Network, nodeAt))(t)
			if left := r != nil; left == test.closed {
				t.Errorf("there is a reservation: %t", left)
			}
		})
	}
}

// In a pool that was closed by mistake, what is there can still be given back, and the
// record of a batch that is refused does not stop the release beside it.
func TestReleasesFromAClosedPool(t *testing.T) {
	s, seed := sliceStore(t, shared.ControlPlane(t))
	ok(t, take(t, s, true))
	annotate(t, seed, testenv.Object{"whereabouts.cni.cncf.io/closed": "closing"})
	old, other := someone, ipam.Record{ContainerID: "c2", IfName: "net1", PodRef: "default/b", Gen: "05060708"}
	rewritten := old
	rewritten.Gen = "0a0b0c0d"
	errs := s.Commit(t.Context(), []ipam.Change{
		{Pool: nodeID, Address: nodeAt.Next(), After: &other, Overlap: true},
		{Pool: nodeID, Address: nodeAt, Before: &old, After: &rewritten, Overlap: true},
	})
	for i, err := range errs {
		if !errors.Is(err, ipam.ErrNoSlice) {
			t.Errorf("change %d answers %v", i, err)
		}
	}
	r := must(s.Reservation(t.Context(), nodeID.Network, nodeAt))(t)
	if r == nil || r.ContainerID != old.ContainerID {
		t.Errorf("the reservation of the record is %v", r)
	}
	errs = s.Commit(t.Context(), []ipam.Change{
		{Pool: nodeID, Address: nodeAt.Next(), After: &other, Overlap: true}, {Pool: nodeID, Address: nodeAt, Before: &old},
	})
	if !errors.Is(errs[0], ipam.ErrNoSlice) || errs[1] != nil {
		t.Errorf("a batch answers %v", errs)
	}
	snapshot := must(s.Snapshot(t.Context()))(t)
	if len(snapshot.Pools) != 1 || snapshot.Pools[0].ID != nodeID || !snapshot.Pools[0].Closed || len(snapshot.Pools[0].Records) > 0 || len(snapshot.Reservations) > 0 {
		t.Errorf("left is %+v", snapshot)
	}
}

// The test for the mark costs no request of its own.
func TestTakingIsOnePatch(t *testing.T) {
	cp := shared.ControlPlane(t)
	for name, id := range map[string]ipam.PoolID{"a node's": nodeID, "a whole range": {Range: nodeID.Range}} {
		t.Run(name, func(t *testing.T) {
			namespace, proxy := cp.Namespace(t), cp.Proxy(t)
			s := openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Via: proxy}))
			seeder{cp, namespace}.pool(t, id, testenv.Object{})
			must(s.Read(t.Context(), id))(t)
			proxy.ResetRequests()
			r := someone
			ok(t, errors.Join(s.Commit(t.Context(), []ipam.Change{{Pool: id, Address: nodeAt, After: &r}})...))
			if patches := proxy.Count(testenv.Match{Method: http.MethodPatch}); patches != 1 || proxy.Count(testenv.Match{}) != 1 {
				proxy.Log(t)
				t.Errorf("%d patches, want 1 and nothing else", patches)
			}
		})
	}
}

func TestNodePools(t *testing.T) {
	s, seed := sliceStore(t, shared.ControlPlane(t))
	ok(t, take(t, s, true))
	marked := ipam.PoolID{Network: "net", Node: "x", Range: netip.MustParsePrefix("10.5.2.0/24")}
	ok(t, s.CloseNodePool(t.Context(), kube.NodePool{ID: marked}))
	for _, id := range []ipam.PoolID{
		{Network: "net", Range: netip.MustParsePrefix("10.5.0.0/20")},
		{Network: "net", Node: "w", Range: netip.MustParsePrefix("10.6.1.0/24")},
		{Node: "w", Range: nodeID.Range},
		{Network: "other", Node: "w", Range: nodeID.Range},
	} {
		seed.pool(t, id, testenv.Object{})
	}
	got := map[slice.Key]slice.State{}
	for _, p := range must(s.NodePools(t.Context(), "net", netip.MustParsePrefix("10.5.0.0/20")))(t) {
		got[p.Key()] = p.State
		if now := must(s.NodePool(t.Context(), p.ID))(t); now.Version != p.Version || now.UID != p.UID {
			t.Errorf("%v is listed, but it is %v", p, now)
		}
	}
	if len(got) != 2 || got[slice.Key{Node: "w", Slice: nodeID.Range}] != slice.Unknown || got[slice.Key{Node: "x", Slice: marked.Range}] != slice.Closing {
		t.Errorf("pools are %v", got)
	}
}

// Only a pool that is marked, empty and as it was read is deleted.
func TestForgettingAPool(t *testing.T) {
	s, _ := sliceStore(t, shared.ControlPlane(t))
	ctx := t.Context()
	changed(t, "forgetting a pool that is not there", s.ForgetNodePool(ctx, must(s.NodePool(ctx, nodeID))(t)))
	ok(t, take(t, s, false))
	changed(t, "forgetting a pool in use", s.ForgetNodePool(ctx, state(t, s, slice.InUse)))
	ok(t, release(t, s))
	open := state(t, s, slice.Empty)
	changed(t, "forgetting an open pool", s.ForgetNodePool(ctx, open))
	ok(t, s.CloseNodePool(ctx, open))
	closing := state(t, s, slice.Closing)
	ok(t, s.SealNodePool(ctx, closing))
	changed(t, "forgetting by an old version", s.ForgetNodePool(ctx, closing))
	closed := state(t, s, slice.Closed)
	ok(t, s.ForgetNodePool(ctx, closed))
	if p := state(t, s, slice.Empty); p.Version != "" {
		t.Errorf("the object is there still: %v", p)
	}
	ok(t, s.ForgetNodePool(ctx, closed))
	ok(t, take(t, s, false))
}
