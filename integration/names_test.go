package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
)

func TestFirstAddressAndObjectNames(t *testing.T) {
	t.Parallel()
	mended := func(readable, original string) string {
		sum := sha256.Sum256([]byte(original))
		return readable + "-" + hex.EncodeToString(sum[:])[:6]
	}
	tests := map[string]struct {
		ipam                       Object
		address, pool, reservation string
	}{
		"host bits": {
			Object{"range": "192.168.2.225/28"},
			"192.168.2.225/28", "192.168.2.224-28", "192.168.2.225",
		},
		"first-last": {
			Object{"range": "192.168.5.10-192.168.5.20/24"},
			"192.168.5.10/24", "192.168.5.0-24", "192.168.5.10",
		},
		"ipRanges": {
			Object{"ipRanges": []Object{{"range": "192.168.5.0/24", "range_start": "192.168.5.7"}}},
			"192.168.5.7/24", "192.168.5.0-24", "192.168.5.7",
		},
		"start and exclude": {
			Object{"range": "10.0.0.0/8", "range_start": "10.0.1.0", "exclude": []string{"10.0.1.0/31", "10.0.1.2-10.0.1.4"}},
			"10.0.1.5/8", "10.0.0.0-8", "10.0.1.5",
		},
		"start ending in .0": {
			Object{"range": "10.0.0.0/16", "range_start": "10.0.1.0"},
			"10.0.1.1/16", "10.0.0.0-16", "10.0.1.1",
		},
		"start ending in .0, allowed": {
			Object{"range": "10.0.0.0/16", "range_start": "10.0.1.0", "allow_dot_zero": true},
			"10.0.1.0/16", "10.0.0.0-16", "10.0.1.0",
		},
		"gateway is not handed out": {
			Object{"range": "10.0.0.0/29", "gateway": "10.0.0.1"},
			"10.0.0.2/29", "10.0.0.0-29", "10.0.0.2",
		},
		"key in another spelling": {
			Object{"range": "10.0.0.0/24", "rangeStart": " 10.0.0.9 "},
			"10.0.0.9/24", "10.0.0.0-24", "10.0.0.9",
		},
		"leading zeros are decimal": {
			Object{"range": "010.000.000.000/24"},
			"10.0.0.1/24", "10.0.0.0-24", "10.0.0.1",
		},
		"point to point": {
			Object{"range": "10.0.0.0/31"},
			"10.0.0.0/31", "10.0.0.0-31", "10.0.0.0",
		},
		"single address": {
			Object{"range": "10.0.0.7/32"},
			"10.0.0.7/32", "10.0.0.7-32", "10.0.0.7",
		},
		"IPv6": {
			Object{"range": "fd00::/64"},
			"fd00::1/64", "fd00---64", "fd00--1",
		},
		"IPv6 in a network": {
			Object{"range": "2001:db8:0:5::/64", "network_name": "net"},
			"2001:db8:0:5::1/64", "net-2001-db8-0-5---64", "net-2001-db8-0-5--1",
		},
		"IPv6 address ending in colons": {
			Object{"range": "2001:db8:480:603d::/64", "range_start": "2001:db8:480:603d:304:403::"},
			"2001:db8:480:603d:304:403::/64", "2001-db8-480-603d---64", "2001-db8-480-603d-304-403--0",
		},
		"IPv6 exclude of half the range": {
			Object{"range": "2001:db8::/30", "exclude": []string{"2001:db8::/32"}},
			"2001:db9::/30", "2001-db8---30", "2001-db9--0",
		},
		"IPv6 beginning with colons": {
			Object{"range": "::/126"},
			"::1/126", "0---126", "0--1",
		},
		"network": {
			Object{"range": "192.168.2.224/28", "network_name": "my-net"},
			"192.168.2.225/28", "my-net-192.168.2.224-28", "my-net-192.168.2.225",
		},
		"network with underscores": {
			Object{"range": "10.0.0.0/24", "network_name": "example_net_common"},
			"10.0.0.1/24",
			mended("example-net-common", "example_net_common") + "-10.0.0.0-24",
			mended("example-net-common", "example_net_common") + "-10.0.0.1",
		},
		"network in capitals": {
			Object{"range": "10.0.0.0/24", "network_name": "A_B"},
			"10.0.0.1/24", mended("a-b", "A_B") + "-10.0.0.0-24", mended("a-b", "A_B") + "-10.0.0.1",
		},
		"network with a dot": {
			Object{"range": "10.0.0.0/24", "network_name": "a.b"},
			"10.0.0.1/24", "a.b-10.0.0.0-24", "a.b-10.0.0.1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.config("net-a", test.ipam)
			n.add(t, pod("a"), config).gets(t, test.address)
			if _, ok := c.pools()[test.pool]; !ok {
				t.Errorf("no pool %q among %v", test.pool, c.pools())
			}
			if _, ok := c.reservations()[test.reservation]; !ok {
				t.Errorf("no reservation %q among %v", test.reservation, c.reservations())
			}
			n.del(t, pod("a"), config).ok(t)
			c.empty(t)
		})
	}
}

func TestNetworkNamesAreAddressSpacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	names := []string{"", "a-b", "a.b", "a_b", "A_B", "A-B", "a b", "ä"}
	for i, name := range names {
		n.add(t, pod("a").in(fmt.Sprint("c", i)), c.config("net-a", Object{"range": "10.0.0.0/24", "network_name": name})).gets(t, "10.0.0.1/24")
	}
	if pools, reservations := len(c.pools()), len(c.reservations()); pools != len(names) || reservations != len(names) {
		t.Errorf("%d networks have %d pools and %d reservations", len(names), pools, reservations)
	}
	for i, name := range names {
		n.del(t, pod("a").in(fmt.Sprint("c", i)), c.config("net-a", Object{"range": "10.0.0.0/24", "network_name": name})).ok(t)
	}
	c.empty(t)
}
