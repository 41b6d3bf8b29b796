package history

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// Object is short for JSON objects in tests.
type Object = testenv.Object

// network is a network definition that pods are attached to.
type network struct {
	name        string
	space       string // network_name
	unprotected bool   // without overlap protection
	spans       []span // a pod gets an address from each
}

// span is what a network may hand out of a pool.
type span struct {
	pool        netip.Prefix
	first, last netip.Addr
}

func spanOf(pool, first, last string) span {
	return span{netip.MustParsePrefix(pool), netip.MustParseAddr(first), netip.MustParseAddr(last)}
}

func (s span) contains(a netip.Addr) bool {
	return s.pool.Contains(a) && !a.Less(s.first) && !s.last.Less(a)
}

// networks are chosen so that pods are in each other's way: few addresses, one pool
// of two networks, ranges that overlap, two families, the same numbers in another
// address space, and one network without overlap protection.
func networks() []*network {
	return []*network{
		{name: "net-a", spans: []span{spanOf("10.50.0.0/24", "10.50.0.10", "10.50.0.39")}},
		{name: "net-b", spans: []span{spanOf("10.50.0.0/24", "10.50.0.14", "10.50.0.49")}},
		{name: "net-c", spans: []span{spanOf("10.50.0.0/25", "10.50.0.12", "10.50.0.45")}},
		{name: "net-d", spans: []span{spanOf("10.60.0.0/24", "10.60.0.1", "10.60.0.40"), spanOf("fd00:60::/64", "fd00:60::1", "fd00:60::28")}},
		{name: "net-e", spans: []span{spanOf("fd00:60::/80", "fd00:60::4", "fd00:60::30"), spanOf("10.60.0.0/26", "10.60.0.6", "10.60.0.50")}},
		{name: "net-f", space: "other", spans: []span{spanOf("10.50.0.0/24", "10.50.0.10", "10.50.0.24")}},
		{name: "net-g", space: "other", spans: []span{spanOf("10.50.0.0/26", "10.50.0.12", "10.50.0.30")}},
		{name: "net-h", unprotected: true, spans: []span{spanOf("10.70.0.0/24", "10.70.0.1", "10.70.0.12")}},
	}
}

// config is what a runtime sends to the plugin for this network.
func (n *network) config(datastore Object) Object {
	var ranges []Object
	for _, s := range n.spans {
		ranges = append(ranges, Object{"range": s.pool.String(), "range_start": s.first.String(), "range_end": s.last.String()})
	}
	settings := Object{
		"type":     "whereabouts",
		"ipRanges": ranges, "log_level": "debug", "enable_overlapping_ranges": !n.unprotected,
	}
	maps.Copy(settings, datastore)
	if n.space != "" {
		settings["network_name"] = n.space
	}
	return Object{"cniVersion": "1.1.0", "name": n.name, "type": "macvlan", "ipam": settings}
}

// with is a copy of a configuration with some top-level keys set.
func with(config, more Object) Object {
	merged := maps.Clone(config)
	maps.Copy(merged, more)
	return merged
}

// slot is where a place is written down.
type slot struct {
	place
	pools       []string // names of the pools that may have it
	keys        []string // and its key in each
	reservation string
}

// atlas finds slots.
type atlas struct {
	byPlace       map[place]*slot
	byReservation map[string]*slot
	byEntry       map[string]*slot // pool/key
}

// newAtlas lists all places that networks can hand out.
func newAtlas(all []*network) *atlas {
	a := &atlas{byPlace: map[place]*slot{}, byReservation: map[string]*slot{}, byEntry: map[string]*slot{}}
	for _, n := range all {
		for _, s := range n.spans {
			for address := s.first; !s.last.Less(address); address = address.Next() {
				a.add(n.space, s.pool, address)
			}
		}
	}
	return a
}

func (a *atlas) add(space string, pool netip.Prefix, address netip.Addr) {
	at := place{space, address}
	here := a.byPlace[at]
	if here == nil {
		here = &slot{place: at, reservation: kube.ReservationName(space, address)}
		a.byPlace[at], a.byReservation[here.reservation] = here, here
	}
	name := kube.PoolName(ipam.PoolID{Network: space, Range: pool})
	if slices.Contains(here.pools, name) {
		return
	}
	offset, _ := ipam.Offset(pool.Addr(), address)
	here.pools, here.keys = append(here.pools, name), append(here.keys, offset.String())
	a.byEntry[name+"/"+offset.String()] = here
}
