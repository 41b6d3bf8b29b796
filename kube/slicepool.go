package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

// ErrChanged is wrapped by the errors of writes that name what they have read, when
// somebody else has written it since: read it again and decide anew.
var ErrChanged = errors.New("the object has changed since it was read")

// nodeSlicePool is the object that says which slice of a range belongs to which node.
// The resource has no status subresource: the status is written with the object.
type nodeSlicePool struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Metadata   objectMeta          `json:"metadata"`
	Spec       nodeSlicePoolSpec   `json:"spec"`
	Status     nodeSlicePoolStatus `json:"status"`
}

type nodeSlicePoolSpec struct {
	Range     string `json:"range"`
	SliceSize string `json:"sliceSize"`
}

type nodeSlicePoolStatus struct {
	Allocations []slice.Allocation `json:"allocations"`
	*SliceSummary
}

// SliceSummary is what a status says beside the allocations, for people: older versions
// neither write nor read it, and older resource definitions prune it.
type SliceSummary struct {
	Slices     string           `json:"slices"`   // of use in the range, in decimal
	Assigned   int              `json:"assigned"` // slices that nodes have
	Free       string           `json:"free"`     // slices of use that no node has, in decimal
	Waiting    int              `json:"waiting"`  // nodes that have no slice, since there is none
	Conditions []SliceCondition `json:"conditions"`
}

// SliceCondition is a condition as Kubernetes has them everywhere.
type SliceCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"` // True or False
	Reason  string `json:"reason"` // CamelCase, for machines
	Message string `json:"message"`
	Since   string `json:"lastTransitionTime"` // when Status changed last, RFC 3339
}

// SlicePool is the list of the slices of one range, as it is stored.
type SlicePool struct {
	Name        string // see SlicePoolName
	Range       string // the whole range as a CIDR
	Size        string // the prefix length of a slice, as "/26" or "26"
	Allocations []slice.Allocation

	// Network and Space are those of the ipam.SliceList that it was written for; Space
	// is nil when it is not known: lists of older versions do not say.
	Network string
	Space   *string

	// Summary is nil of a list that has none, and a list that is written without keeps
	// the one that it has.
	Summary *SliceSummary

	// UID and Version are of the object that was read; "" of one that is to be made.
	UID, Version string
}

var _ ipam.Slices = (*Store)(nil)

// Slices returns the slices of a range that nodes have, in the order of the list.
// Entries that cannot be read are left out: nobody can take an address from them.
func (s *Store) Slices(ctx context.Context, list ipam.SliceList) ([]ipam.NodeSlice, error) {
	pool, err := s.SlicePool(ctx, SlicePoolName(list))
	if err != nil || pool == nil {
		return nil, err
	}
	var slices []ipam.NodeSlice
	for _, a := range pool.Allocations {
		if a.NodeName == "" {
			continue
		}
		if prefix, err := ipam.ParsePrefix(a.SliceRange); err == nil {
			slices = append(slices, ipam.NodeSlice{Node: a.NodeName, Range: prefix.Masked()})
		}
	}
	return slices, nil
}

// SlicePool reads a list of slices; nil if there is none.
func (s *Store) SlicePool(ctx context.Context, name string) (*SlicePool, error) {
	var object nodeSlicePool
	err := s.client.read(ctx, request{method: http.MethodGet, path: s.path(slicePoolResource, name)}, &object)
	if isMissing(err, name) {
		return nil, nil
	}
	if err != nil {
		return nil, s.client.explain("read slice pool "+name, err)
	}
	return object.slicePool(), nil
}

func (o *nodeSlicePool) slicePool() *SlicePool {
	p := &SlicePool{
		Name: o.Metadata.Name, Range: o.Spec.Range, Size: o.Spec.SliceSize, Allocations: o.Status.Allocations,
		Network: o.Metadata.Annotations[networkAnnotation],
		UID:     o.Metadata.UID, Version: o.Metadata.ResourceVersion,
	}
	if o.Status.SliceSummary != nil && o.Status.Slices != "" {
		p.Summary = o.Status.SliceSummary
	}
	if space, ok := o.Metadata.Annotations[spaceAnnotation]; ok {
		p.Space = &space
	}
	return p
}

func (o *nodeSlicePool) ident() identity { return o.Metadata.ident() }

// SlicePools lists all lists of slices in the namespace, in no order.
func (s *Store) SlicePools(ctx context.Context) ([]SlicePool, error) {
	found := newMirror(func(o *nodeSlicePool) (*SlicePool, bool) { return o.slicePool(), true }, nil)
	if err := listAgain(ctx, s.client, collection{name: "slice pools", path: s.path(slicePoolResource, "")}, found); err != nil {
		return nil, err
	}
	var pools []SlicePool
	found.each(func(_ objectKey, p *SlicePool) { pools = append(pools, *p) })
	return pools, nil
}

// WriteSlicePool makes a list of slices, if its Version is "", or replaces the one
// that was read, and answers it with its new Version. It tries once. The error wraps
// ErrChanged if somebody else was faster; after any other one the list may have been
// written or not.
func (s *Store) WriteSlicePool(ctx context.Context, p SlicePool) (*SlicePool, error) {
	object := nodeSlicePool{
		APIVersion: apiVersion, Kind: "NodeSlicePool",
		Metadata: objectMeta{Name: p.Name, Namespace: s.client.namespace, UID: p.UID, ResourceVersion: p.Version},
		Spec:     nodeSlicePoolSpec{Range: p.Range, SliceSize: p.Size},
		Status:   nodeSlicePoolStatus{Allocations: p.Allocations, SliceSummary: p.Summary},
	}
	if p.Space != nil {
		object.Metadata.Annotations = map[string]string{networkAnnotation: p.Network, spaceAnnotation: *p.Space}
	}
	if p.Allocations == nil {
		object.Status.Allocations = []slice.Allocation{} // required by older definitions
	}
	// Labels and the like, which others have put there, stay.
	r := request{method: http.MethodPatch, path: s.path(slicePoolResource, p.Name), contentType: mergePatch, body: object}
	if p.Version == "" {
		r = request{method: http.MethodPost, path: s.path(slicePoolResource, ""), body: object}
	}
	var written nodeSlicePool
	if err := s.writeOnce(ctx, r, "slice pool "+p.Name, p.Name, &written); err != nil {
		return nil, err
	}
	return written.slicePool(), nil
}

// DeleteSlicePool deletes a list of slices as it was read. One that is not there is no
// error; one that was written since is an error that wraps ErrChanged.
func (s *Store) DeleteSlicePool(ctx context.Context, p SlicePool) error {
	err := s.writeOnce(ctx, request{
		method: http.MethodDelete, path: s.path(slicePoolResource, p.Name),
		body: map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions",
			"preconditions": map[string]string{"uid": p.UID, "resourceVersion": p.Version},
		},
	}, "slice pool "+p.Name, p.Name, nil)
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// errGone is wrapped, beside ErrChanged, by errors about an object that is not there
// any more.
var errGone = errors.New("it is gone")

// writeOnce makes a request that names the version of what it changes.
func (s *Store) writeOnce(ctx context.Context, r request, what, name string, into any) error {
	err := s.client.do(ctx, r, into)
	switch {
	case err == nil:
		return nil
	case isMissing(err, name):
		return fmt.Errorf("write %s: %w: %w", what, ErrChanged, errGone)
	case isStatus(err, http.StatusConflict):
		return fmt.Errorf("write %s: %w: %w", what, ErrChanged, err)
	}
	return s.client.explain("write "+what, err)
}
