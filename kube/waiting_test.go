package kube

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

func TestNetworksThatAPodAsksFor(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a name":                       {"a", "[{a  []}]"},
		"with namespace and interface": {"ns/a@net1, b", "[{a ns []} {b  []}]"},
		"a list":                       {`[{"name": "a", "namespace": "ns", "ips": ["10.0.0.1/24"]}]`, "[{a ns [10.0.0.1/24]}]"},
		"a list that is broken":        {`[{"name": `, "[]"},
		"nothing between commas":       {",ns/,", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(parseSelections(c.text)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestPoolsThatAWaitingPodDrawsFrom(t *testing.T) {
	pool := func(network, node string) ipam.PoolID {
		return ipam.PoolID{Network: network, Node: node, Range: netip.MustParsePrefix("10.0.0.0/24")}
	}
	const cut = `{"ipam": {"type": "whereabouts", "range": "10.0.0.0/16", "node_slice_size": "/24"}}`
	const plain = `{"ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}}`
	for name, c := range map[string]struct {
		config string
		flat   []byte
		pool   ipam.PoolID
		want   bool
	}{
		"its range":                     {plain, []byte("{}"), pool("", ""), true},
		"the range of another network":  {plain, []byte("{}"), pool("other", ""), false},
		"no flat file is known":         {plain, nil, pool("", ""), true},
		"no flat file, another network": {plain, nil, pool("other", ""), false},
		"a slice":                       {plain, []byte("{}"), pool("", "node"), false},
		"a network cut by node":         {cut, []byte("{}"), pool("", ""), false},
		"the slice of its node":         {cut, []byte("{}"), pool("", "node"), true},
		"the slice of another node":     {cut, []byte("{}"), pool("", "node-2"), false},
		"a slice of another network":    {cut, []byte("{}"), pool("other", "node"), false},
		"another range":                 {`{"ipam": {"type": "whereabouts", "range": "10.0.1.0/24"}}`, []byte("{}"), pool("", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := Waiting{Pod: &reclaim.Pod{Node: "node"}, claims: readDefinition(c.config, c.flat).claims}
			if got := w.From(c.pool); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestPoolsThatDoAsWell(t *testing.T) {
	pool := func(node, cidr string) ipam.PoolID {
		return ipam.PoolID{Node: node, Range: netip.MustParsePrefix(cidr)}
	}
	const config = `{"ipam": {"type": "whereabouts", "node_slice_max": 2, "ipRanges": [
		{"range": "10.0.0.0/16", "node_slice_size": "/24"}, {"range": "10.1.0.0/16", "node_slice_size": "/24"}, {"range": "10.2.0.0/16"}]}}`
	w := Waiting{Pod: &reclaim.Pod{Node: "node"}, claims: readDefinition(config, []byte("{}")).claims}
	own := pool("node", "10.0.0.0/24")
	for name, c := range map[string]struct {
		other ipam.PoolID
		want  bool
	}{
		"its node's second slice":    {pool("node", "10.0.7.0/24"), true},
		"another node's":             {pool("node-2", "10.0.7.0/24"), false},
		"a slice of another range":   {pool("node", "10.1.0.0/24"), false},
		"a range that is not sliced": {pool("", "10.2.0.0/16"), false},
	} {
		if got := w.Instead(own, c.other); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	if !w.Alone(own) {
		t.Error("overlap protection is on, and not seen")
	}
	off := Waiting{Pod: w.Pod, claims: readDefinition(`{"ipam": {"type": "whereabouts", "range": "10.2.0.0/16", "enable_overlapping_ranges": false}}`, []byte("{}")).claims}
	if id := pool("", "10.2.0.0/16"); off.Alone(id) || !off.From(id) {
		t.Error("overlap protection is off, and not seen")
	}
}

// Several processes tell the same: the server takes one of two events with one name.
func TestEventsThatSayTheSameHaveOneName(t *testing.T) {
	name := func(once string) string {
		return newEvent(reclaim.Event{Pod: reclaim.Pod{Namespace: "ns", Name: "p"}, Once: once}, time.Now()).Metadata.Name
	}
	for _, c := range []struct {
		one, other string
		same       bool
	}{{"a", "a", true}, {"a", "b", false}, {"", "", false}} {
		if one, other := name(c.one), name(c.other); (one == other) != c.same {
			t.Errorf("%q and %q: %s and %s", c.one, c.other, one, other)
		}
	}
}
