package node

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAllThatWaitAreServedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	all := names("p", 40)
	unlock := c.lock()
	for _, body := range all {
		c.start(caller{Body: body})
	}
	c.waitFor("all to queue", func() bool { return len(c.requests()) == len(all) })
	unlock()
	c.mustAnswer(all...)
	batches := c.worked()
	if len(batches) != 1 {
		t.Fatalf("%d batches instead of one: %v", len(batches), batches)
	}
	if got := slices.Sorted(slices.Values(batches[0])); !slices.Equal(got, slices.Sorted(slices.Values(all))) {
		t.Errorf("the batch has %v", got)
	}
	if left := c.files(); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

// Without anybody who holds them up, they meet as it happens.
func TestManyAtOnceAreCarriedOutOnceEach(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	all := names("p", 40)
	for _, body := range all {
		c.start(caller{Body: body})
	}
	c.mustAnswer(all...)
	if got := slices.Sorted(slices.Values(slices.Concat(c.worked()...))); !slices.Equal(got, slices.Sorted(slices.Values(all))) {
		t.Errorf("carried out: %v", got)
	}
	if left := c.files(); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

func TestRequestsComeInTheOrderOfTheirTime(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	unlock := c.lock()
	c.startWaiting(caller{}, "a", "b", "c", "d")
	unlock()
	c.mustAnswer("a", "b", "c", "d")
	batch := c.worked()[0]
	if waiting := batch[1:]; !slices.IsSorted(waiting) { // the first one is the process that works
		t.Errorf("order %v", waiting)
	}
}

func TestWaiterKilledBeforeItsTurnIsDropped(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	unlock := c.lock()
	c.startWaiting(caller{}, "a", "dead", "b", "c")
	c.kill("dead")
	unlock()
	c.mustAnswer("a", "b", "c")
	for _, batch := range c.worked() {
		if slices.Contains(batch, "dead") {
			t.Errorf("the request of a dead process was carried out: %v", batch)
		}
	}
	if left := c.files(); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

func TestWaiterKilledWhileItsRequestIsCarriedOutIsNotAnswered(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	unlock := c.lock()
	all := []string{"a", "b", "c", "d"}
	c.startWaiting(caller{PauseAt: pauseListed}, all...)
	unlock()
	holder := c.paused()
	dead := without(all, holder)[1]
	c.kill(dead)
	c.goOn(holder)
	c.mustAnswer(without(all, dead)...)
	if delivered, tried := c.deliveredTo(dead); delivered || !tried {
		t.Errorf("delivery to a dead process: tried %v, delivered %v", tried, delivered)
	}
	for _, body := range without(all, dead, holder) {
		if delivered, _ := c.deliveredTo(body); !delivered {
			t.Errorf("delivery to %s failed", body)
		}
	}
}

// An answer in the pipe counts as delivered: a process that dies afterwards is like
// one that dies while it prints.
func TestWaiterKilledAfterItsAnswerWasDelivered(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	unlock := c.lock()
	all := []string{"a", "b", "c"}
	c.startWaiting(caller{PauseAt: pauseListed}, all...)
	unlock()
	holder := c.paused()
	dead := without(all, holder)[0]
	c.stop(dead)
	c.goOn(holder)
	c.mustAnswer(without(all, dead)...)
	c.kill(dead)
	if delivered, _ := c.deliveredTo(dead); !delivered {
		t.Error("an answer that fits into the pipe was not delivered to a process that stands still")
	}
}

func TestHolderKilledAtAnyStepHarmsNobody(t *testing.T) {
	t.Parallel()
	for _, step := range []string{pauseListed, pauseRemoved, pauseDelivered, pauseAnswered} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			unlock := c.lock()
			all := names("p", 8)
			c.startWaiting(caller{PauseAt: step}, all...)
			unlock()
			holder := c.paused()
			c.kill(holder)
			rest := without(all, holder)
			c.mustAnswer(rest...)
			c.carriedOutAfter(holder, step, rest)
			pipe := fmt.Sprintf("-%d.answer", c.processes[holder].cmd.Process.Pid) // cleared away later
			for _, file := range c.files() {
				if !strings.HasSuffix(file, pipe) {
					t.Errorf("left in the queue: %s", file)
				}
			}
		})
	}
}

// carriedOutAfter checks the batches after the first one, whose holder was killed.
func (c *crowd) carriedOutAfter(holder, step string, rest []string) {
	c.t.Helper()
	again := slices.Concat(c.worked()[1:]...)
	if slices.Contains(again, holder) {
		c.t.Errorf("the request of the dead holder was carried out again: %v", again)
	}
	for _, body := range rest {
		times, want := 0, 1
		for _, b := range again {
			if b == body {
				times++
			}
		}
		if delivered := c.deliveredBy(holder, body); delivered {
			want = 0
		}
		if times != want {
			c.t.Errorf("%s: the request of %s was carried out %d times after the death of the holder, want %d", step, body, times, want)
		}
	}
}

func (c *crowd) deliveredBy(holder, body string) bool {
	return slices.ContainsFunc(c.past, func(e event) bool {
		return e.Step == "delivered" && e.By == holder && e.To == body && e.Delivered
	})
}

// A process that is killed with the lock in its hand, before it has looked at
// anything.
func TestHolderKilledBeforeItListsAnything(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.start(caller{Body: "holder", PauseAt: pauseListed}) // lists an empty queue
	if holder := c.paused(); holder != "holder" {
		t.Fatalf("%s has the lock", holder)
	}
	all := names("p", 5)
	c.startWaiting(caller{}, all...)
	c.kill("holder")
	c.mustAnswer(all...)
}

func TestHoldersKilledOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	unlock := c.lock()
	all := names("p", 8)
	c.startWaiting(caller{PauseAt: pauseDelivered}, all...)
	unlock()
	alive := all
	for i := range 3 {
		holder := c.paused()
		alive = without(alive, holder)
		if i < 2 {
			c.putToken() // so that the next one pauses as well
		}
		c.kill(holder)
	}
	c.mustAnswer(alive...)
	for _, body := range alive {
		if delivered, tried := c.deliveredTo(body); tried && !delivered {
			t.Errorf("delivery to %s failed", body)
		}
	}
}

func TestStoppedHolderIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.start(caller{Body: "holder", PauseAt: pauseListed})
	c.paused()
	c.stop("holder")
	c.startWaiting(caller{Patience: 200 * time.Millisecond}, "a")
	if e := c.ended("a")["a"]; !e.GaveUp {
		t.Errorf("the waiting process ended with %+v", e)
	}
	if left := c.requests(); len(left) != 0 {
		t.Errorf("requests were not withdrawn: %v", left)
	}
	c.signal("holder", syscall.SIGCONT)
	c.goOn("holder")
	c.mustAnswer("holder")
}

// The holder has read the request and is stopped. What comes after the process has
// given up must not count as delivered.
func TestAnswerAfterTheWaiterGaveUpIsNotDelivered(t *testing.T) {
	t.Parallel()
	for _, step := range []string{pauseListed, pauseRemoved} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			unlock := c.lock()
			c.startWaiting(caller{PauseAt: step, Patience: 3 * time.Second}, "a", "b")
			unlock()
			holder := c.paused()
			other := without([]string{"a", "b"}, holder)[0]
			if e := c.ended(other)[other]; !e.GaveUp {
				t.Errorf("the waiting process ended with %+v", e)
			}
			c.goOn(holder)
			c.mustAnswer(holder)
			if delivered, _ := c.deliveredTo(other); delivered {
				t.Error("delivered to a process that has given up")
			}
		})
	}
}

// A pipe takes 64 KiB. A process that stands still must not hold up the others for
// its answer, nor believe half of one later.
func TestStoppedWaiterAndAnAnswerThatDoesNotFitIntoThePipe(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	unlock := c.lock()
	all := []string{"a", "b", "c"}
	c.startWaiting(caller{PauseAt: pauseListed, AnswerSize: 1 << 20}, all...)
	unlock()
	holder := c.paused()
	stopped := without(all, holder)[0]
	c.stop(stopped)
	c.goOn(holder)
	c.ended(without(all, stopped)...)
	if delivered, tried := c.deliveredTo(stopped); delivered || !tried {
		t.Errorf("delivery to a stopped process: tried %v, delivered %v", tried, delivered)
	}
	c.signal(stopped, syscall.SIGCONT)
	for body, e := range c.ended(all...) {
		if len(e.Answer) != 1<<20 || e.Answer[:len("answer to x")] != "answer to "+body {
			t.Errorf("%s ended with %d bytes, gave up %v, failed %q", body, len(e.Answer), e.GaveUp, e.Failed)
		}
	}
}
