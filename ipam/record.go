package ipam

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"go4.org/netipx"
)

// Owner is who asks for an address or gives it back: one network interface of
// one container.
type Owner struct {
	ContainerID string // CNI_CONTAINERID: the pod's sandbox, new at each restart of it
	IfName      string // CNI_IFNAME
	PodRef      string // "namespace/name"; "" when the runtime names no pod
	UID         string // of the pod; "" when unknown
	Node        string // the node this runs on; "" when unknown
	Network     string // name of the CNI network; "" when unknown
}

// sameHolder reports whether two owners may continue each other's records.
func (o Owner) sameHolder(other Owner) bool {
	return o.IfName == other.IfName &&
		(o.ContainerID == other.ContainerID || o.PodRef != "" && o.PodRef == other.PodRef)
}

// LogValue groups the owner's fields in a log.
func (o Owner) LogValue() slog.Value {
	return slog.GroupValue(slog.String("container", o.ContainerID), slog.String("interface", o.IfName), slog.String("pod", o.PodRef))
}

// Record says who holds an address. The first four fields decide ownership; the
// others are details and zero when unknown.
type Record struct {
	ContainerID string
	IfName      string // "" in records of old versions: any interface of the container
	PodRef      string // "namespace/name", or "" for an owner without a pod
	Gen         string // random token rewritten at every ADD; "" in records of old versions

	UID     string
	Node    string
	Network string
	Since   time.Time

	// Unprotected is true when the entry itself says that it was taken without
	// overlap protection, so that it needs no reservation. False is unknown for a
	// record without Gen: with one, it was taken with protection.
	// Stores fill it in when they read, if they can tell, and ignore it when
	// they write.
	Unprotected bool
}

// NewRecord is the record of an owner that takes an address now.
func NewRecord(o Owner, now time.Time) Record {
	return Record{
		ContainerID: o.ContainerID, IfName: o.IfName, PodRef: o.PodRef, Gen: newGen(),
		UID: o.UID, Node: o.Node, Network: o.Network, Since: now.UTC().Truncate(time.Second),
	}
}

func newGen() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Same reports whether two records name the same holding: what a release tests,
// so that it never frees a newer holder of the address. Details do not count. A
// token that is missing on one side is unknown and does not tell them apart: old
// resource definitions prune it.
func (r Record) Same(other Record) bool {
	return r.ContainerID == other.ContainerID && r.IfName == other.IfName &&
		(r.Gen == other.Gen || r.Gen == "" || other.Gen == "")
}

// OfContainer reports whether the record is this very container interface's.
// A record without an interface name is every interface's of its container.
func (r Record) OfContainer(containerID, ifName string) bool {
	return r.ContainerID == containerID && (r.IfName == ifName || r.IfName == "")
}

// OwnedBy reports whether the owner may continue the record: it is the
// container's own, or the same pod's and interface's under an older container
// id (adoption). A pod of the same name with another known UID is another pod.
// Owners without a pod have their container id alone.
func (r Record) OwnedBy(o Owner) bool {
	if r.OfContainer(o.ContainerID, o.IfName) {
		return true
	}
	if o.PodRef == "" || r.PodRef != o.PodRef {
		return false
	}
	if r.UID != "" && o.UID != "" && r.UID != o.UID {
		return false
	}
	return r.IfName == o.IfName || r.IfName == ""
}

// reservedPrefix begins the container id of an address that an operator keeps out
// of circulation; what it is kept for follows.
const reservedPrefix = "reserved:"

// ReservedID is the container id of the record of an address that is kept out of
// circulation for a purpose.
func ReservedID(purpose string) string { return reservedPrefix + purpose }

// Reserved reports whether an operator keeps the address out of circulation. Such a
// record has no pod, and nothing but its operator frees it.
func (r Record) Reserved() bool { return strings.HasPrefix(r.ContainerID, reservedPrefix) }

// Holder is the record's owner in words for a person: "namespace/name", or the
// container id when there is no pod.
func (r Record) Holder() string {
	if r.PodRef != "" {
		return r.PodRef
	}
	if r.ContainerID == "" {
		return "an unknown owner"
	}
	return "container " + r.ContainerID
}

// PoolID names a pool: one range in one address space, or one node's slice of
// it.
type PoolID struct {
	Network string       // network_name; "" is the default address space
	Node    string       // "" unless the pool is a node's slice
	Range   netip.Prefix // masked
}

// String is the pool in words: "10.0.0.0/26", "10.0.0.0/26 of network a, node b".
func (id PoolID) String() string {
	text := id.Range.String()
	if id.Network != "" {
		text += " of network " + id.Network
	}
	if id.Node != "" {
		text += ", node " + id.Node
	}
	return text
}

// Pool is a pool's content as read from the store.
type Pool struct {
	ID      PoolID
	Exists  bool                  // false: nothing stored yet, Records is empty
	Base    netip.Addr            // addresses below it cannot be recorded in this pool
	Records map[netip.Addr]Record // by address
	Bad     []string              // keys of entries that cannot be read; they are left as they are

	// Of a pool that was not read whole (see Searcher): spans in which every address
	// is held though Records does not have it, sorted and apart from each other, and
	// how many records there are beside those in Records, if that was counted.
	Full []netipx.IPRange
	More int

	// Closed is true for a node's slice that is being taken away from the node:
	// nothing can be taken from the pool, only released.
	Closed bool
}

// Reservation claims an address in a whole address space (one network_name),
// across the ranges that contain it.
type Reservation struct {
	Space   string // network_name
	Address netip.Addr
	Record         // Gen is not stored in reservations
	Range   string // the pool it belongs to as a CIDR; "" when unknown

	// Version is another one after each write of the reservation. It says
	// nothing more and is compared for equality only; "" when unknown. It is for
	// Change.Seen.
	Version string
}

// Beside reports whether nothing that is known contradicts that the reservation is
// the other half of a pool's record. Its container id may lag behind: older
// versions adopt a record without rewriting the reservation.
func (r Reservation) Beside(id PoolID, record Record) bool {
	if p, err := netip.ParsePrefix(r.Range); err == nil && p.Masked() != id.Range.Masked() {
		return false
	}
	if differ(record.IfName, r.IfName) {
		return false
	}
	if record.PodRef != "" && r.PodRef != "" {
		return record.PodRef == r.PodRef
	}
	return !differ(record.ContainerID, r.ContainerID)
}
