package integration

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// atOnce runs f for 0 to n-1, all at the same time, and answers what they
// answered.
func atOnce(n int, f func(i int) answer) []answer {
	answers := make([]answer, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { answers[i] = f(i) })
	}
	group.Wait()
	return answers
}

// distinct fails the test unless all succeeded with one address each, no two the
// same, and the addresses are those expected, in any order.
func distinct(t testing.TB, answers []answer, want []string) {
	t.Helper()
	var got []string
	for _, a := range answers {
		if a.exit != 0 {
			t.Errorf("one of many at once failed\n%s", a)
		}
		got = append(got, a.ips()...)
	}
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("an address was given out twice: %v", got)
	}
	if want != nil {
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("given out were %v, want %v", got, want)
		}
	}
}

func sequence(format string, from, to int) []string {
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

func TestManyAtOnceOnOneNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.21.0.0/24")
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	distinct(t, atOnce(40, func(i int) answer { return n.add(t, name(i), config) }), sequence("10.21.0.%d/24", 1, 40))
	c.checkRecords(t)
	if held := len(c.entries()); held != 40 {
		t.Errorf("%d entries, want 40", held)
	}
	// 20 go while 20 others come.
	distinct(t, atOnce(40, func(i int) answer {
		if i < 20 {
			return n.del(t, name(i), config)
		}
		return n.add(t, name(20+i), config)
	}), nil)
	c.checkRecords(t)
	for _, a := range atOnce(40, func(i int) answer { return n.del(t, name(20+i), config) }) {
		a.ok(t)
	}
	c.empty(t)
}

func TestManyAtOnceOnManyNodes(t *testing.T) {
	t.Parallel()
	for name, protected := range map[string]bool{"with overlap protection": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.unprotected = !protected
			nodes := []node{newNode(t, "node-1"), newNode(t, "node-2"), newNode(t, "node-3"), newNode(t, "node-4")}
			config := c.config("net-a", Object{"range": "10.21.0.0/24", "enable_overlapping_ranges": protected})
			name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
			answers := atOnce(40, func(i int) answer { return nodes[i%4].add(t, name(i), config) })
			distinct(t, answers, nil)
			for i, a := range answers {
				c.tells(t, name(i).container, a)
			}
			c.checkRecords(t)
			for _, a := range atOnce(40, func(i int) answer { return nodes[i%4].del(t, name(i), config) }) {
				a.ok(t)
			}
			c.empty(t)
		})
	}
}

// Nobody fails as long as there are as many addresses as there are pods.
func TestManyAtOnceFillAPool(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes := []node{newNode(t, "node-1"), newNode(t, "node-2")}
	config := c.ranged("10.21.0.0/27")
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	distinct(t, atOnce(30, func(i int) answer { return nodes[i%2].add(t, name(i), config) }), sequence("10.21.0.%d/27", 1, 30))
	nodes[0].add(t, pod("late"), config).fails(t, 11)
	for _, a := range atOnce(30, func(i int) answer { return nodes[i%2].del(t, name(i), config) }) {
		a.ok(t)
	}
	c.empty(t)
}

// Calls of several networks meet in one batch; a bad one among them fails alone.
func TestManyAtOnceOfDifferentKinds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	full := c.ranged("10.22.0.0/32")
	n.add(t, pod("holder"), full).ok(t)
	configs := []Object{
		c.ranged("10.21.0.0/24"),
		c.config("net-b", Object{"range": "10.21.0.0/25"}),
		c.config("net-c", Object{"ipRanges": []Object{{"range": "10.21.0.0/24"}, {"range": "fd00:21::/64"}}}),
		full,
	}
	name := func(i int) sandbox { return pod(fmt.Sprint("p", i)) }
	answers := atOnce(32, func(i int) answer { return n.add(t, name(i), configs[i%4]) })
	var good []answer
	seen := map[string]bool{}
	for i, a := range answers {
		if i%4 == 3 {
			a.fails(t, 11)
			continue
		}
		good = append(good, a)
		for _, ip := range a.ips() {
			address := mustAddr(t, ip).String()
			if seen[address] {
				t.Errorf("%s was given out twice, in overlapping ranges", address)
			}
			seen[address] = true
		}
	}
	distinct(t, good, nil)
	c.checkRecords(t)
	for _, a := range atOnce(32, func(i int) answer { return n.del(t, name(i), configs[i%4]) }) {
		a.ok(t)
	}
	n.del(t, pod("holder"), full).ok(t)
	c.empty(t)
}

// An ADD and the DEL of its container at the same time end in one of two ways.
func TestAddAndItsDelAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.21.0.0/24")
	answers := atOnce(20, func(i int) answer {
		if i%2 == 0 {
			return n.add(t, pod(fmt.Sprint("p", i)), config)
		}
		return n.del(t, pod(fmt.Sprint("p", i-1)), config)
	})
	for i, a := range answers {
		container := a.call.sandbox.container
		switch {
		case i%2 == 1:
			a.ok(t)
		case a.exit == 0 && len(a.ips()) == 1:
			t.Logf("%s was given %v", container, a.ips())
		}
	}
	for i := 0; i < 20; i += 2 {
		n.del(t, pod(fmt.Sprint("p", i)), config).ok(t)
	}
	c.empty(t)
}
