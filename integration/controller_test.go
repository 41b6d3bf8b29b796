package integration

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sliced is a network that is cut into slices.
func (s *sliceScene) sliced(name, r, size string, more Object) Object {
	config := s.cluster.config(name, Object{"range": r, "node_slice_size": size})
	return withIPAM(config, more)
}

func TestControllerGivesNodesTheirSlices(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	manual := s.sliced("whereaboutsexample", "10.5.0.0/20", "/24", nil)
	s.define("default", "whereaboutsexample", manual)
	bounded := s.sliced("bounded", "10.6.0.0/22", "24", Object{"range_start": "10.6.1.10", "exclude": []string{"10.6.2.0/24"}})
	s.define("default", "bounded", bounded)
	shared := s.sliced("list-name", "10.7.0.0/23", "/24", Object{"network_name": "shared"})
	s.define("default", "shared-one", shared)
	s.define(s.namespace, "shared-two", Object{"cniVersion": "1.0.0", "name": "another-list", "plugins": []any{
		Object{"type": "tuning"}, shared,
	}})
	dual := withIPAM(s.sliced("dual", "10.8.0.0/20", "/24", nil), Object{
		"ipRanges": []Object{{"range": "fd00:8::/64", "node_slice_size": "/80", "range_start": "fd00:8::5"}},
	})
	s.define("default", "dual", dual)
	s.control()

	for _, node := range []string{"node-a", "node-b"} {
		s.sliceOf("whereaboutsexample", node)
	}
	want := []string{"10.5.0.0/24=node-a", "10.5.1.0/24=node-b"}
	for i := 2; i < 16; i++ {
		want = append(want, fmt.Sprintf("10.5.%d.0/24=", i))
	}
	s.settled("whereaboutsexample", want...)
	s.settled("bounded", "10.6.1.0/24=node-a", "10.6.3.0/24=node-b")
	s.settled("shared", "10.7.0.0/24=node-a", "10.7.1.0/24=node-b")

	a, b := newNode(t, "node-a"), newNode(t, "node-b")
	a.add(t, pod("p1"), manual).gets(t, "10.5.0.1/20")
	a.add(t, pod("p2"), manual).gets(t, "10.5.0.2/20")
	b.add(t, pod("p3"), manual).gets(t, "10.5.1.1/20")
	a.add(t, pod("p4"), bounded).gets(t, "10.6.1.10/22")
	b.add(t, pod("p5"), bounded).gets(t, "10.6.3.1/22")
	b.add(t, pod("p6"), shared).gets(t, "10.7.1.1/23")
	a.add(t, pod("p8"), dual).gets(t, "10.8.0.1/20", "fd00:8::5/64")
	b.add(t, pod("p9"), dual).gets(t, "10.8.1.1/20", "fd00:8:0:0:1::/64")
	text := newNode(t, "node-c").add(t, pod("p7"), manual).fails(t, 11)
	if !strings.Contains(text, "node-c") || !strings.Contains(text, "whereaboutsexample") {
		t.Errorf("a node without a slice is told %q", text)
	}
	s.addNodes("node-c")
	s.eventually("an event about the full networks", func() bool { return len(s.warnings("default", "bounded")) > 0 })
	if text := s.warnings("default", "bounded")[0]; !strings.Contains(text, "node-c") || !strings.Contains(text, "10.6.0.0/22") {
		t.Errorf("the event says %q", text)
	}
	s.sliceOf("whereaboutsexample", "node-c")
	newNode(t, "node-c").add(t, pod("p7"), manual).gets(t, "10.5.2.1/20")
	s.eventually("the status of both networks says so", func() bool {
		return s.summaryOf("bounded") == "2 slices, 2 assigned, 0 free, 1 waiting, NodesServed=False, DefinitionsValid=True" &&
			s.summaryOf("whereaboutsexample") == "16 slices, 3 assigned, 13 free, 0 waiting, NodesServed=True, DefinitionsValid=True"
	})
	if again := s.warnings("default", "whereaboutsexample"); len(again) > 0 {
		t.Errorf("a good definition is warned about: %q", again)
	}
}

func TestControllerLetsGoOfSlicesThatAreEmpty(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	network := s.sliced("storage", "10.5.0.0/25", "/26", nil)
	s.define("default", "storage", network)
	s.control()
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b")
	a, b := newNode(t, "node-a"), newNode(t, "node-b")
	a.add(t, pod("p1"), network).gets(t, "10.5.0.1/25")
	b.add(t, pod("p2"), network).gets(t, "10.5.0.64/25")

	s.removeNode("node-a")
	s.addNodes("node-c")
	s.eventually("a warning that node-c has no slice", func() bool { return len(s.warnings("default", "storage")) > 0 })
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b")
	a.del(t, pod("p1"), network).ok(t)
	s.settled("storage", "10.5.0.0/26=node-c", "10.5.0.64/26=node-b")
	a.add(t, pod("p3"), network).fails(t, 11)
	newNode(t, "node-c").add(t, pod("p4"), network).gets(t, "10.5.0.1/25")

	s.undefine("default", "storage")
	b.del(t, pod("p2"), network).ok(t)
	s.settled("storage", "10.5.0.0/26=node-c")
	s.define("default", "storage", network)
	s.settled("storage", "10.5.0.0/26=node-c", "10.5.0.64/26=node-b")
	b.add(t, pod("p5"), network).gets(t, "10.5.0.64/25")

	s.undefine("default", "storage")
	b.del(t, pod("p5"), network).ok(t)
	newNode(t, "node-c").del(t, pod("p4"), network).ok(t)
	s.eventually("the empty list is deleted", func() bool { return s.slicesOf("storage") == nil })
}

func TestControllerFollowsChanges(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	network := s.sliced("storage", "10.5.0.0/24", "/26", nil)
	s.define("default", "storage", network)
	s.control()
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b", "10.5.0.128/26=", "10.5.0.192/26=")
	a := newNode(t, "node-a")
	a.add(t, pod("p1"), network).gets(t, "10.5.0.1/24")

	// The slice in use stays as it is; the other node moves to one of the new size.
	smaller := withIPAM(network, Object{"node_slice_size": "/27"})
	s.redefine("default", "storage", smaller)
	s.eventually("node-b has a slice of the new size", func() bool {
		return slices.Contains(s.slicesOf("storage"), "10.5.0.64/27=node-b")
	})
	s.quiet()
	if got := s.ownersOf("storage"); got["10.5.0.0/26"] != "node-a" {
		t.Fatalf("the slice in use has moved: %v", got)
	}

	// A list that is lost is made again from the pools.
	s.cp.Must(t).Delete(s.path("nodeslicepools") + "/storage")
	s.eventually("node-a has its slice again", func() bool { return s.ownersOf("storage")["10.5.0.0/26"] == "node-a" })

	a.del(t, pod("p1"), smaller).ok(t)
	s.eventually("node-a moves, too", func() bool {
		return !slices.Contains(s.slicesOf("storage"), "10.5.0.0/26=node-a") && s.sliceOf("storage", "node-a") != ""
	})

	// With a broken definition everything stays.
	before := s.slicesOf("storage")
	s.redefine("default", "storage", strings.Replace(string(encode(t, smaller)), `"ipam"`, `ipam`, 1))
	s.eventually("a warning", func() bool { return len(s.warnings("default", "storage")) > 0 })
	s.eventually("the status says so", func() bool { return strings.HasSuffix(s.summaryOf("storage"), "DefinitionsValid=False") })
	s.quiet()
	s.settled("storage", before...)
}

func TestControllerGrowsSlices(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a", "node-b")
	network := s.sliced("storage", "10.5.0.0/28", "/30", Object{"node_slice_max": 2, "allow_dot_zero": true})
	s.define("default", "storage", network)
	s.control()
	s.settled("storage", "10.5.0.0/30=node-a", "10.5.0.4/30=node-b", "10.5.0.8/30=", "10.5.0.12/30=")
	a := newNode(t, "node-a")
	for i, address := range []string{"10.5.0.1/28", "10.5.0.2/28", "10.5.0.3/28"} {
		a.add(t, pod(fmt.Sprint("p", i)), network).gets(t, address)
	}
	s.settled("storage", "10.5.0.0/30=node-a", "10.5.0.4/30=node-b", "10.5.0.8/30=node-a", "10.5.0.12/30=")
	a.add(t, pod("p3"), network).gets(t, "10.5.0.8/28")
	a.del(t, pod("p3"), network).ok(t)
	a.del(t, pod("p2"), network).ok(t)
	a.del(t, pod("p1"), network).ok(t)
	s.settled("storage", "10.5.0.0/30=node-a", "10.5.0.4/30=node-b", "10.5.0.8/30=", "10.5.0.12/30=")
}

func TestControllerLeavesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a")
	s.define("default", "storage", s.sliced("storage", "10.5.0.0/24", "/26", nil))
	r := s.control()
	s.sliceOf("storage", "node-a")
	began := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.log.String())
	}
	t.Logf("it took %v", time.Since(began))
}

// The resource definitions of old versions drop what the status says to people.
func TestControllerWithOldResourceDefinitions(t *testing.T) {
	t.Parallel()
	s := newSliceSceneOn(t, oldControlPlane(t))
	s.addNodes("node-a", "node-b")
	network := s.sliced("storage", "10.5.0.0/25", "/26", nil)
	s.define("default", "storage", network)
	s.control()
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-b")
	a := newNode(t, "node-a")
	a.add(t, pod("p"), network).gets(t, "10.5.0.1/25")
	s.addNodes("node-c")
	s.eventually("a warning that node-c has no slice", func() bool { return len(s.warnings("default", "storage")) > 0 })
	s.removeNode("node-b")
	s.settled("storage", "10.5.0.0/26=node-a", "10.5.0.64/26=node-c")
	s.quiet() // nothing is written again and again
	a.del(t, pod("p"), network).ok(t)
}
