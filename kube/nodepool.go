package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

// NodePool is the pool object of one node for one slice, as package ipam/slice sees
// it: open, or marked while the slice changes hands.
type NodePool struct {
	ID    ipam.PoolID
	State slice.State // Unknown where the content has not been read
	Used  int         // entries, readable or not; 0 where the content has not been read

	// UID and Version are of the object that was read; "" when there is none.
	UID, Version string
}

// Key names the pool in package ipam/slice.
func (p NodePool) Key() slice.Key { return slice.Key{Node: p.ID.Node, Slice: p.ID.Range} }

// NodePools lists the pools of nodes that an address space (network_name, or "") has
// within a range, in no order. Only metadata is read: the State is Closing, Closed or
// Unknown.
//
// The name of an object made by an older version does not say where network and node
// end. Where the name of one network is the beginning of another's and they share
// addresses, such a pool is listed for both.
func (s *Store) NodePools(ctx context.Context, space string, whole netip.Prefix) ([]NodePool, error) {
	found := newMirror(func(o *poolHead) (NodePool, bool) {
		id, ok := nodePoolIn(o.Metadata.Name, o.Metadata.Annotations[nodeAnnotation], space, whole)
		return nodePool(id, o.Metadata, slice.Unknown), ok
	}, nil)
	if err := listAgain(ctx, s.client, collection{name: poolResource, path: s.path(poolResource, ""), slim: true}, found); err != nil {
		return nil, err
	}
	var pools []NodePool
	found.each(func(_ objectKey, p NodePool) { pools = append(pools, p) })
	return pools, nil
}

// NodePool reads one pool of a node. One without an object is Empty.
func (s *Store) NodePool(ctx context.Context, id ipam.PoolID) (NodePool, error) {
	p, _, err := s.readNodePool(ctx, id)
	return p, err
}

// readNodePool also answers whether the pool holds nothing, not even entries that
// cannot be read.
func (s *Store) readNodePool(ctx context.Context, id ipam.PoolID) (p NodePool, empty bool, err error) {
	name := PoolName(id)
	var object struct {
		Metadata objectMeta `json:"metadata"`
		Spec     struct {
			Allocations map[string]any `json:"allocations"`
		} `json:"spec"`
	}
	err = s.client.read(ctx, request{method: http.MethodGet, path: s.path(poolResource, name)}, &object)
	if isMissing(err, name) {
		return NodePool{ID: id, State: slice.Empty}, true, nil
	}
	if err != nil {
		return NodePool{}, false, s.client.explain("read pool "+name, err)
	}
	open := slice.InUse
	if len(object.Spec.Allocations) == 0 {
		open = slice.Empty
	}
	p = nodePool(id, object.Metadata, open)
	p.Used = len(object.Spec.Allocations)
	return p, open == slice.Empty, nil
}

// nodePool reads the mark. One that is not ours is Closing: then the pool is not opened
// before its slice was somebody else's or nobody's.
func nodePool(id ipam.PoolID, m objectMeta, open slice.State) NodePool {
	p := NodePool{ID: id, State: open, UID: m.UID, Version: m.ResourceVersion}
	switch {
	case !m.closed():
	case m.Annotations[closedAnnotation] == markClosed:
		p.State = slice.Closed
	default:
		p.State = slice.Closing
	}
	return p
}

// CloseNodePool marks a pool as Closing, if it is as it was read and holds nothing; it
// makes the object if there is none. It writes even if the pool is Closed. The error
// wraps ErrChanged if somebody else was faster, or if the pool holds something: then it
// has to be looked at again. After any other one the mark may be there or not.
func (s *Store) CloseNodePool(ctx context.Context, p NodePool) error {
	// Should this not be the version that was read, the write fails.
	_, empty, err := s.readNodePool(ctx, p.ID)
	switch {
	case err != nil:
		return err
	case !empty:
		return fmt.Errorf("close pool %s: it holds records: %w", PoolName(p.ID), ErrChanged)
	case p.Version == "":
		return s.makeClosing(ctx, p.ID)
	}
	return s.mark(ctx, p, markClosing)
}

// SealNodePool marks a pool that is Closing as Closed. Errors are those of
// CloseNodePool.
func (s *Store) SealNodePool(ctx context.Context, p NodePool) error {
	if p.State != slice.Closing {
		return fmt.Errorf("seal pool %s: it is not closing: %w", PoolName(p.ID), ErrChanged)
	}
	return s.mark(ctx, p, markClosed)
}

// OpenNodePool takes the mark from a pool that is Closed. Errors are those of
// CloseNodePool.
func (s *Store) OpenNodePool(ctx context.Context, p NodePool) error {
	if p.State != slice.Closed {
		return fmt.Errorf("open pool %s: it is not closed: %w", PoolName(p.ID), ErrChanged)
	}
	return s.mark(ctx, p, nil)
}

// ForgetNodePool deletes the object of a pool that is marked, if it is as it was read and
// holds nothing. It takes the mark along: see package ipam/slice for when that is safe.
// Errors are those of CloseNodePool; one that is gone already is none.
func (s *Store) ForgetNodePool(ctx context.Context, p NodePool) error {
	name := PoolName(p.ID)
	_, empty, err := s.readNodePool(ctx, p.ID)
	switch {
	case err != nil:
		return err
	case !empty || p.State != slice.Closing && p.State != slice.Closed:
		return fmt.Errorf("forget pool %s: it is in use: %w", name, ErrChanged)
	}
	err = s.writeOnce(ctx, request{
		method: http.MethodDelete, path: s.path(poolResource, name),
		body: map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions",
			"preconditions": map[string]string{"uid": p.UID, "resourceVersion": p.Version},
		},
	}, "pool "+name, name, nil)
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// mark writes the mark, or removes it for nil, unless the object was written since it
// was read.
func (s *Store) mark(ctx context.Context, p NodePool, mark any) error {
	name := PoolName(p.ID)
	return s.writeOnce(ctx, request{
		method: http.MethodPatch, path: s.path(poolResource, name), contentType: mergePatch, slim: true,
		body: map[string]any{"metadata": map[string]any{
			"uid": p.UID, "resourceVersion": p.Version,
			"annotations": map[string]any{closedAnnotation: mark},
		}},
	}, "pool "+name, name, nil)
}

func (s *Store) makeClosing(ctx context.Context, id ipam.PoolID) error {
	name := PoolName(id)
	return s.writeOnce(ctx, request{
		method: http.MethodPost, path: s.path(poolResource, ""), slim: true,
		body: ipPool{
			APIVersion: apiVersion, Kind: "IPPool",
			Metadata: objectMeta{Name: name, Namespace: s.client.namespace, Annotations: map[string]string{
				closedAnnotation: markClosing, nodeAnnotation: id.Node,
			}},
			Spec: ipPoolSpec{Range: id.Range.String(), Allocations: map[string]allocation{}},
		},
	}, "pool "+name, name, nil)
}

// nodePoolNamed finds the network of a pool whose node and slice are known.
func nodePoolNamed(name, node string, part netip.Prefix) (ipam.PoolID, bool) {
	if node == "" {
		return ipam.PoolID{}, false
	}
	network := networkOf(name, PoolName(ipam.PoolID{Node: node, Range: part}))
	id := ipam.PoolID{Network: network, Node: node, Range: part}
	return id, PoolName(id) == name
}

// nodePoolIn finds node and slice of a pool by its name, if it is a node's in an
// address space, with a slice of a range. node is what the object says of itself, ""
// when it does not.
func nodePoolIn(name, node, space string, whole netip.Prefix) (ipam.PoolID, bool) {
	p, ok := (&PoolHead{Name: name, node: node, tails: nameEnds(name)}).In(space, whole)
	return p.ID, ok
}

// prefixNamed reads a range as it appears in the name of a pool.
func prefixNamed(text string) (netip.Prefix, bool) {
	slash := strings.LastIndex(text, "-")
	if slash < 0 {
		return netip.Prefix{}, false
	}
	address, length := text[:slash], text[slash:]
	if !strings.Contains(address, ".") {
		address = strings.ReplaceAll(address, "-", ":")
	}
	p, err := netip.ParsePrefix(address + "/" + length[1:])
	return p, err == nil && p == p.Masked()
}
