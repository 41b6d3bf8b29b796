package reclaim

import (
	"context"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// remover is a store that can remove pools.
type remover struct {
	ipam.Store
	removed []ipam.PoolID
	answer  bool
	err     error
}

func (r *remover) RemovePool(_ context.Context, id ipam.PoolID) (bool, error) {
	r.removed = append(r.removed, id)
	return r.answer, r.err
}

// turnEnder is a store that has turns.
type turnEnder struct {
	ipam.Store
	ended []ipam.Turn
	err   error
}

func (e *turnEnder) EndTurn(_ context.Context, turn ipam.Turn) error {
	e.ended = append(e.ended, turn)
	return e.err
}

func TestTurnsOfDeadWritersEndAfterTheGraceTime(t *testing.T) {
	w := newWorld(t)
	store := &turnEnder{Store: w.store}
	w.Store = store
	old := ipam.Turn{Name: "a-turn", UID: "1", Since: noon.Add(-testGrace)}
	young := ipam.Turn{Name: "b-turn", UID: "2", Since: noon.Add(-testGrace / 2)}
	snapshot := &ipam.Snapshot{Turns: []ipam.Turn{young, old}}
	w.found(w.Reclaimer.Pass(t.Context(), snapshot), Report{Due: noon.Add(testGrace / 2)})
	if len(store.ended) != 1 || store.ended[0] != old {
		t.Errorf("ended %v, want %v", store.ended, old)
	}
	store.err = ipam.ErrUnavailable
	w.found(w.Reclaimer.Pass(t.Context(), snapshot), Report{Failed: 1, Due: noon.Add(testGrace / 2)})
}

func TestEmptyPoolsOfNoDefinitionAreRemovedAfterTheGraceTime(t *testing.T) {
	slice := ipam.PoolID{Network: "n", Node: "node1", Range: narrow.Range}
	used := ipam.PoolID{Network: "n", Range: wide.Range}
	setup := func(t *testing.T) (*world, *remover) {
		w := newWorld(t)
		r := ours()
		for _, id := range []ipam.PoolID{narrow, slice} {
			w.must(take(id, address, r), ipam.Change{Pool: id, Address: address, Before: &r})
		}
		w.must(take(used, address, r))
		w.live.add(podA())
		store := &remover{Store: w.store, answer: true}
		w.Store = store
		return w, store
	}
	t.Run("at the second look, but no slice and no pool in use", func(t *testing.T) {
		w, store := setup(t)
		w.nets.named = false
		w.found(w.pass(0), Report{Due: noon.Add(testGrace)})
		w.found(w.pass(testGrace), Report{Removed: 1})
		if len(store.removed) != 1 || store.removed[0] != narrow {
			t.Errorf("removed %v, want %v", store.removed, narrow)
		}
	})
	t.Run("not while a definition names them", func(t *testing.T) {
		w, store := setup(t)
		w.pass(0)
		w.found(w.pass(testGrace), Report{})
		w.nets.named = false
		w.found(w.pass(0), Report{Due: noon.Add(2 * testGrace)})
		if len(store.removed) != 0 {
			t.Errorf("removed %v", store.removed)
		}
	})
	t.Run("not while a bare reservation belongs to them", func(t *testing.T) {
		w, store := setup(t)
		w.nets.named = false
		w.reserve(another, ipam.Record{ContainerID: "c7"}, "10.0.0.0/24")
		w.pass(0)
		w.found(w.pass(testGrace), Report{})
		if len(store.removed) != 0 {
			t.Errorf("removed %v", store.removed)
		}
	})
	t.Run("not while they have anything that cannot be read", func(t *testing.T) {
		w, store := setup(t)
		w.nets.named = false
		w.write("nonsense", "networks", "network_name=", "pools", "10.0.0.0/24", "rubbish")
		w.pass(0)
		w.found(w.pass(testGrace), Report{})
		if len(store.removed) != 0 {
			t.Errorf("removed %v", store.removed)
		}
	})
	t.Run("what is not empty any more is not counted", func(t *testing.T) {
		w, store := setup(t)
		w.nets.named, store.answer = false, false
		w.pass(0)
		w.found(w.pass(testGrace), Report{})
	})
	t.Run("an error is a failure", func(t *testing.T) {
		w, store := setup(t)
		w.nets.named, store.err = false, ipam.ErrUnavailable
		w.pass(0)
		w.found(w.pass(testGrace), Report{Failed: 1, Due: noon.Add(2 * testGrace)})
	})
}
