package reclaim

import (
	"context"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// PoolRemover is a store that can remove pools.
type PoolRemover interface {
	// RemovePool removes a pool if it is empty, in one step with finding out, and
	// reports whether it did. What cannot be read is content. A pool that is not
	// there, or not empty, is no error. Errors are those of ipam.Store.
	RemovePool(ctx context.Context, id ipam.PoolID) (bool, error)
}

const reasonEmpty Reason = "empty"

// TurnEnder is a store whose writers take turns (see ipam.Turn).
type TurnEnder interface {
	// EndTurn removes the mark of a turn, exactly that one. One that is not there is no
	// error. Errors are those of ipam.Store.
	EndTurn(ctx context.Context, turn ipam.Turn) error
}

// endTurns removes the marks that dead writers have left behind. A writer that lives
// has its own for seconds.
func (p *pass) endTurns(ctx context.Context) {
	ender, ok := p.Store.(TurnEnder)
	if !ok {
		return
	}
	for _, turn := range p.snapshot.Turns {
		if at := turn.Since.Add(p.Grace); p.now.Before(at) {
			p.report.due(at)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err := p.endTurn(ctx, ender, turn); err != nil {
			p.report.Failed++
			p.log().Warn("cannot remove what a dead writer has left behind", "turn", turn.Name, "error", err)
			continue
		}
		p.log().Info("removed what a dead writer has left behind", "turn", turn.Name)
	}
}

func (p *pass) endTurn(ctx context.Context, ender TurnEnder, turn ipam.Turn) error {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	return ender.EndTurn(ctx, turn)
}

// removePools removes pools that have been empty, and named by no definition, for
// the grace time.
func (p *pass) removePools(ctx context.Context) {
	remover, ok := p.Store.(PoolRemover)
	if !ok || p.Networks == nil {
		return
	}
	for _, id := range p.spentPools() {
		if ctx.Err() != nil {
			return
		}
		removed, err := removeOne(ctx, remover, id)
		c := candidate{spot: poolSpot(id), pool: id, verdict: Verdict{Reason: reasonEmpty}}
		switch {
		case err != nil:
			p.fail("cannot remove an empty pool", &c, err)
		case removed:
			p.report.Removed++
			p.looks.forget(c.spot)
			p.log().Info("removed an empty pool", "pool", id)
		}
	}
}

func removeOne(ctx context.Context, remover PoolRemover, id ipam.PoolID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	return remover.RemovePool(ctx, id)
}

// spentPools answers the pools that are empty and named by no definition for the
// grace time. The pool of a node's slice is never among them: it tells whose the
// slice is.
func (p *pass) spentPools() []ipam.PoolID {
	var spent []ipam.PoolID
	claimed := map[ipam.PoolID]bool{}
	for _, r := range p.snapshot.Reservations {
		if prefix, err := netip.ParsePrefix(r.Range); err == nil {
			claimed[ipam.PoolID{Network: r.Space, Range: prefix.Masked()}] = true
		}
	}
	for _, pool := range p.snapshot.Pools {
		id := pool.ID
		if len(pool.Records) > 0 || len(pool.Bad) > 0 || id.Node != "" || claimed[id] || p.Networks.Named(id) {
			continue
		}
		seen := sight{reason: reasonEmpty}
		first := p.looks.first(poolSpot(id), seen, p.now)
		p.looks.note(poolSpot(id), seen, first)
		if at := first.Add(p.Grace); p.now.Before(at) {
			p.report.due(at)
			continue
		}
		spent = append(spent, id)
	}
	return spent
}
