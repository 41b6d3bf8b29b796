package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// scale is how many nodes and networks the test of many has: few unless somebody asks
// for the cluster that the manual promises.
func scale() (nodes, networks, beats int) {
	if os.Getenv("WHEREABOUTS_TEST_SCALE") != "" {
		return 1000, 20, 5
	}
	return 60, 4, 3
}

// together calls f for 0 to n-1, some at a time.
func together(n int, f func(i int)) {
	work := make(chan int)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for i := range work {
				f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// beat is what a kubelet writes into the status of its node again and again.
func (s *sliceScene) beat(nodes, round int) {
	s.t.Helper()
	together(nodes, func(i int) {
		err := s.cp.Client().Patch(s.t.Context(), "/api/v1/nodes/"+nodeName(i)+"/status", testenv.MergePatch, Object{"status": Object{
			"conditions": []Object{{"type": "Ready", "status": "True", "reason": fmt.Sprint("round", round), "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)}},
		}}, nil)
		if err != nil {
			s.t.Error(err)
		}
	})
}

func TestControllerAtRest(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	nodes, networks, beats := scale()
	together(nodes, func(i int) {
		if err := s.cp.Client().Create(t.Context(), "/api/v1/nodes", Object{"metadata": Object{"name": nodeName(i)}}, nil); err != nil {
			t.Error(err)
		}
	})
	for i := range networks {
		name := fmt.Sprintf("net-%d", i)
		s.define("default", name, s.sliced(name, fmt.Sprintf("10.%d.0.0/16", 100+i), "/26", nil))
	}
	huge := s.sliced("huge", "10.0.0.0/8", "/27", nil)
	s.define("default", "huge", huge)
	began := time.Now()
	s.control()
	s.control() // two, as the manifest has it
	lists := []string{"huge"}
	for i := range networks {
		lists = append(lists, fmt.Sprintf("net-%d", i))
	}
	for _, list := range lists {
		s.eventually("all nodes have a slice of "+list, func() bool { return len(s.ownersOf(list)) == nodes })
	}
	t.Logf("%d nodes and %d networks after %v, with %d writes", nodes, networks+1, time.Since(began), s.watched.Count(writes()))
	s.quiet()

	before := s.watched.Count(testenv.Match{})
	for round := range beats {
		s.beat(nodes, round)
		time.Sleep(time.Second)
	}
	quietly := testenv.Match{Func: func(r testenv.Request) bool { return r.Query.Get("watch") == "" }}
	after := s.watched.Find(quietly)
	if n := s.watched.Count(testenv.Match{}); n > before {
		for _, r := range after[max(0, len(after)-(n-before)):] {
			t.Errorf("heart-beats cause a request: %v", r)
		}
	}
	for _, object := range s.cp.Must(t).List(s.path("nodeslicepools")) {
		if size := len(encode(t, object)); size > 1<<20 {
			t.Errorf("slice pool %s has %d bytes", object.Name(), size)
		}
	}
	for i := range nodes - 1 {
		if !slices.Contains(s.slicesOf("huge")[:nodes], fmt.Sprintf("10.0.%d.%d/27=%s", i/8, i%8*32, ownerAt(s.slicesOf("huge"), i))) {
			t.Fatal("the lowest slices of the largest network are not the ones that are given out")
		}
		if i > 8 {
			break
		}
	}
	newNode(t, nodeName(3)).add(t, pod("p"), huge).ok(t)
}

func ownerAt(list []string, i int) string {
	_, owner, _ := strings.Cut(list[i], "=")
	return owner
}
