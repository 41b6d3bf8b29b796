package integration

import (
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// record is one entry of a pool or one reservation, in what they have in common.
type record struct {
	container, podRef, ifName string
}

// held is an entry of a pool, with its place.
type held struct {
	pool, network, key string
	address            netip.Addr
	record
}

// checkRecords compares all entries with all reservations of a cluster: no
// address twice, no half records.
func (c *cluster) checkRecords(t testing.TB) {
	t.Helper()
	reserved := c.reservations()
	for _, entry := range c.entries() {
		name := reservationName(entry.network, entry.address)
		spec, found := reserved[name]
		delete(reserved, name)
		if c.halves[entry.address.String()] || c.unprotected {
			continue
		}
		if !found {
			t.Errorf("%s of %s in pool %s has no reservation of its own", entry.address, entry.container, entry.pool)
			continue
		}
		entry.compare(t, spec)
	}
	for name, spec := range reserved {
		if !c.halves[name] {
			t.Errorf("reservation %s without an entry in a pool: %v", name, spec)
		}
	}
}

// compare tells differences. What old plugins did not write does not count.
func (h held) compare(t testing.TB, reservation Object) {
	t.Helper()
	for _, field := range []struct{ name, entry, reservation string }{
		{"containerid", h.container, reservation.String("containerid")},
		{"podref", h.podRef, reservation.String("podref")},
		{"ifname", h.ifName, reservation.String("ifname")},
	} {
		old := field.name != "podref" && (field.entry == "" || field.reservation == "")
		if field.entry != field.reservation && !old {
			t.Errorf("%s: %s is %q in pool %s and %q in the reservation", h.address, field.name, field.entry, h.pool, field.reservation)
		}
	}
}

// entries are the readable entries of all pools. An address with two of them in
// one address space has only one reservation, so that the second stands out.
func (c *cluster) entries() []held {
	var all []held
	for name, pool := range c.pools() {
		base, err := netip.ParsePrefix(pool.String("range"))
		if err != nil {
			c.t.Errorf("pool %s: %v", name, err)
			continue
		}
		network := c.withoutNode(name, networkOf(name, base))
		allocations, _ := pool["allocations"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(allocations)) {
			address, ok := offset(base, key)
			if !ok {
				continue
			}
			spec := Object(allocations[key].(map[string]any))
			all = append(all, held{name, network, key, address, record{spec.String("id"), spec.String("podref"), spec.String("ifname")}})
		}
	}
	return all
}

// withoutNode is the network's part of what stands before a slice in a pool's name.
// Pools that we make say whose they are; for older ones the test does.
func (c *cluster) withoutNode(pool, network string) string {
	c.t.Helper()
	nodes := c.nodes
	if node := c.cp.Must(c.t).Get(c.path("ippools")+"/"+pool).String("metadata", "annotations", group+"/node"); node != "" {
		nodes = []string{node}
	}
	for _, node := range nodes {
		if network == node {
			return ""
		}
		network = strings.TrimSuffix(network, "-"+node)
	}
	return network
}

// offset answers the address that a key stands for.
func offset(base netip.Prefix, key string) (netip.Addr, bool) {
	n, ok := new(big.Int).SetString(key, 10)
	if !ok || n.Sign() < 0 {
		return netip.Addr{}, false
	}
	bytes := base.Addr().AsSlice()
	n.Add(n, new(big.Int).SetBytes(bytes))
	if n.BitLen() > len(bytes)*8 {
		return netip.Addr{}, false
	}
	address, _ := netip.AddrFromSlice(n.FillBytes(bytes))
	return address, base.Contains(address)
}

// rangeName is how a range appears in the name of a pool.
func rangeName(r netip.Prefix) string {
	return strings.NewReplacer(":", "-", "/", "-").Replace(r.Masked().String())
}

// networkOf is the network's part of a pool's name.
func networkOf(pool string, r netip.Prefix) string {
	if pool == "0"+rangeName(r) { // mended: a name cannot begin with "-"
		return ""
	}
	return strings.TrimSuffix(strings.TrimSuffix(pool, rangeName(r)), "-")
}

// reservationName is the name of an address's reservation. The network is as it
// appears in names of pools.
func reservationName(network string, a netip.Addr) string {
	name := a.String()
	if strings.HasSuffix(name, ":") {
		name += "0"
	}
	name = strings.ReplaceAll(name, ":", "-")
	switch {
	case network != "":
		return network + "-" + name
	case strings.HasPrefix(name, "-"):
		return "0" + name
	}
	return name
}

// holders says who holds what, for messages and comparisons: "pool/key" to
// "container podref ifname".
func (c *cluster) holders() map[string]string {
	all := map[string]string{}
	for _, e := range c.entries() {
		all[e.pool+"/"+e.key] = fmt.Sprintf("%s %s %s", e.container, e.podRef, e.ifName)
	}
	return all
}
