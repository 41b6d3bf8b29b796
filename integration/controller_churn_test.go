package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Two controllers are killed again and again while nodes and networks come and go. Pods
// on the nodes that stay must keep their slices, and in the end all is as if nothing had
// happened.
func TestControllersThatAreKilled(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	network := s.sliced("storage", "10.5.0.0/23", "/27", nil) // 16 slices
	s.define("default", "storage", network)
	s.addNodes("stays-0", "stays-1", "stays-2")
	replicas := []*controller{s.control(), s.control()}
	held := map[string]string{}
	for _, name := range []string{"stays-0", "stays-1", "stays-2"} {
		s.sliceOf("storage", name)
		newNode(t, name).add(t, pod("pod-of-"+name), network).ok(t)
		held[name] = s.sliceOf("storage", name)
	}
	there := map[string]bool{}
	transient := map[string]node{}
	for step := range 24 {
		name := fmt.Sprint("node-", random.IntN(8))
		if there[name] {
			s.removeNode(name)
		} else {
			s.addNodes(name)
		}
		there[name] = !there[name]
		if _, known := transient[name]; !known {
			transient[name] = newNode(t, name)
		}
		// A pod that comes and goes, on a node that may have its slice or not.
		n, p := transient[name], pod(fmt.Sprint("p", step))
		if n.add(t, p, network).exit == 0 && random.IntN(3) > 0 {
			n.del(t, p, network).ok(t)
		}
		if step%6 == 3 {
			s.undefine("default", "storage")
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			s.define("default", "storage", network)
		}
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
		i := random.IntN(2)
		replicas[i].kill()
		replicas[i] = s.control()
		for name, part := range held {
			if owners := s.ownersOf("storage"); len(owners) > 0 && owners[part] != "" && owners[part] != name {
				t.Fatalf("slice %s of %s, which is in use, is now that of %s", part, name, owners[part])
			}
		}
		s.disjoint("storage")
	}
	for name := range there {
		if !there[name] {
			s.addNodes(name)
		}
		there[name] = true
	}
	for name := range there {
		s.sliceOf("storage", name)
		transient[name].add(t, pod("last-on-"+name), network).ok(t)
	}
	for name, part := range held {
		if got := s.ownersOf("storage")[part]; got != name {
			t.Errorf("slice %s of %s is that of %q", part, name, got)
		}
	}
	s.quiet()
	s.disjoint("storage")
}

// disjoint fails the test if pools of two nodes hold records for one slice.
func (s *sliceScene) disjoint(list string) {
	s.t.Helper()
	of := map[string]string{}
	for name, pool := range s.pools() {
		allocations, _ := pool["allocations"].(map[string]any)
		part := pool.String("range")
		if len(allocations) == 0 {
			continue
		}
		if other := of[part]; other != "" {
			s.t.Errorf("pools %s and %s both hold records in slice %s of %s", other, name, part, list)
		}
		of[part] = name
	}
}

// A plugin that is held between reading its slice and writing its address gets none once
// the slice was taken away meanwhile.
func TestPluginThatIsLateGetsNoAddressFromALostSlice(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	// Reservations would protect the address too; this is about the slice.
	network := s.sliced("storage", "10.5.0.0/26", "/27", Object{"enable_overlapping_ranges": false})
	s.unprotected = true
	s.define("default", "storage", network)
	s.control()
	s.settled("storage", "10.5.0.0/27=node-a", "10.5.0.32/27=node-b")
	reached, resume := make(chan struct{}), make(chan struct{})
	s.proxy.Inject(testenv.Rule{
		Match:  testenv.Match{Method: http.MethodPost, Path: "/ippools$"},
		Action: testenv.Before(func(testenv.Request) { close(reached); <-resume }),
	})
	late := newNode(t, "node-a").start(t, call{command: "ADD", sandbox: pod("late"), config: network})
	<-reached
	s.removeNode("node-a")
	s.addNodes("node-c")
	s.settled("storage", "10.5.0.0/27=node-c", "10.5.0.32/27=node-b")
	newNode(t, "node-c").add(t, pod("next"), network).gets(t, "10.5.0.1/26")
	close(resume)
	text := late.wait().fails(t, 11)
	if !strings.Contains(text, "node-a") {
		t.Errorf("the late plugin is told %q", text)
	}
	s.holds(t, map[string]string{"node-c-10.5.0.0-27/1": "next-c1"})
}
