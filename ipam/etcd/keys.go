package etcd

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"net/url"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// The keys, layout version 1. <...> stands for a value. Names are escaped as in
// URLs; addresses have all their digits, so that their keys are in their order:
// 010.000.000.001, fd00:0000:0000:0000:0000:0000:0000:0001.
//
//	/whereabouts-records/v1/network_name=<network_name>/
//	    pools/<pool>/<address>                         a record
//	    reservations/<address>                         a reservation
//	    owners/<pool>/container=<id>/<address>         index of records, without value
//	    owners/<pool>/pod=<namespace/name>/<address>   the same
//	    blocks/<pool>/<first address of a block>       a note: see block
//	    fences/<00 to ff>                              of containers with this hash: see fence
//
// <pool> is a range, 10.0.0.0/24, or with a blank and a node's name behind it the
// slice of a node. The default address space has an empty name.
const root = "/whereabouts-records/v1/"

const (
	kindPools        = "pools"
	kindReservations = "reservations"
	kindOwners       = "owners"
	kindBlocks       = "blocks"
	kindFences       = "fences"

	networkPrefix = "network_name="
)

func spaceKey(network string) string {
	return root + networkPrefix + url.PathEscape(network) + "/"
}

func poolName(id ipam.PoolID) string {
	name := id.Range.Masked().String()
	if id.Node != "" {
		name += " " + url.PathEscape(id.Node)
	}
	return name
}

// poolKey begins the keys of a pool's records.
func poolKey(id ipam.PoolID) string {
	return spaceKey(id.Network) + kindPools + "/" + poolName(id) + "/"
}

func recordKey(id ipam.PoolID, a netip.Addr) string { return poolKey(id) + digits(a) }

func reservationsKey(network string) string { return spaceKey(network) + kindReservations + "/" }

func reservationKey(network string, a netip.Addr) string {
	return reservationsKey(network) + digits(a)
}

// blocksKey begins the keys of a pool's notes.
func blocksKey(id ipam.PoolID) string {
	return spaceKey(id.Network) + kindBlocks + "/" + poolName(id) + "/"
}

func blockKey(id ipam.PoolID, a netip.Addr) string { return blocksKey(id) + digits(blockOf(a)) }

// fenceKey is the key of a container's fence. Many containers share one of 256, so that
// none of them has to be removed.
func fenceKey(network, container string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(container)) // never fails (hash.Hash)
	return spaceKey(network) + kindFences + "/" + fmt.Sprintf("%02x", byte(h.Sum32()))
}

// ownerKeys begin the keys of the index, under which the records of an owner are
// found: by container, and by pod if there is one.
func ownerKeys(id ipam.PoolID, container, pod string) []string {
	of := spaceKey(id.Network) + kindOwners + "/" + poolName(id) + "/"
	var keys []string
	if container != "" {
		keys = append(keys, of+"container="+url.PathEscape(container)+"/")
	}
	if pod != "" {
		keys = append(keys, of+"pod="+url.PathEscape(pod)+"/")
	}
	return keys
}

// place is what a key of a record or a reservation says.
type place struct {
	network string
	kind    string
	pool    ipam.PoolID // of a record
	last    string      // the address as written
	address netip.Addr  // invalid if last is none
}

// parseKey reads the key of a record or a reservation.
func parseKey(key string) (place, bool) {
	parts := strings.Split(strings.TrimPrefix(key, root), "/")
	name, found := strings.CutPrefix(parts[0], networkPrefix)
	network, err := url.PathUnescape(name)
	if !found || err != nil || len(parts) < 3 {
		return place{}, false
	}
	p := place{network: network, kind: parts[1], last: parts[len(parts)-1]}
	p.address, _ = parseDigits(p.last)
	switch {
	case p.kind == kindReservations && len(parts) == 3:
		return p, true
	case p.kind == kindPools && len(parts) == 5:
		var ok bool
		p.pool, ok = parsePoolName(network, parts[2]+"/"+parts[3])
		return p, ok
	}
	return place{}, false
}

func parsePoolName(network, name string) (ipam.PoolID, bool) {
	cidr, escaped, _ := strings.Cut(name, " ")
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ipam.PoolID{}, false
	}
	node, err := url.PathUnescape(escaped)
	id := ipam.PoolID{Network: network, Node: node, Range: prefix}
	return id, err == nil && poolName(id) == name
}

// digits writes an address with all its digits.
func digits(a netip.Addr) string {
	if a.Is4() {
		b := a.As4()
		return fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3])
	}
	return a.StringExpanded()
}

// parseDigits accepts an address only as digits writes it: under another spelling
// nobody would look for it.
func parseDigits(s string) (netip.Addr, bool) {
	a, err := ipam.ParseAddr(s)
	return a, err == nil && digits(a) == s
}

// end is behind all keys that begin with a prefix, which ends in a slash.
func end(prefix string) string { return prefix[:len(prefix)-1] + "0" }

// blockOf is the first address of the block of 256 around an address.
func blockOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		b := a.As4()
		b[3] = 0
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	b[15] = 0
	return netip.AddrFrom16(b)
}

// lastOf is the last address of the block around an address.
func lastOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		b := a.As4()
		b[3] = 255
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	b[15] = 255
	return netip.AddrFrom16(b)
}
