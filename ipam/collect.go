package ipam

import (
	"context"
	"errors"
	"time"
)

// collectAge is how old a record has to be before garbage collection frees it: the
// list of valid attachments may have been made before a pod that is starting now.
const collectAge = time.Minute

// Collect frees the records of one network on one node whose containers are not
// valid any more (CNI spec 1.1, section 2, "GC"). A record is freed only if its
// network and its node are known and equal the owner's, it is older than a minute,
// and valid has its container id under no interface. It returns how many were
// freed.
func (a *Allocator) Collect(ctx context.Context, network, node string, valid map[string]bool) (int, error) {
	if network == "" || node == "" {
		return 0, nil // nothing can be told to be ours
	}
	snapshot, err := a.Store.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	stale := func(r Record) bool {
		return r.Network == network && r.Node == node && r.ContainerID != "" && !valid[r.ContainerID] &&
			!r.Since.IsZero() && a.Now().Sub(r.Since) > collectAge
	}
	var release []Change
	for _, pool := range snapshot.Pools {
		for address, r := range pool.Records {
			if stale(r) {
				release = append(release, Change{Pool: pool.ID, Address: address, Before: &r})
			}
		}
	}
	release = append(release, staleHalves(snapshot, stale)...)
	if len(release) == 0 {
		return 0, nil
	}
	err = errors.Join(a.Store.Commit(ctx, release)...)
	if err != nil {
		return 0, err
	}
	return len(release), nil
}

// staleHalves lists reservations of dead containers without a record.
func staleHalves(snapshot *Snapshot, stale func(Record) bool) []Change {
	var release []Change
	for _, r := range snapshot.Reservations {
		prefix, err := ParsePrefix(r.Range)
		if !stale(r.Record) || err != nil || hasRecord(snapshot, r) {
			continue
		}
		release = append(release, Change{Pool: PoolID{Network: r.Space, Range: prefix.Masked()}, Address: r.Address, Before: &r.Record})
	}
	return release
}

// hasRecord reports whether any pool around the address records it; which pool is
// not asked, since doubt keeps the address.
func hasRecord(snapshot *Snapshot, r Reservation) bool {
	for _, pool := range snapshot.Pools {
		if _, ok := pool.Records[r.Address]; ok && pool.ID.Network == r.Space {
			return true
		}
	}
	return false
}
