package kube

import (
	"net/netip"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

// PoolHead is a pool object without its content. Whether it is a node's is a question
// of the network that asks: the name does not always tell.
type PoolHead struct {
	Name         string
	State        slice.State // Closing, Closed or Unknown
	UID, Version string

	node  string // as the object says itself; "" when it does not
	tails []nameEnd
}

// nameEnd is one way to read the end of a pool's name as a range.
type nameEnd struct {
	at   int // where it begins
	part netip.Prefix
}

func newPoolHead(m objectMeta) *PoolHead {
	p := nodePool(ipam.PoolID{}, m, slice.Unknown)
	return &PoolHead{
		Name: m.Name, State: p.State, UID: p.UID, Version: p.Version,
		node: m.Annotations[nodeAnnotation], tails: nameEnds(m.Name),
	}
}

// nameEnds lists the ranges that a name may end in and that have something before them.
func nameEnds(name string) []nameEnd {
	var ends []nameEnd
	for i := 2; i < len(name); i++ {
		if name[i-1] != '-' {
			continue
		}
		if part, ok := prefixNamed(name[i:]); ok {
			ends = append(ends, nameEnd{i, part})
		}
	}
	return ends
}

// In is the pool as a network sees it that has an address space (network_name, or "")
// and a range, if it is the pool of a node there. See Store.NodePools for names that
// are ambiguous.
func (h *PoolHead) In(space string, whole netip.Prefix) (NodePool, bool) {
	for _, end := range h.tails {
		if !within(end.part, whole) {
			continue
		}
		if id, ok := nodePoolEnding(h.Name, h.node, space, end); ok {
			return h.as(id), true
		}
	}
	return NodePool{}, false
}

// Marked is the pool under the id that its name and the object itself tell, if it is
// marked: whichever network it is of. Only node pools ever are.
func (h *PoolHead) Marked() (NodePool, bool) {
	if h.node == "" || h.State != slice.Closing && h.State != slice.Closed {
		return NodePool{}, false
	}
	for _, end := range h.tails {
		if id, ok := nodePoolNamed(h.Name, h.node, end.part); ok {
			return h.as(id), true
		}
	}
	return NodePool{}, false
}

// as is the pool under an id that is known to be its own.
func (h *PoolHead) as(id ipam.PoolID) NodePool {
	return NodePool{ID: id, State: h.State, UID: h.UID, Version: h.Version}
}

// Of is the pool of a node's slice, if this is its object.
func (h *PoolHead) Of(id ipam.PoolID) (NodePool, bool) {
	if PoolName(id) != h.Name {
		return NodePool{}, false
	}
	return h.as(id), true
}

// nodePoolEnding reads the front of a name whose end is known.
func nodePoolEnding(name, node, space string, end nameEnd) (ipam.PoolID, bool) {
	found, ok := name[:end.at-1], true
	if space != "" {
		network := networkOf(PoolName(ipam.PoolID{Network: space, Range: end.part}), name[end.at:])
		found, ok = strings.CutPrefix(found, network+"-")
	}
	if node != "" && len(found) > 0 {
		// The name of a node may be spelled otherwise in the name of the object.
		if id := (ipam.PoolID{Network: space, Node: node, Range: end.part}); PoolName(id) == name {
			return id, true
		}
	}
	id := ipam.PoolID{Network: space, Node: found, Range: end.part}
	return id, ok && found != "" && (node == "" || node == found) && PoolName(id) == name
}

// HeadOf is the head of a pool with all that we write into it.
func HeadOf(p NodePool) *PoolHead {
	head := &PoolHead{Name: PoolName(p.ID), State: p.State, UID: p.UID, Version: p.Version, node: p.ID.Node}
	if p.State != slice.Closing && p.State != slice.Closed {
		head.State = slice.Unknown
	}
	head.tails = nameEnds(head.Name)
	return head
}
