package reclaim

import (
	"context"
	"net/netip"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Phase is a pod's status.phase.
type Phase string

// The phases of a pod that clean-up tells apart; any other counts as Running.
const (
	Pending   Phase = "Pending"
	Running   Phase = "Running"
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
)

// Pod is what clean-up needs to know of a pod.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	// OtherUIDs are further names of this pod's life: a mirror pod's config hash
	// and the hash of what it mirrors, under which its containers run.
	OtherUIDs []string
	Node      string // "" until it is scheduled
	Phase     Phase
	Created   time.Time
	// Deleted is metadata.deletionTimestamp, the moment by which it should be
	// gone: the request plus Grace. Zero while nobody has deleted it.
	Deleted time.Time
	Grace   time.Duration

	// Networks says that the network status annotation is there and can be
	// read; Addresses is what it lists, of all networks and interfaces.
	Networks  bool
	Addresses []netip.Addr

	// Wants is the annotation with the networks that it asks for, while it is
	// Pending; else "".
	Wants string
}

// Node is what clean-up needs to know of a node that exists.
type Node struct {
	Name         string
	OutOfService bool      // has the taint node.kubernetes.io/out-of-service
	Unreachable  time.Time // since when it has the taint node.kubernetes.io/unreachable; zero: it has not
}

// Cluster answers what there is. An answer may be as old as the implementation
// says: that of a watch may lag behind, a live one is made for this call. All
// methods are safe for concurrent use. Errors wrap ipam.ErrUnavailable or
// ipam.ErrDenied; on any error nothing is known.
type Cluster interface {
	// Pod returns nil if there is no such pod.
	Pod(ctx context.Context, namespace, name string) (*Pod, error)
	// Node returns nil if there is no such node.
	Node(ctx context.Context, name string) (*Node, error)
}

// Networks answers what the network definitions of the cluster say.
type Networks interface {
	// Protection reports whether overlap protection is on for the records of a
	// pool: known is false when no definition names the pool, or those that do
	// contradict each other.
	Protection(ipam.PoolID) (on, known bool)
	// Named reports whether a definition names the pool. It answers true when
	// in doubt (definitions not read, or one that cannot be understood).
	Named(ipam.PoolID) bool
}

// Event is something to tell the owner of a pod.
type Event struct {
	Pod     Pod
	Warning bool   // else Normal
	Reason  string // CamelCase, for machines
	Message string
	// Once, if set, names what is told: of several events on a pod with the same
	// one, whoever posts them, the pod shows the first.
	Once string
}

// Recorder tells owners of pods. It never blocks for long and never fails: an event
// that cannot be delivered is dropped.
type Recorder interface {
	Event(Event)
}
