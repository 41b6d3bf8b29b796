package kube

import (
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestNodePoolIn(t *testing.T) {
	for _, test := range []struct {
		says, name, node, space, whole string
		want                           string // node and slice; "" if it is none
	}{
		{"a node's", "worker-1-10.5.1.0-24", "", "", "10.5.0.0/20", "worker-1 10.5.1.0/24"},
		{"a node's in a network", "net-worker-1-10.5.1.0-24", "", "net", "10.5.0.0/20", "worker-1 10.5.1.0/24"},
		{"a name with dots", "w.example.com-10.5.1.0-24", "", "", "10.5.0.0/20", "w.example.com 10.5.1.0/24"},
		{"IPv6", "net-w-fd00-5---64", "", "net", "fd00:5::/48", "w fd00:5::/64"},
		{"a node whose name may be part of an address", "ab-fd00-5---64", "", "", "fd00:5::/48", "ab fd00:5::/64"},
		{"a network whose name is replaced", "a-b-648fa9-w-10.5.1.0-24", "", "a_b", "10.5.0.0/20", "w 10.5.1.0/24"},
		{"a slice that is the whole range", "w-10.5.0.0-20", "", "", "10.5.0.0/20", "w 10.5.0.0/20"},
		{"the object says of which node it is", "net-w-10.5.1.0-24", "w", "net", "10.5.0.0/20", "w 10.5.1.0/24"},
		{"the object says that it is of another network", "net-a-w-10.5.1.0-24", "w", "net", "10.5.0.0/20", ""},
		{"the object does not say it", "net-a-w-10.5.1.0-24", "", "net", "10.5.0.0/20", "a-w 10.5.1.0/24"},
		{"elsewhere", "w-10.6.1.0-24", "", "", "10.5.0.0/20", ""},
		{"wider than the range", "w-10.5.0.0-16", "", "", "10.5.0.0/20", ""},
		{"no node's", "10.5.0.0-20", "", "", "10.5.0.0/20", ""},
		{"no node's in a network", "net-10.5.0.0-20", "", "net", "10.5.0.0/20", ""},
		{"another network", "other-w-10.5.1.0-24", "", "net", "10.5.0.0/20", ""},
		{"host bits", "w-10.5.1.1-24", "", "", "10.5.0.0/20", ""},
		{"no range", "worker-1", "", "", "10.5.0.0/20", ""},
	} {
		t.Run(test.says, func(t *testing.T) {
			id, ok := nodePoolIn(test.name, test.node, test.space, netip.MustParsePrefix(test.whole))
			got := ""
			if ok {
				got = id.Node + " " + id.Range.String()
			}
			if got != test.want || ok && id.Network != test.space {
				t.Errorf("it is %q in %q, want %q in %q", got, id.Network, test.want, test.space)
			}
		})
	}
}

// What an object says of its node tells apart what names do not.
func TestIdentifyNodePools(t *testing.T) {
	slice := netip.MustParsePrefix("10.5.1.0/24")
	for _, test := range []struct{ says, name, node, network, want string }{
		{"a node's", "w-10.5.1.0-24", "w", "", "w"},
		{"a node's in a network", "a-b-10.5.1.0-24", "b", "a", "b"},
		{"a network's", "a-b-10.5.1.0-24", "", "a-b", ""},
		{"somebody wrote another node", "a-b-10.5.1.0-24", "x", "a-b", ""},
		{"the default address space", "10.5.1.0-24", "", "", ""},
	} {
		t.Run(test.says, func(t *testing.T) {
			object := &ipPool{Metadata: objectMeta{Name: test.name}, Spec: ipPoolSpec{Range: slice.String()}}
			if test.node != "" {
				object.Metadata.Annotations = map[string]string{nodeAnnotation: test.node}
			}
			p, _ := keepPool(object)
			want := ipam.PoolID{Network: test.network, Node: test.want, Range: slice}
			if got := p.identify(nil, nil); got != want {
				t.Errorf("it is %v, want %v", got, want)
			}
		})
	}
}
