package kube

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

func testSnapshots(s *scene) {
	s.watch()
	slice := ipam.PoolID{Network: "a-b", Node: "n1", Range: netip.MustParsePrefix("10.4.0.64/26")}
	bare := poolOf("red", "", "10.5.0.0/24")
	s.take(slice, "10.4.0.65", "p1", true)
	taken := s.take(bare, "10.5.0.1", "p2", false)
	s.eventually("the reservation", func() bool { return len(s.snapshot(s.watcher.Fresh).Reservations) == 1 })
	s.eventually("the pools", func() bool { return len(s.snapshot(s.watcher.Fresh).Pools) >= 2 })
	picture, err := ReadCluster(s.Context(), s.client, []byte("{}"))
	if err != nil {
		s.Fatal(err)
	}
	one, err := NewStore(s.client, nil).Snapshot(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for name, snapshot := range map[string]*ipam.Snapshot{
		"watcher": s.snapshot(s.watcher.Fresh), "picture": s.snapshot(picture.Snapshots), "store": one,
	} {
		for id, uid := range map[ipam.PoolID]string{slice: "u-p1", bare: "u-p2"} {
			if got := uidsIn(snapshot, id); len(got) != 1 || got[0] != uid {
				s.Errorf("%s: got UIDs %q in %s, want %q", name, got, id, uid)
			}
		}
	}
	testRereads(s, bare, taken)
}

func uidsIn(s *ipam.Snapshot, id ipam.PoolID) (uids []string) {
	for _, pool := range s.Pools {
		if pool.ID == id {
			for _, r := range pool.Records {
				uids = append(uids, r.UID)
			}
		}
	}
	return uids
}

// testRereads checks which pools are read when.
func testRereads(s *scene, pool ipam.PoolID, taken ipam.Change) {
	s.Helper()
	clock := time.Now().Add(time.Hour)
	s.watcher.now = func() time.Time { return clock }
	reads := func() int {
		return s.proxy.Count(testenv.Match{Method: http.MethodGet, Path: "/namespaces/.*/ippools/"})
	}
	full := s.proxy.Count(testenv.Match{Path: "/ippools$", Func: func(r testenv.Request) bool {
		return !bytes.Contains([]byte(r.Header.Get("Accept")), []byte("PartialObjectMetadata"))
	}})
	if full != 0 {
		s.Errorf("%d requests stream whole pools", full)
	}
	s.snapshot(s.watcher.Fresh)
	s.proxy.ResetRequests()
	before := s.snapshot(s.watcher.Snapshots)
	if n := reads(); n != 0 {
		s.Errorf("%d pools are read although none has changed", n)
	}
	s.commit(ipam.Change{Pool: pool, Address: taken.Address, Before: taken.After})
	s.eventually("the change of a pool", func() bool { return len(uidsIn(s.snapshot(s.watcher.Fresh), pool)) == 0 })
	if got := uidsIn(before, pool); len(got) != 1 {
		s.Errorf("a snapshot changes after it was given: %q", got)
	}
	if n := reads(); n != 1 {
		s.Errorf("%d pools are read after one has changed", n)
	}
	s.take(pool, "10.5.0.2", "p3", false)
	version := s.cp.Must(s).Get("/apis/"+apiVersion+"/namespaces/"+s.namespace+"/ippools/"+PoolName(pool)).String("metadata", "resourceVersion")
	s.eventually("the head of the pool", func() bool {
		head, _ := s.watcher.heads.get(s.namespace, PoolName(pool))
		return head == version
	})
	if got := uidsIn(s.snapshot(s.watcher.Snapshots), pool); len(got) != 0 {
		s.Errorf("a pool is read twice within %s: %q", rereadAfter, got)
	}
	clock = clock.Add(rereadAfter)
	if got := uidsIn(s.snapshot(s.watcher.Snapshots), pool); len(got) != 1 {
		s.Errorf("a pool is not read again after %s: %q", rereadAfter, got)
	}
}

func testUnreadablePool(s *scene) {
	s.watch()
	s.take(poolOf("", "", "10.6.0.0/24"), "10.6.0.1", "p", false)
	s.eventually("the pool", func() bool { _, ok := s.watcher.heads.get(s.namespace, "10.6.0.0-24"); return ok })
	s.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Path: "/namespaces/.*/ippools/10.6"}, Times: testenv.Always,
		Action: testenv.Answer(http.StatusForbidden),
	})
	all, err := s.watcher.Snapshots(s.Context())
	if err == nil || all[s.namespace] != nil {
		s.Errorf("got %+v, %v for a namespace with a pool that cannot be read", all[s.namespace], err)
	}
	s.cp.Must(s).Delete("/apis/" + apiVersion + "/namespaces/" + s.namespace + "/ippools/10.6.0.0-24")
	s.eventually("the namespace without the pool", func() bool {
		all, err := s.watcher.Snapshots(s.Context())
		return err == nil && all[s.namespace] != nil
	})
}

// Thousands of pools are not read one by one when a watcher starts.
func TestManyPoolsAreListed(t *testing.T) {
	lists, reads, present := 0, 0, manyPools+5
	w := NewWatcher(clientOf(t, func(out http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/"+poolResource) {
			reads++
			writePool(out, 1)
			return
		}
		lists++
		fmt.Fprint(out, `{"metadata":{},"items":[`)
		for i := range present {
			if i > 0 {
				fmt.Fprint(out, ",")
			}
			writePool(out, i)
		}
		fmt.Fprint(out, "]}")
	}), nil)
	heads := func(n int) {
		w.heads.begin()
		for i := range n {
			w.heads.put(&poolHead{Metadata: objectMeta{Namespace: "kube-system", Name: fmt.Sprintf("10.0.%d.0-24", i), ResourceVersion: "1"}})
		}
		w.heads.end()
	}
	look := func() {
		t.Helper()
		if failed, err := w.reread(t.Context(), 0); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
	}
	heads(present)
	look()
	if len(w.contents) != present || lists != 1 || reads != 0 {
		t.Errorf("%d pools known after %d lists and %d reads", len(w.contents), lists, reads)
	}
	w.contents[objectKey{"kube-system", "10.0.1.0-24"}].stored.version = "0"
	look()
	if lists != 1 || reads != 1 {
		t.Errorf("after the change of one pool: %d lists and %d reads", lists, reads)
	}
	heads(3)
	look()
	if len(w.contents) != 3 {
		t.Errorf("%d pools are known, 3 are left", len(w.contents))
	}
	// The list may be newer than what the watch shows.
	w.contents, present = map[objectKey]*poolContent{}, manyPools
	heads(manyPools + 5)
	look()
	if len(w.contents) != manyPools {
		t.Errorf("%d pools are known, the list has %d", len(w.contents), manyPools)
	}
}

// A pool that changed just after it was read is not forgotten: when it may be read
// again there is a signal, though nothing else happens.
func TestAPoolLeftOutIsLookedAtLater(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &Watcher{contents: map[objectKey]*poolContent{}, now: func() time.Time { return now }}
	for name, age := range map[string]time.Duration{"old": 2 * time.Second, "new": time.Second / 2, "newer": time.Second / 4} {
		w.contents[objectKey{name: name}] = &poolContent{stored: &storedPool{version: "1"}, at: now.Add(-age)}
	}
	for _, test := range []struct {
		heads map[objectKey]string
		stale int
		next  time.Duration
	}{
		{map[objectKey]string{{name: "new"}: "1"}, 0, 0},
		{map[objectKey]string{{name: "old"}: "2"}, 1, 0},
		{map[objectKey]string{{name: "unread"}: "1"}, 1, 0},
		{map[objectKey]string{{name: "new"}: "2"}, 0, 3 * time.Second / 2},
		{map[objectKey]string{{name: "old"}: "2", {name: "new"}: "2", {name: "newer"}: "2"}, 1, 7 * time.Second / 4},
	} {
		stale, next := w.stale(test.heads, 2*time.Second)
		if len(stale) != test.stale || next != test.next {
			t.Errorf("%v: %d to be read, the next after %s; want %d and %s", test.heads, len(stale), next, test.stale, test.next)
		}
	}
}
