package commands

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// atOnce carries out n jobs, some at a time.
func atOnce(n, workers int, job func(i int)) {
	next := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				job(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

func containerName(i int) string { return fmt.Sprintf("c%d", i) }

// ledger notes which address the runtime believes to be whose.
type ledger struct {
	t     *testing.T
	mutex sync.Mutex
	holds map[string]string // container by address
}

func (l *ledger) took(address, container string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if other, taken := l.holds[address]; taken && other != container {
		l.t.Errorf("%s was given to %s while %s had it", address, container, other)
	}
	l.holds[address] = container
}

func (l *ledger) gaveBack(container string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for address, c := range l.holds {
		if c == container {
			delete(l.holds, address)
		}
	}
}

func TestManyAddsAndDelsAtOnce(t *testing.T) {
	const n, workers = churnSize, 40
	h := newHost(t, oneRange)
	book := &ledger{t: t, holds: map[string]string{}}
	atOnce(n, workers, func(i int) {
		for _, address := range h.start("ADD", containerName(i)).addresses() {
			book.took(address, containerName(i))
		}
	})
	held := h.stored()
	if len(held) != n {
		t.Errorf("%d are held, want %d", len(held), n)
	}
	for address, container := range book.holds {
		if held[address] != container {
			t.Errorf("%s was given to %s and is held by %q", address, container, held[address])
		}
	}
	atOnce(n, workers, func(i int) { h.start("DEL", containerName(i)).ok() })
	h.settle()
	h.holds()
}

// settle makes the calls that carry out what is queued.
func (h *host) settle() {
	h.t.Helper()
	for range 10 {
		if len(h.queued()) == 0 {
			return
		}
		h.del("nobody")
	}
	h.t.Errorf("still queued: %v", h.queued())
}

// One process in five is killed somewhere on its way. What the runtime does then is
// a DEL. Addresses in use must be nobody else's at any time, and in the end
// nothing may be held.
func TestProcessesKilledAnywhere(t *testing.T) {
	const n, workers = churnSize, 20
	h := newHost(t, oneRange)
	book := &ledger{t: t, holds: map[string]string{}}
	call := func(verb, container string) *plugin {
		p := h.start(verb, container)
		if rand.IntN(5) == 0 {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			_ = p.cmd.Process.Kill()
		}
		return p.wait()
	}
	var killed counter
	atOnce(n, workers, func(i int) {
		container := containerName(i)
		for range 3 { // the runtime tries again with the same container
			p := call("ADD", container)
			if p.killed() {
				killed.add()
				continue
			}
			for _, address := range p.addresses() {
				book.took(address, container)
			}
			break
		}
		book.gaveBack(container)
		if call("DEL", container).killed() {
			killed.add()
		}
	})
	if killed.n == 0 {
		t.Error("no process was killed")
	}
	t.Logf("%d processes were killed", killed.n)
	h.stored()
	atOnce(n, workers, func(i int) { h.start("DEL", containerName(i)).ok() })
	h.settle()
	h.holds()
}

type counter struct {
	mutex sync.Mutex
	n     int
}

func (c *counter) add() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.n++
}
