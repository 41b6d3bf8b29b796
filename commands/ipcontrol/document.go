package ipcontrol

import (
	"math/big"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// poolsDocument is what show prints of pools.
type poolsDocument struct {
	Pools []poolDocument `json:"pools"`
}

// poolDocument is one pool.
type poolDocument struct {
	Namespace string `json:"namespace,omitempty"` // of its object
	Name      string `json:"name"`                // of its object
	Network   string `json:"network,omitempty"`   // network_name
	Node      string `json:"node,omitempty"`      // whose slice it is
	Range     string `json:"range"`
	Total     string `json:"total"`    // usable addresses
	Used      int    `json:"used"`     // recorded
	Excluded  string `json:"excluded"` // of total, by definitions and their gateways
	Free      string `json:"free"`
	// Unreadable counts entries that cannot be read, Closed is true for a slice
	// that is being taken from its node.
	Unreadable int  `json:"unreadable,omitempty"`
	Closed     bool `json:"closed,omitempty"`
	// Defined says that a definition was found that names the pool; without one
	// total is that of the range alone.
	Defined   bool               `json:"defined"`
	Addresses *[]addressDocument `json:"addresses,omitempty"` // of show POOL

	total, excluded, free *big.Int
}

// addressDocument is one recorded address.
type addressDocument struct {
	Address string `json:"address"`
	// State is held, reserved (by an operator) or unreadable; in show IP also
	// free, excluded, gateway, unusable (never handed out: the range's own, or
	// outside start and end) and claimed (reserved for an owner without an entry).
	State       string     `json:"state"`
	Namespace   string     `json:"namespace,omitempty"` // of the pool's object
	Pool        string     `json:"pool,omitempty"`
	Network     string     `json:"network,omitempty"` // network_name
	Pod         string     `json:"pod,omitempty"`     // namespace/name
	PodPhase    string     `json:"podPhase,omitempty"`
	Interface   string     `json:"interface,omitempty"`
	Node        string     `json:"node,omitempty"`
	ContainerID string     `json:"containerID,omitempty"`
	UID         string     `json:"uid,omitempty"`
	CNINetwork  string     `json:"cniNetwork,omitempty"`
	Purpose     string     `json:"purpose,omitempty"` // of one that an operator reserved
	Since       *time.Time `json:"since,omitempty"`
	// Reservation says whether there is one beside the record.
	Reservation bool   `json:"reservation"`
	Text        string `json:"text,omitempty"` // in words; in show IP
}

// addressesDocument is what show prints of a pod.
type addressesDocument struct {
	Addresses []addressDocument `json:"addresses"`
}

// answerDocument is what show prints of an address. Without answers it is outside
// every pool.
type answerDocument struct {
	Address string            `json:"address"`
	Answers []addressDocument `json:"answers"`
}

const (
	stateHeld       = "held"
	stateReserved   = "reserved"
	stateUnreadable = "unreadable"
	stateFree       = "free"
	stateExcluded   = "excluded"
	stateGateway    = "gateway"
	stateUnusable   = "unusable"
	stateClaimed    = "claimed"
)

func (v *view) poolDocument(s stored) poolDocument {
	ranges := v.ranges(s.pool.ID)
	u := ipam.UsageOf(s.pool, ranges...)
	return poolDocument{
		Namespace: s.namespace, Name: s.name(), Network: s.pool.ID.Network, Node: s.pool.ID.Node, Range: s.pool.ID.Range.String(),
		Total: u.Total.String(), Used: u.Used, Excluded: u.Excluded.String(), Free: u.Free.String(),
		Unreadable: len(s.pool.Bad), Closed: s.pool.Closed, Defined: len(ranges) > 0,
		total: u.Total, excluded: u.Excluded, free: u.Free,
	}
}

// describe fills in what a record says.
func (d *addressDocument) describe(r ipam.Record) {
	d.State = recordState(r)
	d.Pod, d.Interface, d.Node, d.UID, d.CNINetwork = r.PodRef, r.IfName, r.Node, r.UID, r.Network
	d.ContainerID = r.ContainerID
	if r.Reserved() {
		d.Purpose = purpose(r)
		d.ContainerID = ""
	}
	if !r.Since.IsZero() {
		since := r.Since.UTC()
		d.Since = &since
	}
}

// purpose is what an operator keeps an address for.
func purpose(r ipam.Record) string { return strings.TrimPrefix(r.ContainerID, ipam.ReservedID("")) }

func recordState(r ipam.Record) string {
	switch {
	case r == ipam.Record{}:
		return stateUnreadable
	case r.Reserved():
		return stateReserved
	}
	return stateHeld
}
