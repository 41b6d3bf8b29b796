package commands

import (
	"path/filepath"
	"testing"
)

const oneRange = `"range": "10.0.0.0/24"`

func TestDelThatOvertakesItsAddLeavesNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("other", "10.0.0.1")
	goOn := h.holdUp()
	add := h.startWaiting("ADD", "c")
	del := h.startWaiting("DEL", "c")
	goOn()
	add.fails(11, "released")
	del.ok()
	h.holds("10.0.0.1", "other")
	h.add("c", "10.0.0.2") // started again
}

// The DEL cannot wait any longer and queues its release. The ADD, which comes late,
// must not get an address.
func TestDelThatGivesUpStillStopsItsAdd(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("other", "10.0.0.1")
	goOn := h.holdUp()
	add := h.startWaiting("ADD", "c")
	h.startWaiting("DEL", "c").ok()
	goOn()
	add.fails(11, "released")
	h.holds("10.0.0.1", "other")
}

// The container has an address, its runtime asks again and then gives up on it. The
// release waits in the queue when the second ADD gets its turn.
func TestLateAddDoesNotDropTheReleaseThatStoppedIt(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("c", "10.0.0.1")
	goOn := h.holdUp()
	add := h.startWaiting("ADD", "c")
	h.startWaiting("DEL", "c").ok()
	if len(h.queued()) != 1 {
		t.Fatalf("queued: %v", h.queued())
	}
	goOn()
	add.fails(11, "released")
	h.del("nobody") // the next call on the node
	h.holds()
}

// The DEL comes while the ADD is being carried out.
func TestDelDuringItsAddLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"first ADD": false, "ADD again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, oneRange)
			h.add("other", "10.0.0.1")
			if before {
				h.add("c", "10.0.0.2")
			}
			release := h.occupyStore()
			goOn := h.holdUp()
			waiting := h.startWaiting("ADD", "c")
			goOn()
			h.waitFor("the ADD to be at work", func() bool { return len(h.glob(h.queue(), "*.request")) == 0 })
			del := h.startWaiting("DEL", "c")
			release()
			waiting.fails(11, "released")
			del.ok()
			h.holds("10.0.0.1", "other")
		})
	}
}

// An ADD that fails in one range must not keep its container's DEL from finding
// what an earlier ADD got in another.
func TestDelAfterAnAddThatFailedTheSecondTime(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("c", "10.0.0.1")
	both := h.configOf(`"range": "10.0.0.0/24", "ipRanges": [{"range": "10.1.0.1/32"}]`)
	h.startWith(both, "ADD", "other").gets("10.0.0.2", "10.1.0.1")
	h.startWith(both, "ADD", "c").fails(11, "10.1.0.1/32")
	h.startWith(both, "DEL", "c").ok()
	h.holds("10.0.0.2", "other", "10.1.0.1", "other")
}

func TestRestartedContainerGetsAnAddress(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("c", "10.0.0.1")
	h.del("c")
	h.holds()
	h.add("c", "10.0.0.1")
	h.holds("10.0.0.1", "c")
}

// Two processes ask for the same container at once: both get what it holds.
func TestSameContainerTwiceAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("other", "10.0.0.1")
	goOn := h.holdUp()
	first, second := h.startWaiting("ADD", "c"), h.startWaiting("ADD", "c")
	goOn()
	first.gets("10.0.0.2")
	second.gets("10.0.0.2")
	h.holds("10.0.0.1", "other", "10.0.0.2", "c")
	h.add("next", "10.0.0.3")
	h.del("c")
	h.holds("10.0.0.1", "other", "10.0.0.3", "next")
}

// A sandbox of a pod is made anew while the ADD of the first one still waits. The
// pod keeps one address, and it is recorded.
func TestTwoContainersOfAPodAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("other", "10.0.0.1")
	h.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=uid"
	goOn := h.holdUp()
	first, second := h.startWaiting("ADD", "c1"), h.startWaiting("ADD", "c2")
	goOn()
	first.gets("10.0.0.2")
	second.gets("10.0.0.2")
	if held := h.stored(); len(held) != 2 || held["10.0.0.2"] == "" {
		t.Errorf("held: %v, want 10.0.0.1 and 10.0.0.2", held)
	}
}

// The process that works is killed. Those that wait go on without it.
func TestKilledAtWork(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("other", "10.0.0.1")
	queue := h.queue()
	release := h.occupyStore()
	working := h.start("ADD", "killed")
	h.waitFor("the first to work", func() bool { return h.locked(filepath.Join(queue, "lock")) })
	var waiting []*plugin
	for i := range 5 {
		waiting = append(waiting, h.startWaiting("ADD", containerName(i)))
	}
	working.kill()
	release()
	want := []string{"10.0.0.1", "other"}
	for i, p := range waiting {
		if got := p.addresses(); len(got) == 1 {
			want = append(want, got[0], containerName(i))
		}
	}
	h.holds(want...)
}
