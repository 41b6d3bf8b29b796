package mixed

import (
	"testing"
	"time"
)

// stage is the one way to two holders of an address: a live pod of ours, in a range
// that overlaps with that of an older node, whose DEL takes our reservation away.
type stage struct {
	*world
	old, our  *node
	net       network // of the older plugin
	overlaps  network // of our pod: another pool with the same addresses
	holder    sandbox // has firstAddress
	failed    sandbox // of the older plugin: its entry of firstAddress has stayed
	afterward []*node // that ask for an address in net
}

func newStage(t *testing.T) *stage {
	w := newOwnWorld(t, ourDefinitions)
	s := &stage{
		world: w, old: w.oldNode(), our: w.ourNode(),
		net:      networkOf("net-a", "10.90.0.0/29", firstAddress, "10.90.0.6"),
		overlaps: networkOf("net-b", "10.90.0.0/28", firstAddress, "10.90.0.6"),
	}
	s.afterward = []*node{w.ourNode(), w.oldNode()}
	w.define(s.net, s.overlaps)
	s.holder, s.failed = s.pod("holder", s.our), s.pod("failed", s.old)
	w.adds(s.our, s.holder, s.overlaps, firstAddress)
	s.shows(s.holder)
	// What a failed ADD leaves, see TestTraits.
	w.seedPool(s.net, "10.90.0.0/29", Object{"1": entryFor(s.failed.container, s.failed.podRef())})
	return s
}

func (s *stage) pod(name string, n *node) sandbox {
	s.Helper()
	made, err := s.makePod(s.Context(), name, n.name)
	if err != nil {
		s.Fatal(err)
	}
	return made
}

func (s *stage) shows(b sandbox) {
	s.Helper()
	if err := s.runs(s.Context(), b, s.net.span.first); err != nil {
		s.Fatal(err)
	}
}

// A live pod's reservation that an older plugin deletes is made again by reconcile, and
// no plugin of either kind gives the address to another pod then.
func TestReservationIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c := s.watches()
	s.dels(s.old, s.failed, s.net)
	took := s.eventually("the reservation is there again", func() string {
		if got := s.reservation(s.net, firstAddress).String("podref"); got != s.holder.podRef() {
			return "the reservation is of " + got + "\n" + c.log.String()
		}
		return ""
	})
	t.Logf("the reservation was there again %s after the DEL", took.Round(10*time.Millisecond))
	for i, n := range s.afterward {
		a := s.addsAny(n, s.pod([]string{"next-a", "next-b"}[i], n), s.net)
		if a == s.net.span.first {
			t.Errorf("%s gave %s to another pod", n.name, a)
		}
	}
}

// Without reconcile the window stays open. That it does is what the guide says, and
// shows that the test above tests something.
func TestReservationStaysDeletedWithoutReconcile(t *testing.T) {
	t.Parallel()
	for i, kind := range []string{"ours", "older"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.dels(s.old, s.failed, s.net)
			s.adds(s.afterward[i], s.pod("next", s.afterward[i]), s.net, firstAddress)
		})
	}
}
