package etcd

import (
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

// held holds a change back on its way: its sender has given up when this returns, and
// send lets it arrive and waits for that.
func held(t *testing.T, cluster *testenv.Etcd, c ipam.Change) (send func()) {
	proxy := cluster.Members[0].Proxy(t)
	s := openThrough(t, proxy)
	if c.Before == nil {
		if _, err := s.Read(t.Context(), c.Pool); err != nil { // as an ADD does before it chooses
			t.Fatal(err)
		}
	}
	hold, arrived := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{})
	proxy.Inject(testenv.Rule{
		Match: testenv.Match{Func: isWrite},
		Action: testenv.Before(func(testenv.Request) { close(begun); <-hold }).
			WithAfter(func(testenv.Request) { close(arrived) }).Detached(),
	})
	go func() { _ = s.Commit(t.Context(), []ipam.Change{c}) }()
	<-begun
	proxy.Inject(testenv.Rule{Times: testenv.Always, Action: testenv.Refuse()}) // no other attempt
	return func() {
		close(hold)
		select {
		case <-arrived:
		case <-time.After(time.Minute):
			t.Error("the change does not arrive")
		}
	}
}

func lateRecord(container string) ipam.Record {
	return ipam.NewRecord(ipam.Owner{ContainerID: container, IfName: "net1", PodRef: "default/a", UID: "uid"}, time.Now())
}

func TestWritesThatArriveAfterTheRelease(t *testing.T) {
	cluster := testenv.StartEtcd(t, 1)
	s := open(t, cluster.Endpoints())
	id := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}
	commit := func(c ipam.Change) {
		t.Helper()
		if err := s.Commit(t.Context(), []ipam.Change{c})[0]; err != nil {
			t.Fatal(err)
		}
	}
	change := func(i byte, before, after *ipam.Record) ipam.Change {
		return ipam.Change{Pool: id, Address: netip.AddrFrom4([4]byte{10, 0, 0, i}), Before: before, After: after, Overlap: true}
	}
	first, mine, other := lateRecord("first"), lateRecord("mine"), lateRecord("other")

	t.Run("a take", func(t *testing.T) {
		send := held(t, cluster, change(1, nil, &mine))
		commit(change(1, &mine, nil)) // finds nothing
		send()
		s.wants(t, id, 1, "")
	})
	t.Run("a take that was tried twice", func(t *testing.T) {
		send := held(t, cluster, change(2, nil, &mine))
		commit(change(2, nil, &mine))
		commit(change(2, &mine, nil))
		send()
		s.wants(t, id, 2, "")
	})
	t.Run("an adoption", func(t *testing.T) {
		commit(change(3, nil, &first))
		send := held(t, cluster, change(3, &first, &mine))
		commit(change(3, &mine, nil)) // leaves the first container's
		send()
		s.wants(t, id, 3, "first")
	})
	t.Run("a take, but it was another container that was released", func(t *testing.T) {
		send := held(t, cluster, change(4, nil, &mine))
		commit(change(4, &other, nil))
		send()
		s.wants(t, id, 4, "mine")
	})
	t.Run("a take for a container that begins again", func(t *testing.T) {
		commit(change(5, &mine, nil))
		commit(change(5, nil, &mine))
		s.wants(t, id, 5, "mine")
	})
}

// wants wants an address to be held by a container; "" is nobody.
func (s *Store) wants(t *testing.T, id ipam.PoolID, last byte, container string) {
	t.Helper()
	a := netip.AddrFrom4([4]byte{10, 0, 0, last})
	pool, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got := pool.Records[a].ContainerID; got != container {
		t.Errorf("%s is held by %q, want %q", a, got, container)
	}
	r, err := s.Reservation(t.Context(), "", a)
	if err != nil || (r != nil) != (container != "") {
		t.Errorf("the reservation of %s is %v, %v", a, r, err)
	}
}
