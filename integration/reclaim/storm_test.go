package reclaim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// storm is pods that come and go beside clean-up.
type storm struct {
	*world
	namespace string
	networks  []network
	nodes     []machine
	until     time.Time

	mu   sync.Mutex
	held map[netip.Addr]string // by pods that live

	lived, ended, crashed atomic.Int64
}

// workers is how many pods there are at a time.
const workers = 6

// stormTime is how long the storm lasts.
func stormTime(t *testing.T) time.Duration {
	text := os.Getenv("WHEREABOUTS_RECLAIM_STORM")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("WHEREABOUTS_RECLAIM_STORM: %v", err)
	}
	return d
}

// Two replicas of clean-up, of which one is killed now and then, work beside pods that
// come and go, many of them without a word: no address of a live pod is freed or given
// out again, and nothing is left at the end.
func TestStorm(t *testing.T) {
	t.Parallel()
	s := newStorm(t, stormTime(t))
	replicas := []*child{s.daemon("10s"), s.daemon("10s")}
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() { s.work(i) })
	}
	for killed := 0; time.Now().Before(s.until); killed++ {
		time.Sleep(3 * time.Second)
		i := killed % len(replicas)
		replicas[i].kill()
		replicas[i] = s.daemon("10s")
	}
	group.Wait()
	t.Logf("%d pods lived, %d ended in order, %d without a DEL", s.lived.Load(), s.ended.Load(), s.crashed.Load())
	if s.ended.Load() == 0 || s.crashed.Load() == 0 {
		t.Error("the storm was none")
	}
	for _, text := range s.contradictions(s.world.namespace) {
		t.Log("at the end of the storm:", text) // halves may be on their way to be mended
	}
	took := s.eventually("all addresses come free", func() string {
		if left := s.owners(); len(left) > 0 {
			return fmt.Sprint(left)
		}
		if left := s.must().List(s.path(reservations)); len(left) > 0 {
			return fmt.Sprintf("%d reservations", len(left))
		}
		return ""
	})
	t.Logf("all free after %s", took.Round(10*time.Millisecond))
	for _, text := range s.contradictions(s.world.namespace) {
		t.Error(text)
	}
	if t.Failed() {
		t.Log(replicas[0].log.String(), replicas[1].log.String())
	}
}

func newStorm(t *testing.T, d time.Duration) *storm {
	t.Helper()
	s := &storm{world: newWorld(t), held: map[netip.Addr]string{}}
	s.namespace = s.cp.Namespace(t)
	for name, cidr := range map[string]string{"wide": "10.102.0.0/26", "narrow": "10.102.0.0/28"} {
		s.networks = append(s.networks, s.network(s.namespace, name, cidr))
	}
	for i := range 3 {
		s.nodes = append(s.nodes, s.node(fmt.Sprintf("node-%d", i)))
	}
	s.until = time.Now().Add(d)
	return s
}

// work runs one pod after the other, some with the name of the one before.
func (s *storm) work(worker int) {
	for i := 0; time.Now().Before(s.until); i++ {
		name := fmt.Sprintf("web-%d", worker)
		if rand.IntN(2) == 0 {
			name = fmt.Sprintf("job-%d-%d", worker, i)
		}
		if err := s.live(name); err != nil {
			s.Errorf("%s: %v", name, err)
			return
		}
	}
}

// live is the life of one pod.
func (s *storm) live(name string) error {
	m, n := s.nodes[rand.IntN(len(s.nodes))], s.networks[rand.IntN(len(s.networks))]
	p, err := s.makePod(name, m.name)
	if err != nil {
		return err
	}
	a, err := s.addUntilGiven(m, p, n)
	if err != nil {
		return err
	}
	if err := s.claim(a, p); err != nil {
		return err
	}
	s.lived.Add(1)
	if err := s.show(p, a); err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	if err := s.stillHeld(p, n, a); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.held, a)
	s.mu.Unlock()
	return s.end(m, p, n)
}

func (s *storm) claim(a netip.Addr, p *pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.held[a]; ok {
		return fmt.Errorf("%s was given to %s while %s has it", a, p.container, other)
	}
	s.held[a] = p.container
	return nil
}

// addUntilGiven tries again while the pool is full, with a new container each time as
// a kubelet does.
func (s *storm) addUntilGiven(m machine, p *pod, n network) (a netip.Addr, err error) {
	for try := range 100 {
		p.container = fmt.Sprintf("c-%s-%d", p.uid, try)
		if a, err = m.add(p, n); err == nil {
			return a, nil
		}
		if err := m.del(p, n); err != nil {
			return a, err
		}
		time.Sleep(300 * time.Millisecond)
	}
	return a, err
}

// end ends a pod in one of the ways in which pods end.
func (s *storm) end(m machine, p *pod, n network) error {
	switch rand.IntN(3) {
	case 0:
		s.ended.Add(1)
		if err := m.del(p, n); err != nil {
			return err
		}
	case 1:
		s.crashed.Add(1)
		if err := s.setPhase(p, "Failed"); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
	default:
		s.crashed.Add(1)
	}
	return s.cp.Client().Delete(s.Context(), p.path(), Object{"gracePeriodSeconds": 0})
}
