package integration

import (
	"fmt"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

func TestClosedPool(t *testing.T) {
	t.Parallel()
	for name, seed := range map[string]func(c *cluster){
		"marked":                    func(*cluster) {},
		"marked, beside another":    func(c *cluster) { c.annotate("node-1-10.5.0.0-24", Object{"x": "y"}) },
		"with a mark nobody knows":  func(c *cluster) { c.annotate("node-1-10.5.0.0-24", Object{closedMark: "?"}) },
		"with a mark that is empty": func(c *cluster) { c.annotate("node-1-10.5.0.0-24", Object{closedMark: ""}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sliced(t)
			c.twoNodes()
			c.closePool("node-1", "10.5.0.0/24")
			seed(c)
			n := newNode(t, "node-1")
			config := c.fast(nil)
			mentions(t, n.add(t, pod("a"), config).fails(t, 11), "10.5.0.0/24", "node-1", "taken away", "try again")
			c.empty(t)
			n.del(t, pod("a"), config).ok(t)
			c.seedSlices("net-a", "10.5.0.0/20", "/24", "node-1=10.5.0.0/24", "node-1=10.5.2.0/24")
			n.add(t, pod("a"), config).gets(t, "10.5.2.1/20")
			n.del(t, pod("a"), config).ok(t)
			c.empty(t)
		})
	}
}

func (c *cluster) annotate(pool string, annotations Object) {
	c.t.Helper()
	c.cp.Must(c.t).Patch(c.path("ippools")+"/"+pool, testenv.MergePatch, Object{"metadata": Object{"annotations": annotations}})
}

// A slice is taken away and given to another node while an ADD that has read that it
// is its node's is still on its way, wherever it is.
func TestSliceIsTakenAwayBetween(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(c *cluster){
		"the pool is not there":             func(*cluster) {},
		"the pool is there":                 func(c *cluster) { c.seedPool("node-1-10.5.0.0-24", "10.5.0.0/24", Object{}) },
		"the pool has another's annotation": func(c *cluster) { c.closePool("node-1", "10.5.0.0/24"); c.reopen() },
	} {
		for nth := 1; nth <= 5; nth++ {
			t.Run(fmt.Sprintf("%s, request %d", name, nth), func(t *testing.T) {
				t.Parallel()
				c := sliced(t)
				c.twoNodes()
				start(c)
				n, m := newNode(t, "node-1"), newNode(t, "node-2")
				config := c.fast(nil)
				var others answer
				hit := c.proxy.Inject(testenv.Rule{Nth: nth, Action: testenv.Before(func(testenv.Request) {
					if len(c.entries()) > 0 {
						return // it holds something by now, and is not closed
					}
					c.closePool("node-1", "10.5.0.0/24")
					c.seedSlices("net-a", "10.5.0.0/20", "/24", "node-2=10.5.0.0/24")
					others = m.add(t, pod("b"), config)
				})})
				late := n.add(t, pod("a"), config)
				switch {
				case hit.Hits() == 0, others.exit == 0 && others.result == nil:
					late.gets(t, "10.5.0.1/20")
				default:
					others.getsNear(t, mustAddr(t, "10.5.0.1/20"))
					mentions(t, late.fails(t, 11), "node-1")
					c.tells(t, "b-c1", others)
					if held := len(c.entries()); held != 1 {
						t.Errorf("%d addresses are held, want that of the other node", held)
					}
				}
				if nth <= 3 && hit.Hits() == 0 {
					t.Error("the slice was not taken away")
				}
				n.del(t, pod("a"), config).ok(t)
				m.del(t, pod("b"), config).ok(t)
				c.empty(t)
			})
		}
	}
}

// reopen takes the mark away and leaves another annotation.
func (c *cluster) reopen() {
	c.t.Helper()
	c.annotate("node-1-10.5.0.0-24", Object{closedMark: nil, "x": "y"})
}

// A pool object that the older plugin made, and its records.
func TestSlicesOfTheOlderVersion(t *testing.T) {
	t.Parallel()
	for _, definitions := range []string{"definitions that ship", "old definitions"} {
		t.Run(definitions, func(t *testing.T) {
			t.Parallel()
			cp := suite.ControlPlane(t)
			if definitions == "old definitions" {
				cp = oldControlPlane(t)
			}
			c := newClusterOn(t, cp)
			c.nodes = []string{"node-1", "node-2"}
			c.twoNodes()
			c.seedPool("node-1-10.5.0.0-24", "10.5.0.0/24", Object{
				"1": Object{"id": "a-c1", "podref": "default/a", "ifname": "net1"},
				"2": Object{"id": "b-c1", "podref": "default/b"},
			})
			c.seedReservation("10.5.0.1", Object{"podref": "default/a", "ifname": "net1"})
			c.seedReservation("10.5.0.2", Object{"podref": "default/b"})
			n := newNode(t, "node-1")
			config := c.fast(nil)
			n.add(t, pod("d"), config).gets(t, "10.5.0.3/20")
			n.add(t, pod("a").in("a-c2"), config).gets(t, "10.5.0.1/20")
			for name, container := range map[string]string{"a": "a-c2", "b": "b-c1", "d": "d-c1"} {
				n.forgetful(t).del(t, pod(name).in(container), config).ok(t)
			}
			c.empty(t)
			c.closePool("node-1", "10.5.0.0/24")
			n.add(t, pod("a"), config).fails(t, 11)
			c.empty(t)
		})
	}
}
