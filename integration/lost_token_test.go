package integration

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// lockQueue takes the node's lock as a working process would.
func lockQueue(t *testing.T, n node) *os.File {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(n.runDir, "queue-*"))
	if len(dirs) != 1 {
		t.Fatal("queues:", dirs)
	}
	f, err := os.OpenFile(filepath.Join(dirs[0], "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return f
}

func waiting(t *testing.T, n node, want int) {
	t.Helper()
	for range 500 {
		files, _ := filepath.Glob(filepath.Join(n.runDir, "queue-*", "*.request"))
		if len(files) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("requests do not appear")
}

// Two pods of one name in one batch; one of them asks again.
func TestTwoPodsOfOneNameInOneBatch(t *testing.T) {
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	old, reborn := pod("web-0").withUID("u1"), pod("web-0").withUID("u2").in("web-0-d1")
	n.add(t, old, config).gets(t, "10.19.0.1/24")
	lock := lockQueue(t, n)
	again := n.start(t, call{command: "ADD", sandbox: old, config: config})
	waiting(t, n, 1)
	other := n.start(t, call{command: "ADD", sandbox: reborn, config: config})
	waiting(t, n, 2)
	lock.Close()
	again.wait().gets(t, "10.19.0.1/24")
	other.wait().gets(t, "10.19.0.2/24")
	n.del(t, old, config).ok(t)
	c.holds(t, map[string]string{"10.19.0.0-24/2": "web-0-d1"})
	n.del(t, reborn, config).ok(t)
	c.empty(t)
}

// An ADD that asks again dies while another process carries it out.
func TestDelAfterAnAddAgainThatDied(t *testing.T) { addAgainDies(t, true) }

// An ADD that asks again dies just before its pool write.
func TestDelAfterAnAddAgainThatDiedBeforeItsWrite(t *testing.T) { addAgainDies(t, false) }

func addAgainDies(t *testing.T, byOther bool) {
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.19.0.0/24")
	n.add(t, pod("a"), config).gets(t, "10.19.0.1/24")
	ask := call{command: "ADD", sandbox: pod("a"), config: config}
	lock := lockQueue(t, n)
	var again, other *process
	if byOther {
		other = n.start(t, call{command: "ADD", sandbox: pod("b"), config: config})
		waiting(t, n, 1)
		again = n.start(t, ask)
		waiting(t, n, 2)
	} else {
		again = n.start(t, ask)
		waiting(t, n, 1)
	}
	kill := func(testenv.Request) { again.kill(); again.wait() }
	action := testenv.Before(kill)
	if !byOther {
		action = testenv.Refuse().WithBefore(kill)
	}
	c.proxy.Inject(testenv.Rule{Match: testenv.Match{Method: "PATCH", Path: "/ippools/"}, Action: action})
	lock.Close()
	if other != nil {
		other.wait().ok(t)
	} else {
		time.Sleep(2 * time.Second)
	}
	n.del(t, pod("a"), config).ok(t)
	if other != nil {
		n.del(t, pod("b"), config).ok(t)
	}
	c.empty(t)
}
