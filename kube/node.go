package kube

import (
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// The taints that tell of a node whose pods do not run any more, or may not.
const (
	outOfServiceTaint = "node.kubernetes.io/out-of-service"
	unreachableTaint  = "node.kubernetes.io/unreachable"
)

// nodeObject is the part of a node that is decoded.
type nodeObject struct {
	Metadata struct {
		Name    string `json:"name"`
		Version string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Taints []struct {
			Key   string `json:"key"`
			Added string `json:"timeAdded"` // taints with the effect NoExecute alone have it
		} `json:"taints"`
	} `json:"spec"`
}

func (o *nodeObject) ident() identity { return identity{"", o.Metadata.Name, o.Metadata.Version} }

// node translates the object. A node is unreachable with two taints of the same
// key, NoSchedule and NoExecute; the latter says since when. Without a time it is
// not said to be unreachable: nothing can be said about for how long.
func (o *nodeObject) node() reclaim.Node {
	n := reclaim.Node{Name: o.Metadata.Name}
	for _, taint := range o.Spec.Taints {
		switch taint.Key {
		case outOfServiceTaint:
			n.OutOfService = true
		case unreachableTaint:
			n.Unreachable = earlier(n.Unreachable, parseTime(taint.Added))
		}
	}
	return n
}

// earlier is the earlier of two times of which either may be unknown.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// nodeConcerns reports whether a change of a node may leave an address to nobody.
// Heart-beats and other taints do not.
func nodeConcerns(before, after *reclaim.Node) bool {
	switch {
	case after == nil:
		return true
	case before == nil:
		return after.OutOfService || !after.Unreachable.IsZero()
	default:
		return before.OutOfService != after.OutOfService || !before.Unreachable.Equal(after.Unreachable)
	}
}
