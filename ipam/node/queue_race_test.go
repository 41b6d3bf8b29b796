package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// outcome is what a waiting process was told.
type outcome struct {
	answer []byte
	err    error
}

// wait puts a request into a locked queue, in the background.
func wait(ctx context.Context, q *Queue, body []byte, patience time.Duration, work Work) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		answer, err := q.Do(ctx, body, upTo(patience), work)
		ended <- outcome{answer, err}
	}()
	return ended
}

// listed waits until the queue has a request, as who works would list it; or until
// it has been withdrawn.
func listed(t *testing.T, q *Queue, ended <-chan outcome) []Request {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); {
		waiting, err := q.waiting()
		if err != nil {
			t.Fatal(err)
		}
		if len(waiting) > 0 || len(ended) > 0 {
			return waiting
		}
	}
	t.Fatal("no request in the queue")
	return nil
}

func workingAlone(answer string) Work {
	return func([]Request, Deliver) []byte { return []byte(answer) }
}

func noWork(t *testing.T) Work {
	return func([]Request, Deliver) []byte {
		t.Error("a request was carried out that should not be")
		return nil
	}
}

func openTestQueue(t *testing.T) *Queue {
	t.Helper()
	q, err := OpenQueue(shm(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// The time of a waiting process ends while its request is read, removed or
// answered. It must get the answer or give up, and whoever works has to know which.
func TestWithdrawingWhileBeingAnswered(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	var answered, gaveUp int
	for i := range 1500 {
		unlock := lockQueue(t, q)
		patience := time.Duration(rand.IntN(1500)) * time.Microsecond
		ended := wait(t.Context(), q, []byte("x"), patience, noWork(t))
		waiting := listed(t, q, ended)
		for end := time.Now().Add(time.Duration(rand.IntN(1000)) * time.Microsecond); time.Now().Before(end); {
		}
		delivered := len(waiting) > 0 && q.deliver(waiting[0], []byte("answer"))
		o := <-ended
		unlock()
		switch {
		case o.err == nil && string(o.answer) == "answer" && delivered:
			answered++
		case errors.Is(o.err, ErrWaited) && !delivered:
			gaveUp++
		default:
			t.Fatalf("round %d: delivered is %v, and the process was told %q, %v", i, delivered, o.answer, o.err)
		}
	}
	if answered == 0 || gaveUp == 0 {
		t.Errorf("no race: %d answered, %d gave up", answered, gaveUp)
	}
	t.Logf("%d answered, %d gave up", answered, gaveUp)
}

// The lock comes free right behind the answer: the process must not work itself.
func TestAnswerAndLockComeTogether(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	for range 500 {
		unlock := lockQueue(t, q)
		ended := wait(t.Context(), q, []byte("x"), hang, noWork(t))
		waiting := listed(t, q, ended)
		if len(waiting) != 1 || !q.deliver(waiting[0], []byte("answer")) {
			t.Fatal("not delivered")
		}
		unlock()
		if o := <-ended; o.err != nil || string(o.answer) != "answer" {
			t.Fatalf("told %q, %v", o.answer, o.err)
		}
	}
}

// The lock comes free without an answer: the process works itself, once.
func TestLockComesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ removed bool }{"untouched": {false}, "removed by one that died": {true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := openTestQueue(t)
			unlock := lockQueue(t, q)
			ended := wait(t.Context(), q, []byte("x"), hang, workingAlone("own"))
			waiting := listed(t, q, ended)
			if c.removed {
				q.remove(waiting[0].name)
			}
			unlock()
			if o := <-ended; o.err != nil || string(o.answer) != "own" {
				t.Errorf("told %q, %v", o.answer, o.err)
			}
			if !c.removed && q.deliver(waiting[0], []byte("late")) {
				t.Error("delivered to a process that works itself")
			}
		})
	}
}

func TestSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	unlock := lockQueue(t, q)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	ended := wait(ctx, q, []byte("x"), hang, noWork(t))
	waiting := listed(t, q, ended)
	cancel()
	if o := <-ended; !errors.Is(o.err, ErrWaited) {
		t.Errorf("told %q, %v", o.answer, o.err)
	}
	if q.deliver(waiting[0], []byte("late")) {
		t.Error("delivered to a process that has given up")
	}
	if again, err := q.waiting(); err != nil || len(again) != 0 {
		t.Errorf("still in the queue: %v, %v", again, err)
	}
}

func TestLargeRequestAndLargeAnswer(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	unlock := lockQueue(t, q)
	defer unlock()
	body, answer := make([]byte, 1<<20), make([]byte, 1<<20)
	for i := range body {
		body[i], answer[i] = byte(i%250+1)^'\n', 'a'+byte(i%26)
	}
	ended := wait(t.Context(), q, body, hang, noWork(t))
	waiting := listed(t, q, ended)
	if !slices.Equal(waiting[0].Body, body) {
		t.Error("the request is another one")
	}
	if !q.deliver(waiting[0], answer) {
		t.Error("not delivered")
	}
	if o := <-ended; o.err != nil || !slices.Equal(o.answer, answer) {
		t.Errorf("told %d bytes, %v", len(o.answer), o.err)
	}
}

func TestEmptyRequestAndEmptyAnswer(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	unlock := lockQueue(t, q)
	defer unlock()
	ended := wait(t.Context(), q, nil, hang, noWork(t))
	waiting := listed(t, q, ended)
	if len(waiting) != 1 || len(waiting[0].Body) != 0 || !q.deliver(waiting[0], nil) {
		t.Error("not delivered")
	}
	if o := <-ended; o.err != nil || len(o.answer) != 0 {
		t.Errorf("told %q, %v", o.answer, o.err)
	}
}

func TestRequestIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	unlock := lockQueue(t, q)
	defer unlock()
	ended := wait(t.Context(), q, []byte("x"), hang, noWork(t))
	waiting := listed(t, q, ended)
	if !q.deliver(waiting[0], []byte("first")) {
		t.Error("not delivered")
	}
	if q.deliver(waiting[0], []byte("second")) {
		t.Error("delivered twice")
	}
	if o := <-ended; o.err != nil || string(o.answer) != "first" {
		t.Errorf("told %q, %v", o.answer, o.err)
	}
}

// More wait than fit one batch: the rest is for the next process.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	unlock := lockQueue(t, q)
	n := maxBatch + 30
	var mutex sync.Mutex
	var batches []int
	done := make(chan outcome, n)
	for i := range n {
		body := fmt.Sprint(i)
		go func() {
			answer, err := q.Do(t.Context(), []byte(body), upTo(hang), func(waiting []Request, deliver Deliver) []byte {
				mutex.Lock()
				defer mutex.Unlock()
				batches = append(batches, len(waiting))
				for _, r := range waiting {
					if !deliver(r, r.Body) {
						t.Error("not delivered")
					}
				}
				return []byte(body)
			})
			if string(answer) != body {
				err = errors.Join(err, fmt.Errorf("%s was told %q", body, answer))
			}
			done <- outcome{answer, err}
		}()
	}
	c := &crowd{t: t, queue: q}
	c.waitFor("all to queue", func() bool { return len(c.requests()) == n })
	unlock()
	for range n {
		if o := <-done; o.err != nil {
			t.Error(o.err)
		}
	}
	if len(batches) != 2 || batches[0] != maxBatch {
		t.Errorf("batches with %v others, want %d and the rest", batches, maxBatch)
	}
}

// Those who wait go on while the other process makes progress, to a limit.
func TestPatienceEndsWithProgress(t *testing.T) {
	t.Parallel()
	directory := shm(t)
	q, err := OpenQueue(directory, "test")
	if err != nil {
		t.Fatal(err)
	}
	const still = 300 * time.Millisecond
	for name, c := range map[string]struct {
		patience Patience
		beats    bool
		least    time.Duration
	}{
		"no progress":            {Patience{Still: still, Limit: hang}, false, still},
		"progress, to the limit": {Patience{Still: still, Limit: 5 * still}, true, 5 * still},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			working := make(chan struct{})
			var ended sync.WaitGroup
			ended.Go(func() {
				_, _ = q.Do(t.Context(), nil, upTo(hang), func([]Request, Deliver) []byte {
					close(working)
					for {
						if c.beats {
							q.Beat()
						}
						select {
						case <-release:
							return nil
						case <-time.After(still / 10):
						}
					}
				})
			})
			<-working
			begin := time.Now()
			_, err := q.Do(t.Context(), nil, c.patience, func([]Request, Deliver) []byte { return nil })
			if waited := time.Since(begin); !errors.Is(err, ErrWaited) || waited < c.least {
				t.Errorf("gave up after %s with %v, want at least %s", waited, err, c.least)
			}
			close(release)
			ended.Wait()
		})
	}
}
