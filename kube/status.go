package kube

import (
	"context"
	"errors"
	"net/http"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// ErrNoStatus says that the resource definitions in the cluster have no status: they
// are those of an older version.
var ErrNoStatus = errors.New("the installed resource definitions have no status; install those of this version (manifests/crds)")

// WriteStatus writes how full a pool is. It tries once: the next count comes anyway.
// A pool that is not there any more is no error. Errors are ErrNoStatus, or those of
// ipam.Store.
func (s *Store) WriteStatus(ctx context.Context, id ipam.PoolID, u ipam.Usage) error {
	name := PoolName(id)
	err := s.client.do(ctx, request{
		method: http.MethodPatch, path: s.path(poolResource, name) + "/status", contentType: mergePatch, slim: true,
		body: map[string]any{"status": map[string]any{
			"used": u.Used, "total": u.Total.String(), "free": u.Free.String(), "excluded": u.Excluded.String(),
		}},
	}, nil)
	switch {
	case err == nil || isMissing(err, name):
		return nil
	case isStatus(err, http.StatusNotFound):
		return ErrNoStatus
	}
	return s.client.explain("write the status of pool "+name, err)
}

// Ranges are what the definitions that certainly name a pool hand out of it, for
// ipam.UsageOf.
func (d *definitions) Ranges(id ipam.PoolID) []ipam.Range {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []ipam.Range
	for i := range d.claims {
		if c := &d.claims[i]; c.config != nil && c.names(id) == yes {
			all = append(all, c.config.RangesOf(id)...)
		}
	}
	return all
}

// Ranges are what the definitions that certainly name a pool hand out of it.
func (p *Picture) Ranges(id ipam.PoolID) []ipam.Range { return p.cluster.nets().Ranges(id) }

// Ranges are what the definitions that certainly name a pool hand out of it.
func (w *Watcher) Ranges(id ipam.PoolID) []ipam.Range {
	if w.defined.synced() != nil {
		return nil
	}
	return w.cluster.nets().Ranges(id)
}
