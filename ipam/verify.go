package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// Verify checks that each address of a previous result that lies in a range of the
// configuration is recorded for this container and interface. A fixed address may
// be recorded for another pod that shares it. The error names the address; it
// wraps ErrNotRecorded, unless the store cannot be read.
func (a *Allocator) Verify(ctx context.Context, cfg *Config, owner Owner, prev []netip.Addr) error {
	v := &verification{allocator: a, cfg: cfg, owner: owner, content: map[PoolID]*Pool{}, holder: "nobody"}
	for _, address := range prev {
		if isFixed(cfg, address) {
			continue
		}
		if err := v.verify(ctx, address); err != nil {
			return err
		}
	}
	return nil
}

// verification is a CHECK on its way.
type verification struct {
	allocator *Allocator
	cfg       *Config
	owner     Owner
	content   map[PoolID]*Pool
	known     map[SliceList]listing // nil: not read yet
	holder    string                // of the address, in words
}

// verify accepts the address in any of the ranges around it.
func (v *verification) verify(ctx context.Context, address netip.Addr) error {
	v.holder = "nobody"
	inside := slices.ContainsFunc(v.cfg.Ranges, func(r Range) bool { return r.Contains(address) })
	if !inside {
		return nil
	}
	if v.cfg.Sliced() {
		// The node knows which slice it was taken from.
		for _, h := range v.allocator.recall(v.owner).own() {
			if h.Address == address && h.Pool.Node != "" {
				if found, err := v.recorded(ctx, h.Pool, address); found || err != nil {
					return err
				}
			}
		}
		if v.known == nil {
			v.known = v.allocator.listings(ctx, v.cfg.SliceLists())
		}
	}
	for i := range v.cfg.Ranges {
		if found, err := v.inRange(ctx, i, address); found || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s should be held by container %s, interface %s, and is held by %s",
		ErrNotRecorded, address, v.owner.ContainerID, v.owner.IfName, v.holder)
}

// inRange looks into the pool of a range around the address, and into that of the
// slice around it.
func (v *verification) inRange(ctx context.Context, i int, address netip.Addr) (bool, error) {
	r := v.cfg.Ranges[i]
	if !r.Contains(address) {
		return false, nil
	}
	if r.SliceSize > 0 {
		list := v.cfg.sliceList(i)
		l := v.known[list]
		if l.err != nil {
			return false, l.err
		}
		if s, ok := l.around(address); ok {
			if found, err := v.recorded(ctx, list.pool(s), address); found || err != nil {
				return found, err
			}
		}
	}
	return v.recorded(ctx, v.cfg.PoolOf(r), address)
}

// recorded reports whether a pool records the address for the owner.
func (v *verification) recorded(ctx context.Context, id PoolID, address netip.Addr) (bool, error) {
	_, partly := v.allocator.Store.(Searcher)
	if v.content[id] == nil || partly {
		pool, err := find(ctx, v.allocator.Store, id, address)
		if err != nil {
			return false, err
		}
		v.content[id] = pool
	}
	record, held := v.content[id].Records[address]
	if held && !record.OfContainer(v.owner.ContainerID, v.owner.IfName) {
		v.holder = fmt.Sprintf("container %s, interface %s, of %s", record.ContainerID, record.IfName, record.Holder())
	}
	return held && record.OfContainer(v.owner.ContainerID, v.owner.IfName), nil
}

func isFixed(cfg *Config, a netip.Addr) bool {
	for _, f := range cfg.Fixed {
		if f.Address.Addr() == a {
			return true
		}
	}
	return false
}
