package reclaim

// identities are about pods of one name and containers of one pod.
func identities() []situation {
	return []situation{
		{name: "web-0 again on another node, before its ADD", set: func(s *scene) { s.again() }, otherwise: true, withOld: []int{1}},
		{name: "web-0 again on another node, after its ADD", set: func(s *scene) {
			web := s.again()
			a := s.mustAdd(s.node, web, s.net) // another one, or with old definitions the same
			web.runs(a)
			s.keep(a)
		}},
		{name: "another pod shows the address of a record", keeps: []int{1}, set: func(s *scene) {
			s.again().runs(s.net.host(1))
		}},
		{name: "an older plugin replaced the id; the pod is alive", keeps: []int{1}, set: func(s *scene) {
			s.replacedID(s.pod("a"))
		}},
		{name: "an older plugin replaced the id; web-0 is another pod now", keeps: []int{1}, set: func(s *scene) {
			p := s.pod("web-0")
			s.replacedID(p)
			p.vanishes()
			s.pod("web-0") // the uid that is known is not that of the id
		}},
		{name: "an older plugin replaced the id; the pod is gone", set: func(s *scene) {
			p := s.pod("a")
			s.replacedID(p)
			p.vanishes()
		}},
		{name: "without overlap protection, the pod is gone", bare: true, set: func(s *scene) {
			p, _ := s.runner("a")
			p.vanishes()
		}},
		{name: "without overlap protection, one of two is gone", bare: true, keeps: []int{2}, set: func(s *scene) {
			p, _ := s.runner("a")
			s.runner("b")
			p.vanishes()
		}},
		{name: "without overlap protection, web-0 again before its ADD", bare: true, set: func(s *scene) { s.again() }, otherwise: true, withOld: []int{1}},
	}
}

// again is web-0 that ran here, was deleted by force and is there again on another
// node, Pending.
func (s *scene) again() *pod {
	s.Helper()
	p, _ := s.runner("web-0")
	p.vanishes()
	s.node = s.world.node(s.node.name + "-other")
	return s.pod("web-0")
}

// replacedID is a record that an older plugin adopted: it rewrites the id alone.
func (s *scene) replacedID(p *pod) {
	s.Helper()
	s.takes(p)
	s.patchPool(s.net, Object{"op": "replace", "path": "/spec/allocations/1/id", "value": "c-newer"})
}

// halves are about reservations and entries without the other half.
func halves() []situation {
	return []situation{
		{name: "reservation without an entry, its pod shows the address", keeps: []int{1}, set: func(s *scene) {
			_, a := s.runner("a")
			s.dropEntry(s.net, a)
			s.alone = s.old // which container's it is and of which pool is not known
		}},
		{name: "reservation without an entry, its pod shows another", set: func(s *scene) {
			p := s.pod("a")
			s.dropEntry(s.net, s.takes(p))
			p.runs(s.net.host(9))
		}},
		{name: "reservation without an entry, its pod is gone", set: func(s *scene) {
			p, a := s.runner("a")
			s.dropEntry(s.net, a)
			p.vanishes()
		}},
		{name: "reservation without an entry, its pod has taken another address since", keeps: []int{2}, set: func(s *scene) {
			p := s.pod("a")
			first := s.takes(p)
			other := s.pod("b")
			other.container = p.container + "-2"
			second := s.takes(other)
			s.dropEntry(s.net, first)
			s.belongsTo(second, p, other.container)
			p.runs(second)
			other.vanishes()
		}},
		{name: "entry without a reservation, its pod shows the address", keeps: []int{1}, set: func(s *scene) {
			_, a := s.runner("a")
			s.dropReservation(s.net, a)
		}},
		{name: "entry without a reservation, its pod shows another", set: func(s *scene) {
			p := s.pod("a")
			s.dropReservation(s.net, s.takes(p))
			p.runs(s.net.host(9))
		}},
		{name: "entry without a reservation, its pod is gone", set: func(s *scene) {
			p, a := s.runner("a")
			s.dropReservation(s.net, a)
			p.vanishes()
		}},
		{name: "entry of an older plugin, its pod shows the address", keeps: []int{1}, set: func(s *scene) {
			s.runs(s.pod("a"))
			s.seedOld("1", "a")
		}},
		{name: "entry of an older plugin, its pod is gone", set: func(s *scene) { s.seedOld("1", "a") }},
	}
}

func (s *scene) runs(p *pod) { s.Helper(); p.runs(s.net.host(1)) }

// seedOld makes what the first versions wrote: no interface, no container in the
// reservation.
func (s *scene) seedOld(key, pod string) {
	s.Helper()
	ref := s.namespace + "/" + pod
	s.seedPool(s.world.namespace, s.net.pool(), s.net.cidr, Object{key: Object{"id": "c-old", "podref": ref}})
	s.seedReservation(s.world.namespace, s.net.reservation(s.net.host(1)), Object{"podref": ref})
}
