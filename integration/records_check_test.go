package integration

import (
	"fmt"
	"strings"
	"testing"
)

// notes takes down what a check complains about instead of failing.
type notes struct {
	testing.TB
	complaints []string
}

func (n *notes) Helper() {}

func (n *notes) Errorf(format string, args ...any) {
	n.complaints = append(n.complaints, fmt.Sprintf(format, args...))
}

// The check that ends the other tests has to see what it is there for.
func TestTheCheckOfRecordsSeesFaults(t *testing.T) {
	t.Parallel()
	entry := Object{"id": "a-c1", "podref": "default/a", "ifname": "net1"}
	claim := func(change Object) Object {
		return with(Object{"containerid": "a-c1", "podref": "default/a", "ifname": "net1"}, change)
	}
	tests := map[string]struct {
		seed func(*cluster)
		want string
	}{
		"nothing wrong": {func(c *cluster) {
			c.seedPool("10.0.0.0-24", "10.0.0.0/24", Object{"1": entry})
			c.seedPool("net-fd00---64", "fd00::/64", Object{"0": entry})
			c.seedReservation("10.0.0.1", claim(nil))
			c.seedReservation("net-fd00--0", claim(nil))
		}, ""},
		"entry alone": {func(c *cluster) {
			c.seedPool("10.0.0.0-24", "10.0.0.0/24", Object{"1": entry})
		}, "has no reservation"},
		"reservation alone": {func(c *cluster) {
			c.seedReservation("10.0.0.1", claim(nil))
		}, "without an entry"},
		"reservation of another address space": {func(c *cluster) {
			c.seedPool("net-10.0.0.0-24", "10.0.0.0/24", Object{"1": entry})
			c.seedReservation("10.0.0.1", claim(nil))
		}, "without an entry"},
		"another container": {func(c *cluster) {
			c.seedPool("10.0.0.0-24", "10.0.0.0/24", Object{"1": entry})
			c.seedReservation("10.0.0.1", claim(Object{"containerid": "b-c1"}))
		}, "containerid"},
		"another pod": {func(c *cluster) {
			c.seedPool("10.0.0.0-24", "10.0.0.0/24", Object{"1": entry})
			c.seedReservation("10.0.0.1", claim(Object{"podref": "default/b"}))
		}, "podref"},
		"one address in two ranges": {func(c *cluster) {
			c.seedPool("10.0.0.0-24", "10.0.0.0/24", Object{"1": entry})
			c.seedPool("10.0.0.0-28", "10.0.0.0/28", Object{"1": entry})
			c.seedReservation("10.0.0.1", claim(nil))
		}, "has no reservation"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{t: t, cp: suite.ControlPlane(t), halves: map[string]bool{}}
			c.namespace = c.cp.Namespace(t)
			test.seed(c)
			seen := &notes{TB: t}
			c.checkRecords(seen)
			got := strings.Join(seen.complaints, "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("complaints are %q, want %q", got, test.want)
			}
		})
	}
}
