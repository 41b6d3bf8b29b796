package kube_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

var crowdedPool = ipam.PoolID{Network: "crowd", Range: netip.MustParsePrefix("10.0.0.0/24")}

const turnName = "crowd-10.0.0.0-24-turn"

// crowdObserver counts what the store says of crowds.
type crowdObserver struct{ crowded atomic.Int32 }

func (o *crowdObserver) Wrote(ipam.PoolID, ipam.Write) {}
func (o *crowdObserver) Crowded(ipam.PoolID)           { o.crowded.Add(1) }

func openObserved(t *testing.T, kubeconfig string) (*kube.Store, *crowdObserver) {
	t.Helper()
	client, err := kube.NewClient(kube.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	o := &crowdObserver{}
	store := kube.NewStore(client, o)
	t.Cleanup(func() { store.Close() })
	return store, o
}

func TestTurnIsOnesAtATime(t *testing.T) {
	t.Parallel()
	cp := shared.ControlPlane(t)
	kubeconfig := cp.Kubeconfig(t, testenv.Options{Namespace: cp.Namespace(t)})
	first, alone := openObserved(t, kubeconfig)
	second, met := openObserved(t, kubeconfig)
	done := first.Turn(t.Context(), crowdedPool, nil)
	first.Turn(t.Context(), crowdedPool, nil)() // asking twice neither waits nor ends the turn
	var working, beats atomic.Int32
	working.Store(1)
	over := make(chan bool)
	go func() {
		end := second.Turn(t.Context(), crowdedPool, func() { beats.Add(1) })
		over <- working.Load() == 0
		end()
		over <- true
	}()
	for beats.Load() < 3 {
		time.Sleep(5 * time.Millisecond)
	}
	working.Store(0)
	done()
	if !<-over {
		t.Error("it was two stores' turn at once")
	}
	<-over
	if alone.crowded.Load() != 0 || met.crowded.Load() == 0 {
		t.Errorf("a crowd was reported %d times by the first and %d times by the one that waited, want 0 and some",
			alone.crowded.Load(), met.crowded.Load())
	}
	snapshot, err := first.Snapshot(t.Context())
	if err != nil || len(snapshot.Reservations)+len(snapshot.Pools) != 0 {
		t.Errorf("left behind: %v, %v", snapshot, err)
	}
}

func TestTurnOfADeadNodeEnds(t *testing.T) {
	t.Parallel()
	cp := shared.ControlPlane(t)
	namespace := cp.Namespace(t)
	kubeconfig := cp.Kubeconfig(t, testenv.Options{Namespace: namespace})
	dead, _ := openObserved(t, kubeconfig)
	dead.Turn(t.Context(), crowdedPool, nil)
	if s, err := dead.Snapshot(t.Context()); err != nil || len(s.Reservations) != 0 || len(s.Turns) != 1 || s.Turns[0].Name != turnName {
		t.Errorf("a turn is not taken for one: %v, %v", s, err)
	}
	store, _ := openObserved(t, kubeconfig)
	end := store.Turn(t.Context(), crowdedPool, nil)
	path := resourcePath(namespace, "overlappingrangeipreservations", turnName)
	if code := statusOf(t, cp, path); code != http.StatusOK {
		t.Errorf("the turn of the one that waited: %d, want its object", code)
	}
	end()
	if code := statusOf(t, cp, path); code != http.StatusNotFound {
		t.Errorf("after its end: %d, want none", code)
	}
}

func TestTurnThatIsLeftIsRemovedExactly(t *testing.T) {
	t.Parallel()
	cp := shared.ControlPlane(t)
	namespace := cp.Namespace(t)
	store, _ := openObserved(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace}))
	store.Turn(t.Context(), crowdedPool, nil)
	path := resourcePath(namespace, "overlappingrangeipreservations", turnName)
	s, err := store.Snapshot(t.Context())
	if err != nil || len(s.Turns) != 1 || time.Since(s.Turns[0].Since).Abs() > time.Hour {
		t.Fatalf("turns are %v, %v", s, err)
	}
	left := s.Turns[0]
	another := left
	another.UID = "8a9e6a31-0d0b-4e3c-8ad2-5a3f1c1b7f00"
	if err := store.EndTurn(t.Context(), another); err != nil || statusOf(t, cp, path) != http.StatusOK {
		t.Errorf("another turn of the name was removed: %v", err)
	}
	for range 2 {
		if err := store.EndTurn(t.Context(), left); err != nil || statusOf(t, cp, path) != http.StatusNotFound {
			t.Errorf("the turn is left: %v", err)
		}
	}
}

func statusOf(t *testing.T, cp *testenv.ControlPlane, path string) int {
	t.Helper()
	err := cp.Client().Get(t.Context(), path, nil)
	if err == nil {
		return http.StatusOK
	}
	return testenv.StatusCode(err)
}

// Whatever happens to the turn, the write goes on.
func TestWriteDoesNotNeedATurn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		action testenv.Action
	}{
		{"no right to make one", testenv.Answer(http.StatusForbidden)},
		{"a server in trouble", testenv.Answer(http.StatusInternalServerError)},
		{"a lost answer", testenv.LoseAnswer()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cp := shared.ControlPlane(t)
			proxy, namespace := cp.Proxy(t), cp.Namespace(t)
			fault := proxy.Inject(testenv.Rule{Match: testenv.Match{Func: isTurn}, Action: tt.action})
			store, _ := openObserved(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Via: proxy}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			store.Turn(ctx, crowdedPool, nil)()
			r := ipam.Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a"}
			for statusOf(t, cp, resourcePath(namespace, "overlappingrangeipreservations", turnName)) != http.StatusNotFound {
				if wait(ctx) != nil {
					t.Fatal("a turn is left behind")
				}
			}
			errs := store.Commit(ctx, []ipam.Change{{Pool: crowdedPool, Address: netip.MustParseAddr("10.0.0.1"), After: &r}})
			if errs[0] != nil || fault.Hits() != 1 {
				t.Errorf("%v, with %d faults", errs[0], fault.Hits())
			}
		})
	}
}

func wait(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A server that says nothing costs a small part of the time that there is.
func TestTurnLeavesTimeWhereTheServerSaysNothing(t *testing.T) {
	t.Parallel()
	cp := shared.ControlPlane(t)
	proxy := cp.Proxy(t)
	proxy.Inject(testenv.Rule{Match: testenv.Match{}, Times: testenv.Always, Action: testenv.Hang()})
	store, _ := openObserved(t, cp.Kubeconfig(t, testenv.Options{Namespace: cp.Namespace(t), Via: proxy}))
	const given = 12 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	began := time.Now()
	store.Turn(ctx, crowdedPool, nil)()
	if took := time.Since(began); ctx.Err() != nil || took > given/2 {
		t.Errorf("of %s a turn took %s", given, took)
	}
}

func isTurn(r testenv.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/overlappingrangeipreservations")
}

// A server that gives up on a patch, since others write all the time, is asked again
// when it is our turn.
func TestBusyServerIsAskedInTurn(t *testing.T) {
	t.Parallel()
	cp := shared.ControlPlane(t)
	proxy := cp.Proxy(t)
	store, seen := openObserved(t, cp.Kubeconfig(t, testenv.Options{Namespace: cp.Namespace(t), Via: proxy}))
	a, b := ipam.Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a"}, ipam.Record{ContainerID: "c2", IfName: "net1", PodRef: "default/b"}
	take := func(address string, r *ipam.Record) error {
		return store.Commit(t.Context(), []ipam.Change{{Pool: crowdedPool, Address: netip.MustParseAddr(address), After: r}})[0]
	}
	if err := take("10.0.0.1", &a); err != nil {
		t.Fatal(err)
	}
	busy := proxy.Inject(testenv.Rule{Match: testenv.Match{Method: http.MethodPatch}, Action: testenv.Answer(http.StatusConflict)})
	if err := take("10.0.0.2", &b); err != nil {
		t.Error(err)
	}
	turns := proxy.Count(testenv.Match{Func: isTurn})
	if busy.Hits() != 1 || turns != 1 || seen.crowded.Load() == 0 {
		t.Errorf("after %d busy answers there were %d turns and %d reports of a crowd, want one and some", busy.Hits(), turns, seen.crowded.Load())
	}
}
