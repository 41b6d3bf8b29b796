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
