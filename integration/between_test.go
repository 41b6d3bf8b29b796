package integration

import (
	"fmt"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// betweenCase is a call in the middle of which another node's call comes.
type betweenCase struct {
	first   []sandbox // what holds an address before
	crashed bool      // a-c1 has reserved one and died then
	run     call
	between call
	want    []sandbox // what must hold one after both
	perhaps []sandbox // of which one must
}

func betweenCases() map[string]betweenCase {
	add, del, gc := "ADD", "DEL", "GC"
	do := func(command string, s sandbox) call { return call{command: command, sandbox: s} }
	a1, a2, a3, b, x := pod("a"), pod("a").in("a-c2"), pod("a").in("a-c3"), pod("b"), pod("x")
	return map[string]betweenCase{
		"another pod's ADD in an ADD":         {first: []sandbox{x}, run: do(add, a1), between: do(add, b), want: []sandbox{x, a1, b}},
		"another pod's first ADD in an ADD":   {run: do(add, a1), between: do(add, b), want: []sandbox{a1, b}},
		"the same ADD in an ADD":              {run: do(add, a1), between: do(add, a1), want: []sandbox{a1}},
		"an adoption in an adoption":          {first: []sandbox{a1}, run: do(add, a2), between: do(add, a3), perhaps: []sandbox{a2, a3}},
		"an ADD after a crash in another":     {crashed: true, run: do(add, a2), between: do(add, a3), perhaps: []sandbox{a2, a3}},
		"another pod's ADD after a crash":     {crashed: true, run: do(add, a2), between: do(add, b), want: []sandbox{a2, b}},
		"the late DEL in an adoption":         {first: []sandbox{a1}, run: do(add, a2), between: do(del, a1), want: []sandbox{a2}},
		"an adoption in the late DEL":         {first: []sandbox{a1}, run: do(del, a1), between: do(add, a2), want: []sandbox{a2}},
		"a DEL in the same DEL":               {first: []sandbox{a1}, run: do(del, a1), between: do(del, a1)},
		"another pod's ADD in a DEL":          {first: []sandbox{a1}, run: do(del, a1), between: do(add, b), want: []sandbox{b}},
		"an adoption in a garbage collection": {first: []sandbox{a1}, run: do(gc, sandbox{}), between: do(add, a2), want: []sandbox{a2}},
		"a DEL in a garbage collection":       {first: []sandbox{a1}, run: do(gc, sandbox{}), between: do(del, a1)},
		"a garbage collection in the same":    {first: []sandbox{a1}, run: do(gc, sandbox{}), between: do(gc, sandbox{})},
	}
}

// mostRequests is as many as any call of these cases makes.
const mostRequests = 5

// Another node's call comes in between two requests of a call, wherever that is
// possible.
func TestAnotherCallComesBetween(t *testing.T) {
	t.Parallel()
	for name, test := range betweenCases() {
		for _, protected := range []bool{true, false} {
			for nth := 1; nth <= mostRequests; nth++ {
				t.Run(fmt.Sprintf("%s, request %d, protected %t", name, nth, protected), func(t *testing.T) {
					t.Parallel()
					c := newCluster(t)
					c.unprotected = !protected
					test.try(t, c, nth)
				})
			}
		}
	}
}

// With old definitions there is no gen to tell two holdings apart, and the
// details of reservations are missing. Garbage collection has nothing to do.
func TestAnotherCallComesBetweenWithOldDefinitions(t *testing.T) {
	t.Parallel()
	cp := oldControlPlane(t)
	for name, test := range betweenCases() {
		if test.run.command == "GC" {
			continue
		}
		for nth := 1; nth <= mostRequests; nth++ {
			t.Run(fmt.Sprintf("%s, request %d", name, nth), func(t *testing.T) {
				t.Parallel()
				test.try(t, newClusterOn(t, cp), nth)
			})
		}
	}
}

// try lets the call between come before the nth request, or after all if there
// are fewer.
func (test betweenCase) try(t *testing.T, c *cluster, nth int) {
	t.Helper()
	here, there := newNode(t, "node-1"), newNode(t, "node-1") // garbage collection is about one name
	config := with(c.config("net-a", Object{"range": "10.25.0.0/24", "enable_overlapping_ranges": !c.unprotected}),
		Object{"cniVersion": "1.1.0", validAttachments: nil})
	for _, s := range test.first {
		here.add(t, s, config).ok(t)
	}
	if test.crashed {
		killedAtPool(t, c, here, call{command: "ADD", sandbox: pod("a"), config: config})
	}
	c.makeOld()
	c.proxy.ResetRequests()

	run, between := test.run, test.between
	run.config, between.config = config, config
	done := make(chan answer, 1)
	injected := c.proxy.Inject(testenv.Rule{Nth: nth, Action: testenv.Before(func(testenv.Request) {
		done <- there.run(t, between)
	})})
	outer := here.run(t, run).ok(t)
	if injected.Hits() == 0 {
		injected.Remove()
		done <- there.run(t, between)
	}
	inner := (<-done).ok(t)
	c.heldBy(t, test.want, test.perhaps)
	for _, a := range []answer{outer, inner} {
		if a.call.command == "ADD" && len(test.perhaps) == 0 {
			c.tells(t, a.call.sandbox.container, a)
		}
	}
	c.checkRecords(t)
	for _, e := range c.entries() {
		here.forgetful(t).del(t, sandbox{container: e.container, ifName: e.ifName}, config).ok(t)
	}
	c.empty(t)
}

// makeOld makes all records old enough for garbage collection.
func (c *cluster) makeOld() {
	c.t.Helper()
	for _, e := range c.entries() {
		if !c.unprotected {
			c.age(reservationName(e.network, e.address))
			continue
		}
		c.patchPool(e.pool, Object{"op": "replace", "path": "/spec/allocations/" + e.key + "/details/since", "value": longAgo()})
	}
}

// heldBy fails the test unless each of these containers holds one address, and of
// those in perhaps one does.
func (c *cluster) heldBy(t testing.TB, want, perhaps []sandbox) {
	t.Helper()
	held := map[string]int{}
	entries := c.entries()
	for _, e := range entries {
		held[e.container]++
	}
	for _, s := range want {
		if held[s.container] != 1 {
			t.Errorf("%s holds %d addresses, want 1: %v", s.container, held[s.container], c.holders())
		}
	}
	some := 0
	for _, s := range perhaps {
		some += held[s.container]
	}
	if len(perhaps) > 0 && some != 1 || len(entries) != len(want)+some {
		t.Errorf("held are %v, want %v and one of %v", c.holders(), want, perhaps)
	}
}
