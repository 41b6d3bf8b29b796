package etcd

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// entryVersion is that of the values. An entry of another version is unreadable: it
// counts as held, and is left as it is.
const entryVersion = 1

// stored is the JSON of a record or a reservation, to be read by a person too:
//
//	record       {"v":1,"id":"<container id>","ifname":"net1","podref":"default/pod","gen":"9f86d081",
//	             "uid":"...","node":"...","network":"...","since":"2026-01-02T15:04:05Z"}
//	reservation  the same without gen, and with "range":"10.0.0.0/24", the pool it belongs to
type stored struct {
	Version int       `json:"v"`
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

// entry is a stored record or reservation.
type entry struct {
	ipam.Record
	pool       string // the range of a reservation
	revision   int64  // of its last write; 0 means that there is none
	unreadable bool
}

func (e entry) exists() bool { return e.revision != 0 }

func encodeRecord(r ipam.Record) []byte { return encode(r, "") }

func encodeReservation(r ipam.Record, id ipam.PoolID) []byte {
	r.Gen = ""
	return encode(r, id.Range.Masked().String())
}

func encode(r ipam.Record, cidr string) []byte {
	value, err := json.Marshal(stored{
		Version: entryVersion, ID: r.ContainerID, IfName: r.IfName, PodRef: r.PodRef, Gen: r.Gen,
		UID: r.UID, Node: r.Node, Network: r.Network, Since: r.Since, Range: cidr,
	})
	if err != nil {
		panic(err) // only a year beyond 9999 does this, and validate refuses that
	}
	return value
}

// entryOf reads the only key of an answer, or that there is none.
func entryOf(found rangeAnswer) entry {
	if len(found.Pairs) == 0 {
		return entry{}
	}
	return decode(found.Pairs[0])
}

// decode reads an entry. One that names no owner at all is unreadable too.
func decode(kv pair) entry {
	var v stored
	if err := json.Unmarshal(kv.Value, &v); err != nil || v.Version != entryVersion || v.ID == "" && v.PodRef == "" {
		return entry{revision: kv.Revision, unreadable: true}
	}
	return entry{pool: v.Range, revision: kv.Revision, Record: ipam.Record{
		ContainerID: v.ID, IfName: v.IfName, PodRef: v.PodRef, Gen: v.Gen,
		UID: v.UID, Node: v.Node, Network: v.Network, Since: v.Since,
	}}
}

// note is the value of a block: what was free in it when a reader looked. Without
// Known a release has crossed it out.
type note struct {
	Known bool  `json:"known,omitempty"`
	Free  []int `json:"free,omitempty"` // the last byte of each address
}

func encodeNote(n note) []byte {
	value, err := json.Marshal(n)
	if err != nil {
		panic(err) // a bool and numbers
	}
	return value
}

func (n note) addresses(block netip.Addr) []netip.Addr {
	var free []netip.Addr
	for _, last := range n.Free {
		b := block.AsSlice()
		b[len(b)-1] = byte(last)
		a, _ := netip.AddrFromSlice(b)
		free = append(free, a)
	}
	return free
}
