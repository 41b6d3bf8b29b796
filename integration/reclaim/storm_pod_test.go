package reclaim

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// What workers of a storm do must not end the test, which only its own goroutine may:
// these answer errors.

func (s *storm) makePod(name, node string) (*pod, error) {
	var made Object
	err := s.cp.Client().Create(s.Context(), podPath(s.namespace), podObject(Object{"name": name}, node), &made)
	uid := made.String("metadata", "uid")
	return &pod{w: s.world, namespace: s.namespace, name: name, uid: uid, node: node, ifName: "net1"}, err
}

func (s *storm) show(p *pod, a netip.Addr) error {
	status := networkStatus(s, p.ifName, a)
	err := s.cp.Client().Patch(s.Context(), p.path(), testenv.MergePatch,
		Object{"metadata": Object{"annotations": Object{statusAnnotation: status}}}, nil)
	return errors.Join(err, s.setPhase(p, "Running"))
}

func (s *storm) setPhase(p *pod, phase string) error {
	return s.cp.Client().Patch(s.Context(), p.path()+"/status", testenv.MergePatch, Object{"status": Object{"phase": phase}}, nil)
}

// stillHeld makes sure that the records of a live pod are there.
func (s *storm) stillHeld(p *pod, n network, a netip.Addr) error {
	var pool, reservation Object
	err := s.cp.Client().Get(s.Context(), s.path(pools)+"/"+n.pool(), &pool)
	if err != nil {
		return err
	}
	if id := pool.String("spec", "allocations", n.key(a), "id"); id != p.container {
		return fmt.Errorf("%s lives with %s, and its entry is %q's", p.container, a, id)
	}
	err = s.cp.Client().Get(s.Context(), s.path(reservations)+"/"+n.reservation(a), &reservation)
	if err != nil {
		return fmt.Errorf("%s lives with %s: %w", p.container, a, err)
	}
	if id := reservation.String("spec", "containerid"); id != p.container {
		return fmt.Errorf("%s lives with %s, and its reservation is %q's", p.container, a, id)
	}
	return nil
}
