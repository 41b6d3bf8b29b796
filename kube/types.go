package kube

import (
	"encoding/json"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	group      = "whereabouts.cni.cncf.io"
	version    = "v1alpha1"
	apiVersion = group + "/" + version

	poolResource        = "ippools"
	reservationResource = "overlappingrangeipreservations"
	slicePoolResource   = "nodeslicepools"

	// claimAnnotation has the token of the record that a reservation was
	// rewritten for. Older resource definitions prune what a rewrite changes
	// in the spec, and it has to change something: the resource version is what
	// protects a reservation from the late release of its former owner.
	claimAnnotation = group + "/claim"

	// closedAnnotation marks a node's pool whose slice is being taken from the
	// node, or has been: see package ipam/slice. Any value is a mark. It is an
	// annotation, since older resource definitions prune unknown fields.
	closedAnnotation = group + "/closed"

	// nodeAnnotation has the name of the node that a pool is of: the name of the
	// object does not tell where network and node end.
	nodeAnnotation = group + "/node"

	// networkAnnotation and spaceAnnotation have the network that a list of slices is
	// of, and its network_name: the name of the object does not tell them apart, and
	// the list may outlive the definition.
	networkAnnotation = group + "/network"
	spaceAnnotation   = group + "/network-name"
)

// The values of closedAnnotation.
const (
	markClosing = "closing"
	markClosed  = "closed"
)

type objectMeta struct {
	Name            string `json:"name,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Generation      int64  `json:"generation,omitempty"`

	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"creationTimestamp,omitzero"`
}

// closed reports whether the pool is marked.
func (m objectMeta) closed() bool {
	_, marked := m.Annotations[closedAnnotation]
	return marked
}

type listMeta struct {
	Continue string `json:"continue,omitempty"`
}

type ipPool struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   objectMeta `json:"metadata"`
	Spec       ipPoolSpec `json:"spec"`
}

type ipPoolSpec struct {
	Range       string                `json:"range"`
	Allocations map[string]allocation `json:"allocations"`
}

// allocation is one entry of a pool.
type allocation struct {
	ID      string             `json:"id"`
	PodRef  string             `json:"podref"`
	IfName  string             `json:"ifname,omitempty"`
	Gen     string             `json:"gen,omitempty"`
	Details *allocationDetails `json:"details,omitempty"`
}

// allocationDetails are written only where no reservation carries them, and
// describe the holder only while their id is the entry's: an older plugin that
// adopts an entry rewrites the entry's id alone.
type allocationDetails struct {
	ID      string `json:"id"`
	UID     string `json:"uid,omitempty"`
	Node    string `json:"node,omitempty"`
	Network string `json:"network,omitempty"`
	Since   string `json:"since,omitempty"`
}

// UnmarshalJSON never fails: one entry that cannot be read must not make the other
// entries of its pool unreadable. It is empty then, and names no owner.
func (a *allocation) UnmarshalJSON(data []byte) error {
	type plain allocation
	if err := json.Unmarshal(data, (*plain)(a)); err != nil {
		*a = allocation{}
	}
	return nil
}

type reservation struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   objectMeta      `json:"metadata"`
	Spec       reservationSpec `json:"spec"`
}

type reservationSpec struct {
	PodRef      string `json:"podref"`
	IfName      string `json:"ifname,omitempty"`
	ContainerID string `json:"containerid,omitempty"`
	UID         string `json:"uid,omitempty"`
	Node        string `json:"node,omitempty"`
	Network     string `json:"network,omitempty"`
	Range       string `json:"range,omitempty"`
	Since       string `json:"since,omitempty"`
}

// newAllocation is the entry of a record; with the details only when no
// reservation holds them.
func newAllocation(r ipam.Record, overlap bool) allocation {
	a := allocation{ID: r.ContainerID, PodRef: r.PodRef, IfName: r.IfName, Gen: r.Gen}
	if !overlap {
		a.Details = &allocationDetails{ID: r.ContainerID, UID: r.UID, Node: r.Node, Network: r.Network, Since: formatTime(r.Since)}
	}
	return a
}

func (a allocation) record() ipam.Record {
	r := ipam.Record{ContainerID: a.ID, PodRef: a.PodRef, IfName: a.IfName, Gen: a.Gen}
	if d := a.Details; d != nil && d.ID == a.ID {
		r.UID, r.Node, r.Network, r.Since = d.UID, d.Node, d.Network, parseTime(d.Since)
		r.Unprotected = a.ID != ""
	}
	return r
}

func newReservationSpec(r ipam.Record, id ipam.PoolID) reservationSpec {
	return reservationSpec{
		PodRef: r.PodRef, IfName: r.IfName, ContainerID: r.ContainerID,
		UID: r.UID, Node: r.Node, Network: r.Network, Range: id.Range.String(), Since: formatTime(r.Since),
	}
}

func (s reservationSpec) record() ipam.Record {
	return ipam.Record{
		ContainerID: s.ContainerID, IfName: s.IfName, PodRef: s.PodRef,
		UID: s.UID, Node: s.Node, Network: s.Network, Since: parseTime(s.Since),
	}
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// parseTime answers the zero time for what is not RFC 3339: an unknown age.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
