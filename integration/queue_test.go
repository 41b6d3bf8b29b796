package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// queued answers the files in the node's release queue.
func (n node) queued(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.stateDir, "releases"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// withoutServer runs f while the API server is away.
func (c *cluster) withoutServer(t testing.TB, f func()) {
	t.Helper()
	c.proxy.Down()
	f()
	if err := c.proxy.Up(); err != nil {
		t.Fatal(err)
	}
}

func TestDelWhileTheAPIServerIsAwayIsMadeUpForLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.19.0.0/24", "ipRanges": []Object{{"range": "fd00:19::/64"}}})
	n.add(t, pod("a"), config).gets(t, "10.19.0.1/24", "fd00:19::1/64")
	c.withoutServer(t, func() { n.del(t, pod("a"), config).ok(t) })
	c.holds(t, map[string]string{"10.19.0.0-24/1": "a-c1", "fd00-19---64/1": "a-c1"})
	queueIsPrivate(t, n)

	n.add(t, pod("b"), config).ok(t)
	for pool := range c.pools() {
		for key := range c.pools()[pool]["allocations"].(map[string]any) {
			if c.entry(pool, key).String("id") == "a-c1" {
				t.Errorf("%s/%s is still a's after the next call on the node", pool, key)
			}
		}
	}
	if left := n.queued(t); len(left) > 0 {
		t.Errorf("still queued: %v", left)
	}
	n.del(t, pod("b"), config).ok(t)
	c.empty(t)
}

func queueIsPrivate(t testing.TB, n node) {
	t.Helper()
	info, err := os.Stat(filepath.Join(n.stateDir, "releases"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("the release queue has mode %o, want 700", mode)
	}
	if len(n.queued(t)) == 0 {
		t.Error("nothing is queued")
	}
}

// A runtime that starts the same container again keeps its address: the queued
// release is of the time before.
func TestAddOfTheSameContainerOvertakesItsQueuedRelease(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]sandbox{"same container": pod("a"), "new container": pod("a").in("a-c2")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.ranged("10.19.0.0/24")
			n.add(t, pod("a"), config).gets(t, "10.19.0.1/24")
			c.withoutServer(t, func() { n.del(t, pod("a"), config).ok(t) })
			result := n.add(t, again, config).gets(t, "10.19.0.1/24").result
			n.add(t, pod("b"), config).gets(t, "10.19.0.2/24")
			n.check(t, again, config, result).ok(t)
			n.del(t, again, config).ok(t)
			n.del(t, pod("b"), config).ok(t)
			c.empty(t)
		})
	}
}

// In a full pool, too, where the queued release is all the room there is.
func TestQueuedReleaseMakesRoom(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]sandbox{"for a new container": pod("a").in("a-c2"), "for another pod": pod("b")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.ranged("10.19.0.7/32")
			n.add(t, pod("a"), config).gets(t, "10.19.0.7/32")
			c.withoutServer(t, func() { n.del(t, pod("a"), config).ok(t) })
			n.add(t, next, config).gets(t, "10.19.0.7/32")
			n.del(t, next, config).ok(t)
			c.empty(t)
		})
	}
}

// The address has a new holder by the time the queue is replayed.
func TestQueuedReleaseFreesNoNewerHolder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, elsewhere := newNode(t, "node-1"), newNode(t, "node-2")
	config := c.ranged("10.19.0.0/24")
	n.add(t, pod("a"), config).gets(t, "10.19.0.1/24")
	c.withoutServer(t, func() { n.del(t, pod("a"), config).ok(t) })
	elsewhere.add(t, pod("a"), config).gets(t, "10.19.0.1/24") // same container id, so that only gen tells
	n.add(t, pod("b"), config).gets(t, "10.19.0.2/24")
	c.holds(t, map[string]string{"10.19.0.0-24/1": "a-c1", "10.19.0.0-24/2": "b-c1"})
	elsewhere.del(t, pod("a"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)
	c.empty(t)
}

func TestDelFailsIfItsReleaseCannotBeKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	n.add(t, pod("a"), config).gets(t, "10.19.0.1/24")
	file := filepath.Join(n.stateDir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := n
	broken.stateDir = filepath.Join(file, "below") // cannot be made, not even by root
	c.withoutServer(t, func() { broken.del(t, pod("a"), config).fails(t, 11) })
	broken.add(t, pod("b"), config).gets(t, "10.19.0.2/24") // without the server away it does not matter
	broken.del(t, pod("b"), config).ok(t)
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}

func TestManyReleasesWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	distinct(t, atOnce(20, func(i int) answer { return n.add(t, name(i), config) }), nil)
	c.withoutServer(t, func() {
		for _, a := range atOnce(20, func(i int) answer { return n.del(t, name(i), config) }) {
			a.ok(t)
		}
	})
	n.add(t, pod("next"), config).ok(t)
	n.del(t, pod("next"), config).ok(t)
	c.empty(t)
	if left := n.queued(t); len(left) > 0 {
		t.Errorf("still queued: %v", left)
	}
}
