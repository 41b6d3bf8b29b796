package kube

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestPoolName(t *testing.T) {
	long := strings.Repeat("n", 300)
	for _, test := range []struct{ says, text, network, node, want string }{
		{"IPv4", "10.0.0.0/8", "", "", "10.0.0.0-8"},
		{"host bits", "192.168.2.225/28", "", "", "192.168.2.224-28"},
		{"a network", "192.168.2.224/28", "my-net", "", "my-net-192.168.2.224-28"},
		{"a node", "10.0.0.0/8", "", "testnode", "testnode-10.0.0.0-8"},
		{"a network and a node", "10.0.0.0/26", "n", "node.example.com", "n-node.example.com-10.0.0.0-26"},
		{"IPv6", "fd00::/64", "", "", "fd00---64"},
		{"IPv6 with a single zero group", "2001:db8:0:5::/64", "net", "", "net-2001-db8-0-5---64"},

		{"valid names with dots and dashes stay", "10.0.0.0/8", "a.b--c.d-", "-x-", "a.b--c.d---x--10.0.0.0-8"},
		{"a leading colon", "::/126", "", "", "0---126"},
		{"a leading colon behind a network", "::/126", "net", "", "net----126"},

		{"an underscore", "10.0.0.0/8", "example_net_common", "", "example-net-common-5ef15f-10.0.0.0-8"},
		{"a dot that stays", "10.0.0.0/8", "a.b", "", "a.b-10.0.0.0-8"},
		{"capitals", "10.0.0.0/8", "A_B", "", "a-b-6c1908-10.0.0.0-8"},
		{"a slash and a colon", "10.0.0.0/8", "a/b:c", "", "a-b-c-3b07f8-10.0.0.0-8"},
		{"a dot at the end", "10.0.0.0/8", "net.", "", "net--9b6dbf-10.0.0.0-8"},
		{"a dot at the start", "10.0.0.0/8", ".net", "", "0-net-fb7485-10.0.0.0-8"},
		{"two dots", "10.0.0.0/8", "a..b", "", "a--b-f62b42-10.0.0.0-8"},
		{"a dot beside a bad character", "10.0.0.0/8", "a._b", "", "a--b-dd1c25-10.0.0.0-8"},
		{"a dash at the start", "10.0.0.0/8", "-net", "", "0-net-3fb89a-10.0.0.0-8"},
		{"letters of the world", "10.0.0.0/8", "Büro", "", "b-ro-96eece-10.0.0.0-8"},
		{"a bad node", "10.0.0.0/8", "net", "Node_1.", "net-node-1--061087-10.0.0.0-8"},
		{"a bad node alone", "10.0.0.0/8", "", ".n", "0-n-385263-10.0.0.0-8"},

		{"a long network", "10.0.0.0/8", long, "", strings.Repeat("n", 235) + "-230b07-10.0.0.0-8"},
		{"a long network and a node", "10.0.0.0/8", long, "node", strings.Repeat("n", 230) + "-230b07-node-10.0.0.0-8"},
		{"a long node", "10.0.0.0/8", "", long, strings.Repeat("n", 235) + "-230b07-10.0.0.0-8"},
		{"a short network and a long node", "10.0.0.0/8", "net", long, "net-" + strings.Repeat("n", 231) + "-230b07-10.0.0.0-8"},
		{"both long", "10.0.0.0/8", long, long, "230b07-" + strings.Repeat("n", 228) + "-230b07-10.0.0.0-8"},
		{"a cut behind a dot", "10.0.0.0/8", strings.Repeat("n", 234) + "." + strings.Repeat("n", 99), "", strings.Repeat("n", 234) + "-2cdf9d-10.0.0.0-8"},
	} {
		t.Run(test.says, func(t *testing.T) {
			id := ipam.PoolID{Network: test.network, Node: test.node, Range: netip.MustParsePrefix(test.text)}
			got := PoolName(id)
			if got != test.want {
				t.Errorf("name is %q, want %q", got, test.want)
			}
			mustBeValid(t, got)
		})
	}
}

func TestReservationName(t *testing.T) {
	for _, test := range []struct{ says, addr, network, want string }{
		{"a network", "10.0.0.1", "net1", "net1-10.0.0.1"},
		{"no network", "10.0.0.1", "", "10.0.0.1"},
		{"IPv6", "fd00::1", "", "fd00--1"},
		{"IPv6 that ends in a colon", "fd00::", "", "fd00--0"},
		{"a long one that ends in a colon", "2001:db8:480:603d:304:403::", "", "2001-db8-480-603d-304-403--0"},
		{"ends in a colon behind a network", "fd00::", "net", "net-fd00--0"},
		{"a leading colon", "::1", "", "0--1"},
		{"nothing but colons", "::", "", "0--0"},
		{"a leading colon behind a network", "::1", "net", "net---1"},
		{"mapped", "::ffff:10.0.0.1", "", "10.0.0.1"},
		{"a zone", "fe80::1%eth0", "", "fe80--1"},
		{"a bad network", "10.0.0.1", "A_B", "a-b-6c1908-10.0.0.1"},
	} {
		t.Run(test.says, func(t *testing.T) {
			got := ReservationName(test.network, netip.MustParseAddr(test.addr))
			if got != test.want {
				t.Errorf("name is %q, want %q", got, test.want)
			}
			mustBeValid(t, got)
		})
	}
}

func TestSlicePoolName(t *testing.T) {
	long := strings.Repeat("n", 300)
	for _, test := range []struct {
		says, network, text string
		further             bool // not the first range
		want                string
	}{
		{"the first range", "net", "10.5.0.0/20", false, "net"},
		{"a further range", "net", "10.5.0.0/20", true, "net-10.5.0.0-20"},
		{"a further range with host bits", "net", "10.5.0.9/20", true, "net-10.5.0.0-20"},
		{"a further range of IPv6", "net", "fd00:5::/48", true, "net-fd00-5---48"},
		{"a valid name with dots and dashes", "a.b--c", "10.5.0.0/20", false, "a.b--c"},
		{"an underscore", "a_b", "10.5.0.0/20", false, "a-b-648fa9"},
		{"an underscore and a further range", "a_b", "10.5.0.0/20", true, "a-b-648fa9-10.5.0.0-20"},
		{"a dash at the end", "net-", "10.5.0.0/20", false, "net--486a0f"},
		{"a dash at the end and a further range", "net-", "10.5.0.0/20", true, "net--10.5.0.0-20"},
		{"a dash at the start", "-net", "10.5.0.0/20", false, "0-net-3fb89a"},
		{"a long network", long, "10.5.0.0/20", false, strings.Repeat("n", 246) + "-230b07"},
		{"a long network and a further range", long, "10.5.0.0/20", true, strings.Repeat("n", 234) + "-230b07-10.5.0.0-20"},
		{"the longest that fits", long[:253], "10.5.0.0/20", false, long[:253]},
	} {
		t.Run(test.says, func(t *testing.T) {
			list := ipam.SliceList{Network: test.network, Range: netip.MustParsePrefix(test.text), First: !test.further}
			got := SlicePoolName(list)
			if got != test.want {
				t.Errorf("name is %q, want %q", got, test.want)
			}
			mustBeValid(t, got)
		})
	}
}

func mustBeValid(t *testing.T, name string) {
	t.Helper()
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		t.Errorf("the API server refuses %q: %s", name, problems)
	}
}

// randomPart is made of few characters, so that many look alike once the bad
// ones are replaced; now and then it is too long. Long ones are few because those
// that share their beginning are told apart by 24 bits of hash alone: among
// thousands of them two would meet by chance.
func randomPart(rnd *rand.Rand) string {
	characters := []string{"a", "A", "b", "B", "0", "-", "_", ".", "/", ":", " ", "ä", "\xff"}
	length := 1 + rnd.IntN(5)
	part := ""
	if rnd.IntN(40) == 0 {
		part = strings.Repeat(characters[rnd.IntN(2)], 230+rnd.IntN(60))
	}
	for range length {
		part += characters[rnd.IntN(len(characters))]
	}
	return part
}

func TestDifferentInputsHaveDifferentNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	prefix := netip.MustParsePrefix("fd00::/64")
	pools := map[string]string{}
	reservations := map[string]string{}
	differ := func(seen map[string]string, name, part string) {
		if other, ok := seen[name]; ok && other != part {
			t.Fatalf("%q and %q are both called %q", other, part, name)
		}
		seen[name] = part
	}
	for range 8_000 {
		part := randomPart(rnd)
		differ(pools, PoolName(ipam.PoolID{Network: part, Range: prefix}), part)
		differ(reservations, ReservationName(part, prefix.Addr()), part)
		// As a node of a network, beside the pools of the network alone.
		differ(pools, PoolName(ipam.PoolID{Network: "net", Node: part, Range: prefix}), "net and node "+part)
	}
	if len(pools) < 8_000 {
		t.Errorf("only %d different inputs", len(pools))
	}
}

// TestAcceptedNamesStay proves that a name is replaced only when the API server
// would refuse it.
func TestAcceptedNamesStay(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	stayed := 0
	for range 8_000 {
		network, node := randomPart(rnd), randomPart(rnd)
		accepted := len(validation.IsDNS1123Subdomain(network)) == 0
		if accepted != (SlicePoolName(ipam.SliceList{Network: network, First: true}) == network) {
			t.Fatalf("the slice pool of %q is called otherwise: %t", network, accepted)
		}
		plain := network + "-" + node + "-10.0.0.0-8"
		got := PoolName(ipam.PoolID{Network: network, Node: node, Range: netip.MustParsePrefix("10.0.0.0/8")})
		accepted = len(validation.IsDNS1123Subdomain(plain)) == 0
		if accepted != (got == plain) {
			t.Fatalf("%q is called %q, though accepted is %t", plain, got, accepted)
		}
		if accepted {
			stayed++
		}
	}
	if stayed == 0 {
		t.Error("no name was acceptable")
	}
}

func FuzzNames(f *testing.F) {
	f.Add("net", "node", []byte{10, 0, 0, 0}, 8)
	f.Add("net.", ".node", []byte{10, 0, 0, 0}, 8)
	f.Add("-", "-", make([]byte, 16), 126)
	f.Add("", "", make([]byte, 16), 0)
	f.Add("a_b", "", []byte{10, 0, 0, 0}, 32)
	f.Add(strings.Repeat("a.", 150), strings.Repeat(".b", 150), make([]byte, 16), 128)
	f.Add("\xff\x00", "日本", make([]byte, 16), 1)
	f.Fuzz(func(t *testing.T, network, node string, address []byte, length int) {
		a, ok := netip.AddrFromSlice(address)
		if !ok {
			return
		}
		mustBeValid(t, ReservationName(network, a))
		mustBeValid(t, SlicePoolName(ipam.SliceList{Network: network, First: true}))
		p, err := a.Unmap().Prefix(length)
		if err != nil {
			return
		}
		name := PoolName(ipam.PoolID{Network: network, Node: node, Range: p})
		mustBeValid(t, name)
		if again := PoolName(ipam.PoolID{Network: network, Node: node, Range: p}); again != name {
			t.Errorf("%q and %q are names of the same pool", name, again)
		}
	})
}
