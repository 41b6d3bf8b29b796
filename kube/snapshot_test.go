package kube

import (
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Pool objects do not always say whose slice they are, and names alone do not tell.
func TestWhosePoolAnObjectIs(t *testing.T) {
	sliced := definitionsOf([]byte("{}"), `{"name":"a","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"a","node_slice_size":"/26"}}`)
	held := func(space, node, written string) []ipam.Reservation {
		return []ipam.Reservation{{Space: space, Record: ipam.Record{Node: node}, Range: written}}
	}
	for name, c := range map[string]struct {
		object, cidr string
		reservations []ipam.Reservation
		nets         *definitions
		want         ipam.PoolID
	}{
		"a bare range":                    {"10.0.0.64-26", "10.0.0.64/26", held("", "b", "10.0.0.64/26"), sliced, poolOf("", "", "10.0.0.64/26")},
		"nothing tells":                   {"a-b-10.0.0.64-26", "10.0.0.64/26", nil, nil, poolOf("a-b", "", "10.0.0.64/26")},
		"reservations tell":               {"a-b-10.0.0.64-26", "10.0.0.64/26", held("a", "b", "10.0.0.64/26"), nil, poolOf("a", "b", "10.0.0.64/26")},
		"reservations of a pool":          {"a-b-10.0.0.64-26", "10.0.0.64/26", held("a-b", "n", "10.0.0.64/26"), nil, poolOf("a-b", "", "10.0.0.64/26")},
		"reservations of another range":   {"a-b-10.0.0.64-26", "10.0.0.64/26", held("a", "b", "10.0.0.0/26"), nil, poolOf("a-b", "", "10.0.0.64/26")},
		"reservations of old versions":    {"a-b-10.0.0.64-26", "10.0.0.64/26", held("a", "", ""), nil, poolOf("a-b", "", "10.0.0.64/26")},
		"definitions tell":                {"a-b-10.0.0.64-26", "10.0.0.64/26", nil, sliced, poolOf("a", "b", "10.0.0.64/26")},
		"reservations before definitions": {"a-b-c-10.0.0.64-26", "10.0.0.64/26", held("a-b", "c", "10.0.0.64/26"), sliced, poolOf("a-b", "c", "10.0.0.64/26")},
		"a name with a leading zero":      {"0---126", "::/126", nil, nil, poolOf("", "", "::/126")},
		"a network before a leading dash": {"a----126", "::/126", nil, nil, poolOf("a", "", "::/126")},
	} {
		p := &storedPool{name: c.object, pool: &ipam.Pool{ID: ipam.PoolID{Range: netip.MustParsePrefix(c.cidr)}}}
		if got := p.identify(sliceNames(c.reservations), c.nets); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// A pool that was given to somebody stays as it was, whatever becomes of its
// reservations; one read later has the details of the day.
func TestAGivenPoolDoesNotChange(t *testing.T) {
	address := netip.MustParseAddr("10.0.0.1")
	p := &storedPool{name: "10.0.0.0-24", pool: &ipam.Pool{
		ID:      ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")},
		Records: map[netip.Addr]ipam.Record{address: {ContainerID: "c", PodRef: "n/p", Gen: "1"}},
	}}
	id := poolOf("", "", "10.0.0.0/24")
	held := &ipam.Reservation{Address: address, Record: ipam.Record{ContainerID: "c", UID: "u"}}
	for step, c := range []struct {
		reservation *ipam.Reservation
		uid         string
	}{
		{held, "u"},
		{nil, ""},
		{&ipam.Reservation{Address: address, Record: ipam.Record{ContainerID: "another", UID: "v"}}, ""},
		{held, "u"},
	} {
		before := p.pool
		was := before.Records[address]
		p.complete(id, func(string) *ipam.Reservation { return c.reservation })
		if got := p.pool.Records[address]; got.UID != c.uid || got.Gen != "1" || got.PodRef != "n/p" {
			t.Errorf("step %d: got %+v", step, got)
		}
		if step > 0 && before.Records[address] != was {
			t.Errorf("step %d: the pool given before is changed", step)
		}
	}
}

// The end of a network's name may look like the start of an IPv6 address.
func TestWhatANameOfAReservationMeans(t *testing.T) {
	for name, c := range map[string]struct {
		object, written string
		held            string // by a pool of the network
		network, want   string
	}{
		"no network":                        {"fd00--1", "", "", "", "fd00::1"},
		"a network":                         {"net-fd00--1", "", "", "net", "fd00::1"},
		"its range tells":                   {"vlan-10-fd00--1", "fd00::/64", "", "vlan-10", "fd00::1"},
		"its range tells the longer one":    {"vlan-10-fd00--1", "10:fd00::/32", "", "vlan", "10:fd00::1"},
		"a network of one letter":           {"a-fd00--1", "fd00::/64", "", "a", "fd00::1"},
		"a record tells":                    {"vlan-10-fd00--1", "", "fd00::1", "vlan-10", "fd00::1"},
		"a record tells the longer one":     {"vlan-10-fd00--1", "", "10:fd00::1", "vlan", "10:fd00::1"},
		"the records are of other networks": {"vlan-10-fd00--1", "", "fd00::2", "vlan", "10:fd00::1"},
		"IPv4 behind a number":              {"vlan-10-10.0.0.1", "", "", "vlan-10", "10.0.0.1"},
	} {
		keep := keepReservation(interner{})
		r, ok := keep(&reservation{Metadata: objectMeta{Name: c.object}, Spec: reservationSpec{Range: c.written}})
		if !ok {
			t.Errorf("%s: not read", name)
			continue
		}
		s := &ipam.Snapshot{Reservations: []ipam.Reservation{*r}}
		if c.held != "" {
			held := netip.MustParseAddr(c.held)
			s.Pools = []*ipam.Pool{{ID: ipam.PoolID{Network: c.network}, Records: map[netip.Addr]ipam.Record{held: {}}}}
		}
		settle(s)
		if got := s.Reservations[0]; got.Space != c.network || got.Address.String() != c.want {
			t.Errorf("%s: network %q, address %s; want %q, %s", name, got.Space, got.Address, c.network, c.want)
		}
	}
}
