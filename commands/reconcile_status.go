package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// statusInterval lies between two counts. To write the status of a large pool costs the
// server as much as to write an entry, and hinders those who do.
const statusInterval = 30 * time.Second

// statusWriteTimeout bounds one write.
const statusWriteTimeout = 5 * time.Second

// statusKeeper keeps the status of pools, which `kubectl get ippools` shows, as it
// follows from the records. Several may: they count the same.
type statusKeeper struct {
	stored stored
	// ranges are those of the definitions that name a pool.
	ranges func(ipam.PoolID) []ipam.Range
	write  func(ctx context.Context, namespace string, id ipam.PoolID, u ipam.Usage) error
	now    func() time.Time
	log    *slog.Logger

	written map[poolLabels]string // what the status is, as far as we know
	last    time.Time
	without bool // the resource definitions have no status
}

// due is when the next count is; a nil keeper never counts.
func (k *statusKeeper) due() time.Time {
	if k == nil || k.without {
		return time.Time{}
	}
	return k.last.Add(statusInterval)
}

// keep counts all pools and writes what has changed. What fails is left to the next
// time.
func (k *statusKeeper) keep(ctx context.Context, fresh bool) {
	if k == nil || k.without {
		return
	}
	k.last = k.now()
	snapshots, err := k.stored.Snapshots(ctx, fresh)
	if err != nil {
		k.log.Debug("pools could not be counted", "error", err)
	}
	known := map[poolLabels]string{}
	for namespace, snapshot := range snapshots {
		for _, pool := range snapshot.Pools {
			at := poolLabels{namespace, kube.PoolName(pool.ID)}
			known[at] = k.keepOne(ctx, namespace, pool, k.written[at])
			if k.without || ctx.Err() != nil {
				return
			}
		}
	}
	k.written = known
}

// keepOne answers what the status of the pool is now, as far as it is known.
func (k *statusKeeper) keepOne(ctx context.Context, namespace string, pool *ipam.Pool, was string) string {
	u := ipam.UsageOf(pool, k.ranges(pool.ID)...)
	now := fmt.Sprint(u.Used, u.Total, u.Free, u.Excluded)
	if now == was {
		return was
	}
	ctx, cancel := context.WithTimeout(ctx, statusWriteTimeout)
	defer cancel()
	err := k.write(ctx, namespace, pool.ID, u)
	switch {
	case err == nil:
		return now
	case errors.Is(err, kube.ErrNoStatus):
		k.without = true
		k.log.Warn("the columns of pools stay empty", "error", err)
	default:
		k.log.Warn("the status of a pool could not be written", "namespace", namespace, "pool", pool.ID, "error", err)
	}
	return was
}
