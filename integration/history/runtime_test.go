package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// worker is what lets pods come and go, one after the other, as a kubelet and its
// runtime do.
type worker struct {
	*world
	number int
	pods   int
	rng    *rand.Rand
}

// fate is what befalls the process of one call.
type fate int

const (
	undisturbed fate = iota
	killed           // after a moment
	givenUp          // the runtime loses patience, and the process goes on
)

// fate is chosen beforehand, so that a seed repeats it.
func (w *worker) fate(verb string) (fate, time.Duration) {
	after := within(w.rng, 50*time.Millisecond)
	switch roll := w.rng.IntN(100); {
	case w.calm.Load():
		return undisturbed, 0
	case roll < 6:
		return killed, after
	case roll < 8 && verb == "ADD":
		return givenUp, 2 * after
	default:
		return undisturbed, 0
	}
}

// call runs the plugin once. The answer of a process that was given up is "killed",
// too: the runtime does not know what becomes of it.
func (w *worker) call(c call) answer {
	fate, after := w.fate(c.verb)
	w.stats.begin()
	p, err := c.pod.node.start(c)
	if err != nil {
		w.stats.end(c.verb, answer{broken: err.Error()})
		w.ledger.find(fmt.Sprintf("%s of %s could not be started: %v", c.verb, c.container, err))
		return answer{broken: err.Error()}
	}
	if fate == givenUp {
		return w.giveUp(p, after)
	}
	if fate == killed {
		defer p.killAfter(after).Stop()
	}
	a := p.wait()
	w.finished(c, a)
	return a
}

// giveUp waits for a process for a while only. It stays under watch until it ends.
func (w *worker) giveUp(p *process, patience time.Duration) answer {
	done := make(chan answer, 1)
	w.background.Go(func() {
		a := p.wait()
		w.finished(p.call, a)
		done <- a
	})
	select {
	case a := <-done:
		return a
	case <-time.After(patience):
		w.stats.happened("processes given up", 1)
		w.ledger.note(p.call.container, "ADD is given up and goes on", "")
		return answer{killed: true}
	}
}

// finished writes down how a process ended.
func (w *worker) finished(c call, a answer) {
	w.stats.end(c.verb, a)
	w.ledger.note(c.container, fmt.Sprintf("%s %s on %s (network %s): %s", c.verb, c.ifName, c.pod.node.name, c.network.name, a), a.stderr)
	if a.killed && c.verb == "ADD" {
		w.ledger.excuse(c.container, addKilled)
	}
	if a.broken != "" {
		w.ledger.find(fmt.Sprintf("%s of %s: %s\n%s", c.verb, c.container, a.broken, a.stderr))
	}
	notRecorded := c.verb == "CHECK" && a.code == codeNotRecorded // check deals with that
	if !a.ok() && !a.killed && !notRecorded && !expected(a) {
		w.ledger.find(fmt.Sprintf("%s of %s fails in a way that nothing explains: %s\n%s", c.verb, c.container, a, a.stderr))
	}
}

// Codes of CNI errors: the CNI spec's own, and those of Whereabouts.
const (
	codeTryAgain    = 11
	codeNotRecorded = 100
	codeDenied      = 102
)

// expected reports whether a failure is of a kind that faults and full pools bring
// about. A refusal for good is pretended by the proxies now and then, by 422.
func expected(a answer) bool {
	return a.code == codeTryAgain || a.code == codeDenied && strings.Contains(a.message, "injected by the test")
}

// add asks for an address and writes down what it was told.
func (w *worker) add(s *sandbox, at attachment) bool {
	w.ledger.note(s.container, "ADD "+at.ifName+" starts", "")
	a := w.call(call{verb: "ADD", network: at.network, pod: s.pod, container: s.container, ifName: at.ifName})
	if !a.ok() {
		return false
	}
	w.ledger.granted(s.holder(at), at.network, at.network.places(a.ips))
	s.remember(at.ifName, a.result)
	return true
}

// addAll attaches all interfaces; false if one of them could not be.
func (w *worker) addAll(s *sandbox) bool {
	s.begin()
	w.register.set(s, true)
	for _, at := range s.pod.attachments {
		if !w.add(s, at) {
			return false
		}
	}
	return true
}

// del gives everything back, as often as it takes.
func (w *worker) del(s *sandbox) {
	s.end()
	for _, at := range slices.Backward(s.pod.attachments) {
		w.ledger.ends(s.holder(at), "DEL "+at.ifName+" starts")
		for w.tries(s, at) {
			time.Sleep(within(w.rng, 200*time.Millisecond))
		}
		s.remember(at.ifName, nil)
	}
	w.register.remove(s)
}

// tries makes one DEL and reports whether another one is needed. A runtime that has
// lost the result of the ADD passes none; now and then it repeats a DEL that went well.
func (w *worker) tries(s *sandbox, at attachment) bool {
	c := call{verb: "DEL", network: at.network, pod: s.pod, container: s.container, ifName: at.ifName}
	if previous := s.previous(at.ifName); previous != nil && w.rng.IntN(4) > 0 {
		c.config = Object{"prevResult": previous}
	}
	done := w.call(c).ok()
	return !done || w.rng.IntN(20) == 0
}

// check looks whether what the pod holds is recorded. Only the datastore may be in
// the way of that.
func (w *worker) check(s *sandbox) {
	for _, at := range s.pod.attachments {
		c := call{
			verb: "CHECK", network: at.network, pod: s.pod, container: s.container, ifName: at.ifName,
			config: Object{"prevResult": s.previous(at.ifName)},
		}
		if a := w.call(c); !a.killed && a.code == codeNotRecorded {
			w.ledger.find(fmt.Sprintf("CHECK of %s: %s", s.holder(at), a), w.ledger.holds(s.holder(at))...)
		}
	}
}

// newPod makes a pod on a random node. Some have the name of an earlier one that may
// still be there.
func (w *worker) newPod() *pod {
	w.pods++
	p := &pod{namespace: "default", uid: fmt.Sprintf("w%02d-p%d", w.number, w.pods), node: w.nodes[w.rng.IntN(len(w.nodes))]}
	p.name = p.uid
	if w.rng.IntN(3) == 0 {
		p.name = fmt.Sprintf("web-%d", w.rng.IntN(6))
	}
	for i := range 1 + w.rng.IntN(2) {
		p.attachments = append(p.attachments, attachment{w.networks[w.rng.IntN(len(w.networks))], fmt.Sprintf("net%d", i+1)})
	}
	return p
}

// start brings a pod up, with a few containers if need be; nil if it never came up.
func (w *worker) start(p *pod) *sandbox {
	for range 3 {
		s := p.newSandbox()
		if w.addAll(s) {
			return s
		}
		w.del(s)
		if w.over() {
			return nil
		}
		w.pause()
	}
	return nil
}

// pause is short as a rule: pods are to be in each other's way.
func (w *worker) pause() {
	longest := 150 * time.Millisecond
	if w.rng.IntN(10) == 0 && !w.over() {
		longest = 5 * time.Second
	}
	time.Sleep(within(w.rng, longest))
}

// live is the whole life of a pod.
func (w *worker) live() {
	s := w.start(w.newPod())
	for range w.rng.IntN(4) {
		if s == nil {
			return
		}
		w.pause()
		s = w.happen(s)
	}
	switch {
	case s == nil:
	case w.over() && w.rng.IntN(2) == 0:
		w.survive(s)
	case w.rng.IntN(12) == 0:
		w.forget(s)
	case w.rng.IntN(10) == 0:
		w.del(s)
		if w.addAll(s) { // the same container again
			w.pause()
		}
		w.del(s)
	default:
		w.del(s)
	}
}

// happen lets something happen to a pod and answers the sandbox it is in then; nil if
// it did not outlive that.
func (w *worker) happen(s *sandbox) *sandbox {
	switch w.rng.IntN(5) {
	case 0:
		w.check(s)
	case 1: // the runtime asks again
		at := s.pod.attachments[w.rng.IntN(len(s.pod.attachments))]
		if !w.add(s, at) {
			w.del(s)
			return nil
		}
	case 2, 3:
		return w.restart(s)
	case 4:
	}
	return s
}

// restart replaces a sandbox that has died. Its DEL comes some time later, perhaps
// before the new one has its addresses.
func (w *worker) restart(old *sandbox) *sandbox {
	held := map[string][]place{}
	for _, at := range old.pod.attachments {
		held[at.ifName] = w.ledger.holds(old.holder(at))
		w.ledger.ends(old.holder(at), "died; the pod gets a new container")
	}
	w.later(within(w.rng, time.Second), func(other *worker) { other.del(old) })
	next := old.pod.newSandbox()
	if !w.addAll(next) {
		w.del(next)
		return w.start(old.pod)
	}
	for _, at := range next.pod.attachments {
		now := w.ledger.holds(next.holder(at))
		if !old.isEnding() && !slices.Equal(now, held[at.ifName]) && !w.hasTraces(old.pod) {
			w.ledger.find(fmt.Sprintf("%s did not keep the addresses %v of %s and got %v", next.holder(at), held[at.ifName], old.container, now),
				slices.Concat(now, held[at.ifName])...)
		}
	}
	return next
}

// hasTraces reports whether a container of the pod may have left a record behind,
// which another one then adopts instead of its predecessor's.
func (w *worker) hasTraces(p *pod) bool {
	for i := range p.containers.Load() {
		if len(w.ledger.excusesOf(fmt.Sprintf("%s-c%d", p.uid, i+1))) > 0 {
			return true
		}
	}
	return false
}

// forget leaves a sandbox behind without a DEL, for the garbage collection.
func (w *worker) forget(s *sandbox) {
	for _, at := range s.pod.attachments {
		w.ledger.ends(s.holder(at), "died and is forgotten")
	}
	w.register.set(s, false)
}
