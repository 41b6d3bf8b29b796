package reclaim

import (
	"net/netip"
	"slices"
)

// belongsTo makes a record a pod's.
func (s *scene) belongsTo(a netip.Addr, p *pod, container string) {
	s.Helper()
	key := s.net.key(a)
	s.patchPool(s.net, Object{"op": "replace", "path": "/spec/allocations/" + key + "/podref", "value": p.ref()})
	s.patchReservation(s.net, a, Object{"podref": p.ref(), "uid": p.uid, "containerid": container})
}

// leftovers are about records that are nobody's or cannot be read.
func leftovers() []situation {
	return []situation{
		{name: "an address that an operator keeps", keeps: []int{1}, set: func(s *scene) { s.seedBoth("reserved:printer", "") }},
		{name: "a container without a pod", keeps: []int{1}, set: func(s *scene) {
			s.takes(&pod{w: s.world, container: "podman-1", ifName: "eth0"})
		}},
		{name: "unreadable entries beside a dead pod's", keeps: []int{2}, set: setUnreadable},
		{name: "a pod reference that is none", keeps: []int{1}, set: func(s *scene) { s.seedBoth("c-1", "no-slash") }},
		{name: "the definition went first and the pod after it", set: func(s *scene) {
			s.undefine(s.namespace, s.net)
			p, _ := s.runner("a")
			p.vanishes()
		}},
		{name: "the definition is gone and the pod alive", keeps: []int{1}, set: func(s *scene) {
			s.runner("a")
			s.undefine(s.namespace, s.net)
		}},
	}
}

// seedBoth makes an entry and its reservation by hand.
func (s *scene) seedBoth(id, podRef string) {
	s.Helper()
	s.seedPool(s.world.namespace, s.net.pool(), s.net.cidr, Object{"1": Object{"id": id, "podref": podRef, "ifname": "net1"}})
	s.seedReservation(s.world.namespace, s.net.reservation(s.net.host(1)), Object{
		"podref": podRef, "ifname": "net1", "containerid": id, "range": s.net.cidr, "since": stamp(longAgo()),
	})
}

func setUnreadable(s *scene) {
	s.Helper()
	p, _ := s.runner("a")
	s.runner("b")
	p.vanishes()
	strange := map[string]Object{
		"abc":                     {"id": "x", "podref": "default/x"},
		"-3":                      {"id": "x", "podref": "default/x"},
		"99999999999999999999999": {"id": "x", "podref": "default/x"},
	}
	for key, entry := range strange {
		s.patchPool(s.net, Object{"op": "add", "path": "/spec/allocations/" + key, "value": entry})
	}
	s.more = func() string {
		var lost []string
		stored := s.entries(s.world.namespace, s.net.pool())
		for key := range strange {
			if stored[key] == nil {
				lost = append(lost, key)
			}
		}
		slices.Sort(lost)
		return unequal("unreadable entries that are gone", lost, []string{})
	}
}

// networks are about address spaces, families, slices and namespaces.
func networks() []situation {
	oneOfTwo := func(s *scene) {
		p, _ := s.runner("a")
		s.runner("b")
		p.vanishes()
	}
	second := 2
	return []situation{
		{name: "named network, one of two gone", space: true, keeps: []int{second}, set: oneOfTwo},
		{name: "IPv6, one of two gone", v6: true, keeps: []int{second}, set: oneOfTwo},
		{name: "named network of IPv6, one of two gone", space: true, v6: true, keeps: []int{second}, set: oneOfTwo},
		{name: "the same address in two networks, the first pod is gone", keeps: []int{}, set: func(s *scene) { s.twice(true) }},
		{name: "the same address in two networks, the second pod is gone", keeps: []int{1}, set: func(s *scene) { s.twice(false) }},
		{name: "a node's slice", keeps: []int{}, set: setSlice},
		{name: "records in another namespace, one of two gone", keeps: []int{1}, set: setElsewhere},
	}
}

// twice has one pod in the scene's network and one with the same address in
// another address space; one of them goes.
func (s *scene) twice(first bool) {
	s.Helper()
	gone, _ := s.runner("a")
	mine := s.net
	theirs := mine
	theirs.name, theirs.space = mine.name+"-too", "twice-"+s.node.name
	s.define(s.namespace, theirs)
	s.net = theirs
	stays, _ := s.runner("b")
	s.net = mine
	want := []int{1}
	if !first {
		gone, want = stays, nil
	}
	gone.vanishes()
	s.more = func() string {
		entries, reserved := s.held(s.world.namespace, theirs)
		return unequal("entries of the other network", entries, want) + unequal("reservations of the other network", reserved, want)
	}
}

// sliceRange is the slice of the only situation with one.
const sliceRange = "10.99.0.0/28"

// setSlice has two pods in a node's slice, of which one is gone, and one that is
// gone in the pool of the whole range.
func setSlice(s *scene) {
	s.Helper()
	s.runnerGone("c")
	whole := netip.MustParsePrefix(sliceRange)
	name := s.node.name + "-10.99.0.0-28"
	live := s.pod("b")
	live.runs(whole.Addr().Next().Next())
	entries := Object{}
	for key, pod := range map[string]string{"1": "a", "2": "b"} {
		ref := s.namespace + "/" + pod
		entries[key] = Object{"id": "c-" + pod, "podref": ref, "ifname": "net1", "gen": "00000000"}
		s.seedReservation(s.world.namespace, "10.99.0."+key, Object{
			"podref": ref, "ifname": "net1", "containerid": "c-" + pod, "range": sliceRange, "node": s.node.name, "since": stamp(longAgo()),
		})
	}
	s.seedPool(s.world.namespace, name, sliceRange, entries)
	s.more = func() string {
		left := s.entries(s.world.namespace, name)
		return unequal("the dead pod's entry in the slice", left["1"] != nil, false) +
			unequal("the live pod's entry in the slice", left["2"] != nil, true) +
			unequal("the dead pod's reservation", s.spec(s.world.namespace, reservations, "10.99.0.1") != nil, false) +
			unequal("the live pod's reservation", s.spec(s.world.namespace, reservations, "10.99.0.2") != nil, true)
	}
}

func (s *scene) runnerGone(name string) {
	s.Helper()
	p, _ := s.runner(name)
	p.vanishes()
}

// setElsewhere has records of the same range in two namespaces of records.
func setElsewhere(s *scene) {
	s.Helper()
	s.runner("a")
	elsewhere := s.cp.Namespace(s.TB)
	base := s.net.host(0)
	live, dead := s.net.host(5), s.net.host(6)
	s.pod("e").runs(live)
	entries := Object{}
	for pod, a := range map[string]netip.Addr{"e": live, "gone": dead} {
		ref := s.namespace + "/" + pod
		entries[s.net.key(a)] = Object{"id": "c-" + pod, "podref": ref, "ifname": "net1"}
		s.seedReservation(elsewhere, s.net.reservation(a), Object{
			"podref": ref, "ifname": "net1", "containerid": "c-" + pod, "range": s.net.cidr, "since": stamp(longAgo()),
		})
	}
	s.seedPool(elsewhere, s.net.pool(), base.String()+"/28", entries)
	s.more = func() string {
		left, reserved := s.held(elsewhere, s.net)
		return unequal("entries in the other namespace", left, []int{5}) + unequal("reservations in the other namespace", reserved, []int{5})
	}
}
