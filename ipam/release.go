package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// Release frees every record of the owner's container and interface, in all
// ranges of the configuration and wherever the journal remembers one, and their
// reservations. prev lists the addresses of the previous result, if the runtime
// passed one. That nothing is found is no error, and nothing is created then.
//
// A record that a newer container of the pod has adopted is not touched.
func (a *Allocator) Release(ctx context.Context, cfg *Config, owner Owner, prev []netip.Addr) error {
	m := a.recall(owner)
	var changes []Change
	covered := map[PoolID]bool{}
	for _, h := range m.own() {
		covered[h.Pool] = true
		changes = append(changes, Change{Pool: h.Pool, Address: h.Address, Before: &h.Record})
	}
	found, err := a.findRecords(ctx, cfg, owner, prev, covered)
	changes = append(changes, found...)
	if err == nil {
		var halves []Change
		halves, err = a.findHalves(ctx, cfg, owner, prev, changes)
		changes = append(changes, halves...)
	}
	// What was found is freed even when something else could not be read.
	if len(changes) > 0 {
		err = errors.Join(err, errors.Join(a.Store.Commit(ctx, changes)...))
	}
	if err == nil {
		m.forget()
	}
	return err
}

// findRecords reads those pools of the configuration of which the journal does not
// say what the container holds.
func (a *Allocator) findRecords(ctx context.Context, cfg *Config, owner Owner, prev []netip.Addr, covered map[PoolID]bool) ([]Change, error) {
	var found []Change
	var failed error
	for _, id := range poolsOf(cfg) {
		if covered[id] {
			continue
		}
		pool, err := a.Store.Read(ctx, id)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		found = append(found, recordsOf(pool, owner, prev)...)
	}
	return found, failed
}

// recordsOf lists releases of a pool's records of the owner. One without an
// interface may be another interface's of the same container: it is this one's if
// the previous result named it, or if the container has no other record there.
func recordsOf(pool *Pool, owner Owner, prev []netip.Addr) []Change {
	var exact, vague []Change
	others := 0
	for address, r := range pool.Records {
		c := Change{Pool: pool.ID, Address: address, Before: &r}
		switch {
		case r.ContainerID != owner.ContainerID:
		case r.IfName == owner.IfName:
			exact = append(exact, c)
		case r.IfName == "":
			vague = append(vague, c)
		default:
			others++
		}
	}
	alone := len(exact)+len(vague)+others == 1
	for _, c := range vague {
		if alone || slices.Contains(prev, c.Address) {
			exact = append(exact, c)
		}
	}
	return exact
}

// findHalves looks for reservations of this container at addresses of the previous
// result that have no record any more: a release was interrupted between the two.
func (a *Allocator) findHalves(ctx context.Context, cfg *Config, owner Owner, prev []netip.Addr, found []Change) ([]Change, error) {
	var halves []Change
	for _, address := range prev {
		known := slices.ContainsFunc(found, func(c Change) bool { return c.Address == address })
		i := slices.IndexFunc(cfg.Ranges, func(r Range) bool { return r.Contains(address) })
		if known || i < 0 {
			continue
		}
		id := cfg.PoolOf(cfg.Ranges[i])
		r, err := a.Store.Reservation(ctx, id.Network, address)
		if err != nil {
			return halves, err
		}
		if r != nil && r.ContainerID == owner.ContainerID && r.IfName == owner.IfName {
			halves = append(halves, Change{Pool: id, Address: address, Before: &r.Record})
		}
	}
	return halves, nil
}

func poolsOf(cfg *Config) []PoolID {
	var ids []PoolID
	for _, r := range cfg.Ranges {
		if id := cfg.PoolOf(r); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
