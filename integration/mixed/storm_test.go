package mixed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	timeVariable = "MIXED_TIME"
	seedVariable = "MIXED_SEED"

	workers = 9

	// window is how long an address of a live pod may be without its reservation, as the
	// guide says, when reconcile runs and the API server serves it.
	window = time.Second
)

// storm is pods that come and go on nodes of both kinds.
type storm struct {
	*world
	seed   uint64
	nets   []network
	nodes  []*node
	ledger *ledger
	story  *chronicle
	until  time.Time

	mu    sync.Mutex
	count map[string]int
}

// Pods come and go on nodes of both kinds, on pools that overlap, while processes are
// killed and requests fail. Then for each address that two pods have had at once the
// history has to show that it is one of the window that the guide tells of: an older
// plugin's DEL deleted the reservation of a live pod that was not its own, and another
// pod took the address before reconcile had made it again. While older plugins delete
// only what is theirs there must be none. At the end nothing is left that reconcile
// would not free.
//
// How long a window lasts is looked at in a run that MIXED_TIME asks for, since a
// machine may be slow.
func TestStorm(t *testing.T) {
	length, long := 7*time.Second, false
	if text := os.Getenv(timeVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", timeVariable, err)
		}
		long = true
	}
	seed := seedOf(t)
	w := newOwnWorld(t, ourDefinitions)
	for i, part := range []struct {
		name             string
		right, reconcile bool
	}{
		{"with reconcile", false, true},
		{"without reconcile", false, false},
		{"without wrong DELs, with reconcile", true, true},
		{"without wrong DELs, without reconcile", true, false},
	} {
		t.Run(part.name, func(t *testing.T) {
			s := newStorm(w.in(t), seed+uint64(i), part.right)
			var gaps []time.Duration
			if part.reconcile {
				c := s.watches()
				gaps = s.blow(length)
				if c.kill(); t.Failed() {
					t.Log(c.log.String())
				}
			} else {
				gaps = s.blow(length)
			}
			if part.right && len(gaps) > 0 {
				t.Errorf("%d addresses had two holders", len(gaps))
			}
			for _, gap := range gaps {
				if long && part.reconcile && gap > window {
					t.Errorf("a reservation was away for %s, more than %s", gap, window)
				}
			}
			s.settles()
		})
	}
}

func seedOf(t *testing.T) uint64 {
	seed := rand.Uint64N(1_000_000)
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	return seed
}

func newStorm(w *world, seed uint64, right bool) *storm {
	w.Helper()
	s := &storm{world: w, seed: seed, ledger: newLedger(), count: map[string]int{}, nets: []network{
		networkOf("net-a", "10.91.0.0/24", "10.91.0.10", "10.91.0.90"),
		networkOf("net-b", "10.91.0.0/25", "10.91.0.10", "10.91.0.90"),
		networkOf("net-c", "10.91.0.0/24", "10.91.0.12", "10.91.0.80"),
	}}
	for i := range 4 {
		n := s.node(i%2 == 0)
		n.right = right
		weather(n, rand.New(rand.NewPCG(seed, 1000+uint64(i))))
		s.nodes = append(s.nodes, n)
	}
	s.define(s.nets...)
	return s
}

// blow lets pods come and go, and answers for each double of the window for how long the
// reservation had been away.
func (s *storm) blow(length time.Duration) []time.Duration {
	s.Helper()
	watching, stop := context.WithCancel(s.Context())
	defer stop()
	s.story = s.chronicle(watching)
	s.until = time.Now().Add(length)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(s.seed, uint64(i)))
			for k := 0; time.Now().Before(s.until); k++ {
				if err := s.live(rng, i%3 == 0, fmt.Sprintf("pod-%d-%d", i, k)); err != nil {
					s.Errorf("pod-%d-%d: %v", i, k, err)
					return
				}
			}
		})
	}
	group.Wait()
	s.told()
	stop()
	<-s.story.ended
	if s.story.broken != nil {
		s.Fatalf("the history is not complete: %v", s.story.broken)
	}
	gaps := s.judge()
	s.Logf("%d holdings; %v; doubles of the window: %v", s.ledger.holdings, s.count, gaps)
	if s.count["older ADD"] == 0 || s.count["our ADD"] == 0 {
		s.Error("the storm was none")
	}
	return gaps
}

// told waits until the chronicle has been told of all that was written.
func (s *storm) told() {
	s.Helper()
	const last = "192.0.2.1"
	s.must().Create(s.path(reservations), reservationObject(last, bare("default/last")))
	s.must().Delete(s.path(reservations) + "/" + last)
	s.eventually("the end of the history", func() string {
		if changes := s.story.of(last); len(changes) == 2 {
			return ""
		}
		return "the last change has not been told"
	})
}

// judge proves for each double that it is one of the window.
func (s *storm) judge() []time.Duration {
	s.Helper()
	var gaps []time.Duration
	taken := takings(s.nodes)
	s.wrongs(taken)
	for _, d := range s.ledger.doubles {
		changes := s.story.of(s.nets[0].reservation(d.first.address))
		gap, err := d.prove(changes, taken)
		if err != nil {
			s.Errorf("%s has two holders, and it is none of the window: %s; %s: %v\n%s", d.first.address, d.first, d.second, err, s.history(d, changes, taken))
		}
		gaps = append(gaps, gap)
	}
	return gaps
}

// wrongs counts the reservations that DELs of other pods have deleted.
func (s *storm) wrongs(taken []taking) {
	names := map[string]bool{}
	for _, t := range taken {
		names[t.name] = true
	}
	for name := range names {
		s.count["wrong DEL"] += len(wrong(s.story.of(name), taken))
	}
}

// live is the life of one pod, as a kubelet has it: after an ADD that failed, the DEL of
// its container until it succeeds, and then another one.
func (s *storm) live(rng *rand.Rand, old bool, name string) error {
	ctx := s.Context()
	n, net := s.lot(rng, old)
	first, err := s.makePod(ctx, name, n.name)
	if err != nil {
		return err
	}
	for try := 1; time.Now().Before(s.until); try++ {
		b := first.in(fmt.Sprintf("%s-c%d", name, try))
		a, err := s.try(rng, n, "ADD", b, net)
		if err != nil {
			return err
		}
		if a.ok() {
			if err := s.holdFor(rng, n, b.with(a.ip.String())); err != nil {
				return err
			}
			b = b.with(a.ip.String())
		}
		if err := s.leave(rng, n, b, net); err != nil || a.ok() {
			return errors.Join(err, s.dropPod(ctx, first))
		}
	}
	return s.dropPod(ctx, first)
}

// lot draws a node of a kind and a network: mostly one whose pool the other kind's nodes
// do not use, since there the reservations alone keep them apart.
func (s *storm) lot(rng *rand.Rand, old bool) (*node, network) {
	n, net := s.nodes[2*rng.IntN(2)], s.nets[0]
	if !old {
		n, net = s.nodes[1+2*rng.IntN(2)], s.nets[1]
	}
	if rng.IntN(3) == 0 {
		net = s.nets[rng.IntN(len(s.nets))]
	}
	return n, net
}

// holdFor lets a pod have its address for a while.
func (s *storm) holdFor(rng *rand.Rand, n *node, b sandbox) error {
	s.ledger.granted(b, n.name, b.had)
	defer s.ledger.ends(b, b.had)
	if err := s.runs(s.Context(), b, b.had); err != nil {
		return err
	}
	time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
	return nil
}

func (s *storm) leave(rng *rand.Rand, n *node, b sandbox, net network) error {
	for range 1000 {
		if a, err := s.try(rng, n, "DEL", b, net); err != nil || a.ok() {
			return err
		}
	}
	return fmt.Errorf("the DEL of %s on %s does not succeed", b.container, n.name)
}

// try is one call, which is killed now and then while the storm lasts.
func (s *storm) try(rng *rand.Rand, n *node, verb string, b sandbox, net network) (answer, error) {
	p, err := n.start(verb, b, net)
	if err != nil {
		return answer{}, err
	}
	if rng.IntN(20) == 0 && time.Now().Before(s.until) {
		defer time.AfterFunc(time.Duration(rng.IntN(300))*time.Millisecond, p.kill).Stop()
	}
	a, err := p.wait()
	kind := "our "
	if n.old {
		kind = "older "
	}
	s.counts(kind+verb, a)
	if err != nil && n.old {
		err = nil // it may be killed while it prints
	}
	return a, err
}

func (s *storm) counts(what string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.killed:
		s.count["killed"]++
	case a.ok():
		s.count[what]++
	default:
		s.count[what+" failed"]++
	}
}

// settles frees all that is left, by one more call on each of our nodes, which carries
// out what is queued, and by reconcile. Every pod is gone.
func (s *storm) settles() {
	s.Helper()
	for _, n := range s.nodes {
		n.proxy.Reset()
		if !n.old {
			s.dels(n, pod("nobody"), s.nets[0])
		}
	}
	s.Logf("left to reconcile: %d records", len(s.left()))
	s.cleans()
	s.empty()
}

// history tells all that is known of an address.
func (s *storm) history(d double, changes []change, taken []taking) string {
	text := ""
	for _, c := range changes {
		text += c.String() + "\n"
	}
	for _, t := range taken {
		if t.name == s.nets[0].reservation(d.first.address) {
			text += fmt.Sprintf("%s to %s the DEL of %s deletes\n", clock(t.begin), clock(t.end), t.podRef)
		}
	}
	for _, n := range s.nodes {
		for _, r := range n.proxy.Requests() {
			about := string(r.Body) + r.Path
			if r.Method != http.MethodGet && mentions(about, s.nets, d.first.address) {
				text += fmt.Sprintf("%s %s %s %d (%d) %s %s\n", clock(r.Begin), n.name, r, r.Status, r.Upstream, r.Fault, r.Body)
			}
		}
	}
	return text
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
