package local

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// The file's layout, version 1. Names ending in / are buckets, the others are
// keys; <...> stands for a value.
//
//	whereabouts/
//	    layout                          "1"
//	networks/
//	    network_name=<network_name>/    the default address space has an empty name
//	        pools/
//	            <range>[ <node>]/       10.0.0.0/24, or 10.0.0.0/26 node1 for a node's slice
//	                <address>           a record
//	        reservations/
//	            <address>               a reservation
//
// Records and reservations are JSON, to be read by a person too; fields without
// a value are left out:
//
//	record       {"id":"<container id>","ifname":"net1","podref":"default/pod","gen":"9f86d081",
//	             "uid":"...","node":"...","network":"...","since":"2026-01-02T15:04:05Z"}
//	reservation  the same without gen, and with "range":"10.0.0.0/24", the pool it belongs to
//
// A change that older versions would misunderstand needs a new version number:
// a file with another one is refused.
const layoutVersion = "1"

const networkPrefix = "network_name="

var (
	keyMeta         = []byte("whereabouts")
	keyLayout       = []byte("layout")
	keyNetworks     = []byte("networks")
	keyPools        = []byte("pools")
	keyReservations = []byte("reservations")
)

// entry is a stored record or reservation.
type entry struct {
	ipam.Record
	pool       string // the range of a reservation
	version    string // the value as it is stored; set by get
	unreadable bool   // then only the version is not empty
}

// stored is the JSON of an entry.
type stored struct {
	ID      string    `json:"id,omitempty"`
	IfName  string    `json:"ifname,omitempty"`
	PodRef  string    `json:"podref,omitempty"`
	Gen     string    `json:"gen,omitempty"`
	UID     string    `json:"uid,omitempty"`
	Node    string    `json:"node,omitempty"`
	Network string    `json:"network,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Range   string    `json:"range,omitempty"`
}

func encodeRecord(r ipam.Record) []byte { return encode(r, "") }

func encodeReservation(r ipam.Record, id ipam.PoolID) []byte {
	r.Gen = ""
	return encode(r, id.Range.Masked().String())
}

func encode(r ipam.Record, cidr string) []byte {
	value, err := json.Marshal(stored{
		ID: r.ContainerID, IfName: r.IfName, PodRef: r.PodRef, Gen: r.Gen,
		UID: r.UID, Node: r.Node, Network: r.Network, Since: r.Since, Range: cidr,
	})
	if err != nil {
		panic(err) // only a year beyond 9999 does this
	}
	return value
}

// decode reads an entry. One that names no owner at all is unreadable too.
func decode(value []byte) entry {
	var v stored
	if err := json.Unmarshal(value, &v); err != nil || v.ID == "" && v.PodRef == "" {
		return entry{unreadable: true}
	}
	return entry{pool: v.Range, Record: ipam.Record{
		ContainerID: v.ID, IfName: v.IfName, PodRef: v.PodRef, Gen: v.Gen,
		UID: v.UID, Node: v.Node, Network: v.Network, Since: v.Since,
	}}
}

func networkKey(network string) []byte { return []byte(networkPrefix + network) }

func poolKey(id ipam.PoolID) []byte {
	if id.Node == "" {
		return []byte(id.Range.Masked().String())
	}
	return []byte(id.Range.Masked().String() + " " + id.Node)
}

func parsePoolKey(network string, key []byte) (ipam.PoolID, bool) {
	cidr, node, _ := strings.Cut(string(key), " ")
	p, err := netip.ParsePrefix(cidr)
	id := ipam.PoolID{Network: network, Node: node, Range: p}
	return id, err == nil && bytes.Equal(poolKey(id), key)
}

func addressKey(a netip.Addr) []byte { return []byte(a.String()) }

// parseAddressKey accepts an address only as addressKey writes it: under
// another spelling nobody would look for it.
func parseAddressKey(key []byte) (netip.Addr, bool) {
	a, err := netip.ParseAddr(string(key))
	return a, err == nil && a.String() == string(key)
}

// space is the bucket of a network_name; nil if there is none.
type space struct{ bucket *bbolt.Bucket }

func spaceOf(tx *bbolt.Tx, network string) space {
	all := tx.Bucket(keyNetworks)
	if all == nil {
		return space{}
	}
	return space{all.Bucket(networkKey(network))}
}

func eachSpace(tx *bbolt.Tx, fn func(network string, in space)) error {
	all := tx.Bucket(keyNetworks)
	if all == nil {
		return nil
	}
	return all.ForEachBucket(func(key []byte) error {
		if network, ok := strings.CutPrefix(string(key), networkPrefix); ok {
			fn(network, space{all.Bucket(key)})
		}
		return nil
	})
}

func (s space) child(key []byte) *bbolt.Bucket {
	if s.bucket == nil {
		return nil
	}
	return s.bucket.Bucket(key)
}

func (s space) pool(id ipam.PoolID) *bbolt.Bucket {
	if pools := s.child(keyPools); pools != nil {
		return pools.Bucket(poolKey(id))
	}
	return nil
}

func (s space) record(id ipam.PoolID, a netip.Addr) (entry, bool) { return get(s.pool(id), a) }

func (s space) reservation(a netip.Addr) (entry, bool) { return get(s.child(keyReservations), a) }

func get(b *bbolt.Bucket, a netip.Addr) (entry, bool) {
	if b == nil {
		return entry{}, false
	}
	value := b.Get(addressKey(a))
	if value == nil {
		return entry{}, false
	}
	e := decode(value)
	e.version = string(value)
	return e, true
}

// inOtherPool returns a pool of the network, other than the given one, that has
// a record of the address.
func (s space) inOtherPool(id ipam.PoolID, a netip.Addr) (other ipam.PoolID, found bool) {
	pools := s.child(keyPools)
	if pools == nil {
		return other, false
	}
	_ = pools.ForEachBucket(func(key []byte) error {
		if bytes.Equal(key, poolKey(id)) || pools.Bucket(key).Get(addressKey(a)) == nil {
			return nil
		}
		if p, ok := parsePoolKey(id.Network, key); ok {
			other, found = p, true
		}
		return nil
	})
	return other, found
}
