package reclaim

import (
	"syscall"
	"testing"
	"time"
)

// change is a change in a cluster at which clean-up looks on.
type change struct {
	name string
	run  func(s *scene, c *child) *child // may replace the child
}

// What clean-up does by itself when something changes: its schedule says once a
// year.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.daemon("2s").passes()
	for i, change := range changes() {
		t.Run(change.name, func(t *testing.T) {
			s := w.in(t).newScene(i, situation{name: change.name})
			c = change.run(s, c)
			if t.Failed() {
				t.Log(c.log.String())
			}
		})
	}
	for _, text := range w.contradictions(w.namespace) {
		t.Error(text)
	}
	c.ends(t)
}

// in is the same cluster for a test within a test.
func (w *world) in(t testing.TB) *world {
	other := *w
	other.TB = t
	return &other
}

func changes() []change {
	same := func(f func(*scene)) func(*scene, *child) *child {
		return func(s *scene, c *child) *child { f(s); return c }
	}
	return []change{
		{"a pod goes", same(func(s *scene) {
			p, _ := s.runner("a")
			s.runner("b")
			p.vanishes()
			s.comesTo(2)
		})},
		{"a pod ends and stays as an object", same(func(s *scene) {
			p, _ := s.runner("a")
			s.runner("b")
			p.phase("Succeeded")
			s.comesTo(2)
		})},
		{"a pod shows another address than it took first", same(func(s *scene) {
			p := s.pod("a")
			s.takes(p)
			p.runs(s.net.host(9))
			s.comesTo()
		})},
		{"an older plugin deletes the reservation of a live pod", same(func(s *scene) {
			_, a := s.runner("a")
			s.dropReservation(s.net, a)
			s.comesTo(1)
		})},
		{"a node becomes unreachable while a pod has seconds to end", same(func(s *scene) {
			p, _ := s.runner("a")
			p.terminates(3)
			s.lose(s.node.name, time.Now())
			s.stays(500*time.Millisecond, 1)
			s.comesTo()
		})},
		{"a node is gone", same(func(s *scene) {
			p, _ := s.runner("a")
			p.terminates(3600)
			s.stays(500*time.Millisecond, 1)
			s.dropNode(s.node.name)
			s.comesTo()
		})},
		{"a node is out of service", same(func(s *scene) {
			p, _ := s.runner("a")
			p.terminates(3600)
			s.setTaints(s.node.name, taint(outOfService, time.Now()))
			s.comesTo()
		})},
		{"the definition goes and the pod after it", same(func(s *scene) {
			p, _ := s.runner("a")
			s.runner("b")
			s.undefine(s.namespace, s.net)
			p.vanishes()
			s.comesTo(2)
		})},
		{"web-0 is there again before the end of the first is noticed", lateNotice(false)},
		{"web-0 has the same address again before the end of the first is noticed", lateNotice(true)},
		{"pods go while nobody looks", goWhileDown},
	}
}

// comesTo waits until exactly these addresses are recorded.
func (s *scene) comesTo(want ...int) {
	s.Helper()
	took := s.eventually(s.about.name, func() string { s.about.keeps = want; return s.check() })
	s.Logf("after %s", took.Round(10*time.Millisecond))
}

// stays is that for a while exactly these addresses are recorded.
func (s *scene) stays(d time.Duration, want ...int) {
	s.Helper()
	s.about.keeps = want
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if wrong := s.check(); wrong != "" {
			s.Fatalf("%s: %s", s.about.name, wrong)
		}
	}
}

// lateNotice has the first web-0 go and the second come while clean-up is stopped.
func lateNotice(sameAddress bool) func(*scene, *child) *child {
	return func(s *scene, c *child) *child {
		s.Helper()
		first, _ := s.runner("web-0")
		c.signal(syscall.SIGSTOP)
		if sameAddress {
			if err := s.node.del(first, s.net); err != nil {
				s.Fatal(err)
			}
		}
		first.vanishes()
		second := s.pod("web-0")
		a := s.mustAdd(s.node, second, s.net)
		c.signal(syscall.SIGCONT)
		s.keep(a)
		kept := s.about.keeps
		if same := a == s.net.host(1); same != sameAddress {
			s.Fatalf("the second web-0 has %s", a)
		}
		s.comesTo(kept...)
		s.stays(2500*time.Millisecond, kept...) // longer than the grace time
		second.runs(a)
		s.stays(500*time.Millisecond, kept...)
		return c
	}
}

// goWhileDown kills clean-up, lets pods go, and starts it again.
func goWhileDown(s *scene, c *child) *child {
	s.Helper()
	gone, _ := s.runner("a")
	s.runner("b")
	done, _ := s.runner("c")
	c.kill()
	gone.vanishes()
	done.phase("Failed")
	again := c.world.daemon("2s") // it outlives this change
	s.comesTo(2)
	return again
}

// ends asks for the end of clean-up, which is well.
func (c *child) ends(t *testing.T) {
	t.Helper()
	begin := time.Now()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatal("it does not end at SIGTERM")
	}
	t.Logf("ended %s after SIGTERM", time.Since(begin).Round(time.Millisecond))
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, c.log.String())
	}
}
