package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// RemovePool deletes the object of a pool that holds nothing, and reports whether
// it did. What was written after it was read stays: the deletion names UID and
// resource version. An entry that cannot be read is content, and so is any other
// field of the spec: somebody else may count on it. So is the mark of a node's pool
// that is closed: without it a plugin would write there again. A pool that is not
// there, or not empty, is no error.
func (s *Store) RemovePool(ctx context.Context, id ipam.PoolID) (bool, error) {
	name := PoolName(id)
	var pause backoff
	for {
		found, err := s.findEmptyPool(ctx, name)
		if err != nil || found == nil {
			return false, err
		}
		err = s.client.do(ctx, request{
			method: http.MethodDelete, path: s.path(poolResource, name),
			body: map[string]any{
				"apiVersion": "v1", "kind": "DeleteOptions",
				"preconditions": map[string]string{"uid": found.UID, "resourceVersion": found.ResourceVersion},
			},
		}, nil)
		if err == nil {
			s.remember(id, seenPool{})
			return true, nil
		}
		if !transient(err) && !worthAnotherTry(err, name) {
			return false, s.client.explain("delete pool "+name, err)
		}
		if waitErr := pause.wait(ctx, err); waitErr != nil {
			return false, s.client.explain("delete pool "+name, waitErr)
		}
	}
}

// findEmptyPool answers the metadata of a pool object, or nil if there is none or
// it has content.
func (s *Store) findEmptyPool(ctx context.Context, name string) (*objectMeta, error) {
	var object struct {
		Metadata objectMeta                 `json:"metadata"`
		Spec     map[string]json.RawMessage `json:"spec"`
	}
	err := s.client.read(ctx, request{method: http.MethodGet, path: s.path(poolResource, name)}, &object)
	if isMissing(err, name) {
		return nil, nil
	}
	if err != nil {
		return nil, s.client.explain("read pool "+name, err)
	}
	if object.Metadata.closed() {
		return nil, nil
	}
	for field, value := range object.Spec {
		switch field {
		case "range":
		case "allocations":
			var entries map[string]json.RawMessage
			if err := json.Unmarshal(value, &entries); err != nil {
				return nil, fmt.Errorf("%w: pool %s: spec.allocations is no map of entries; correct the object: %w", ipam.ErrCorrupt, name, err)
			}
			if len(entries) > 0 {
				return nil, nil
			}
		default:
			return nil, nil
		}
	}
	return &object.Metadata, nil
}
