package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Queue lets the processes of one node that call the same store share their work.
// Whoever gets the lock carries out the requests of all that wait, its own
// included, answers them and leaves.
//
// # Files
//
// A queue is a directory:
//
//	lock                held (flock) by the process that is working
//	<name>.request      one waiting process's request; held (flock) while it waits
//	<name>.answer       a named pipe from which that process reads its answer
//
// Names sort by the time of the request. All locks end with their processes, and
// so does a reader of a pipe. That is what makes every death harmless:
//
//   - A waiting process that died no longer holds its request: it is dropped, not
//     carried out.
//   - One that dies while its request is carried out has no reader at its pipe
//     when the answer is written: what was done for it is undone.
//   - A working process that died has let the lock go: the next one finds all
//     requests that were not answered, and repeats them. A request is removed
//     before its answer is written, so that none is answered twice; a waiting
//     process that gets the lock and has neither a request nor an answer knows
//     that the other one died in between, and works itself.
type Queue struct {
	// Hold, if set, is called before the requests that wait are looked at, and may
	// take its time: those that come meanwhile go with them. The lock is held.
	Hold func()

	directory string
}

// OpenQueue makes the directory of a queue below the run directory. key tells
// apart what must not be combined: stores, credentials, formats of requests. An
// error means that this process has to work alone.
func OpenQueue(runDirectory, key string) (*Queue, error) {
	directory := filepath.Join(runDirectory, "queue-"+key)
	err := os.Mkdir(directory, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(directory, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return &Queue{directory: directory}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	sweepQueues(runDirectory)
	return &Queue{directory: directory}, nil
}

// unusedAge is after what time a queue has been left for good: each change of a
// kubeconfig makes another one.
const unusedAge = 24 * time.Hour

// sweepQueues removes queues that are no longer used. Somebody who uses one all the
// same finds its files gone, and works alone.
func sweepQueues(runDirectory string) {
	directories, _ := filepath.Glob(filepath.Join(runDirectory, "queue-*"))
	for _, directory := range directories {
		if info, err := os.Stat(directory); err == nil && time.Since(info.ModTime()) > unusedAge {
			_ = os.RemoveAll(directory)
		}
	}
}

// Request is a request of a process that waits.
type Request struct {
	Body    []byte
	Created time.Time

	name string
}

// Deliver answers a request. It reports false when nobody is there to read the
// answer: what was done for the request has to be undone then. A request that is
// never delivered stays for the next process.
type Deliver func(r Request, answer []byte) bool

// Work carries out requests while the lock is held and delivers the answers; it
// returns the answer to the process's own request. An answer is one line: JSON has no
// line breaks of its own.
type Work func(waiting []Request, deliver Deliver) []byte

// ErrWaited says that a request was not carried out in time, and has been
// withdrawn.
var ErrWaited = errors.New("other calls of this node are still being carried out")

// maxBatch bounds how many requests are carried out at once, so that one batch
// fits the time of the process that carries it out.
const maxBatch = 100

// Patience is how long a process waits for others.
type Patience struct {
	// Still ends the wait when the process that works has not made progress (see
	// Beat) for so long.
	Still time.Duration
	// Limit ends it in any case.
	Limit time.Duration
}

// Do has a request carried out, by this process with work, or by another one. When
// its patience ends the error wraps ErrWaited. Any other error means that the queue
// is of no use and nothing was done.
func (q *Queue) Do(ctx context.Context, body []byte, patience Patience, work Work) ([]byte, error) {
	lock, err := os.OpenFile(filepath.Join(q.directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	switch err := flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		defer lock.Close()
		return q.serve(work)
	case !errors.Is(err, syscall.EWOULDBLOCK):
		lock.Close()
		return nil, fmt.Errorf("queue: lock: %w", err)
	}
	w, err := q.enter(body)
	if err != nil {
		lock.Close()
		return nil, err
	}
	defer w.leave()
	return q.wait(ctx, w, lock, patience, work)
}

// wait ends with an answer, with the lock, or when patience does.
func (q *Queue) wait(ctx context.Context, w *waiter, lock *os.File, patience Patience, work Work) ([]byte, error) {
	over := make(chan struct{})
	defer close(over)
	locked := lockInBackground(lock, over)
	answers := w.read()
	tired := q.tired(patience, over)
	select {
	case answer := <-answers:
		return answer, nil
	case err := <-locked:
		defer lock.Close()
		if err != nil {
			w.withdraw()
			return nil, fmt.Errorf("queue: lock: %w", err)
		}
		// The answer was written before the lock was let go, if at all.
		if !w.withdraw() {
			if answer, ok := w.answerNow(answers); ok {
				return answer, nil
			}
		}
		return q.serve(work)
	case <-tired:
	case <-ctx.Done():
	}
	if w.withdraw() {
		return nil, ErrWaited
	}
	// It is being answered at this moment, unless the other process died.
	if answer, ok := w.answerNow(answers); ok {
		return answer, nil
	}
	return nil, ErrWaited
}

// Beat tells those who wait that work makes progress.
func (q *Queue) Beat() {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(q.directory, "lock"), now, now) // they will wait less
}

// tired says when patience ends.
func (q *Queue) tired(patience Patience, over <-chan struct{}) <-chan struct{} {
	tired := make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(tired)
		for last := begin; ; {
			next := min(time.Until(last.Add(patience.Still)), time.Until(begin.Add(patience.Limit)))
			if next <= 0 {
				return
			}
			select {
			case <-over:
				return
			case <-time.After(next):
			}
			if info, err := os.Stat(filepath.Join(q.directory, "lock")); err == nil && info.ModTime().After(last) {
				last = info.ModTime()
			}
		}
	}()
	return tired
}

// lockInBackground waits for the lock as long as it takes. Once over is closed, a
// lock that comes is let go.
func lockInBackground(lock *os.File, over <-chan struct{}) <-chan error {
	locked := make(chan error)
	go func() {
		err := flock(lock, syscall.LOCK_EX)
		select {
		case locked <- err:
		case <-over:
			lock.Close()
		}
	}()
	return locked
}

// serve does the work of all that wait. The lock is held.
func (q *Queue) serve(work Work) ([]byte, error) {
	if q.Hold != nil {
		q.Hold()
	}
	waiting, err := q.waiting()
	if err != nil {
		return nil, err
	}
	return work(waiting, q.deliver), nil
}

// waiting lists the requests of the processes that wait, oldest first, and clears
// away those of dead ones.
func (q *Queue) waiting() ([]Request, error) {
	files, err := os.ReadDir(q.directory) // sorted
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	var requests []Request
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), ".request")
		if !ok && abandoned(file.Name()) {
			_ = os.Remove(filepath.Join(q.directory, file.Name()))
		}
		if !ok || len(requests) == maxBatch {
			continue
		}
		r, alive, err := q.open(name)
		if err != nil {
			continue // withdrawn meanwhile
		}
		if !alive {
			q.remove(name)
			continue
		}
		requests = append(requests, r)
	}
	return requests, nil
}

// abandonedAge is longer than any process waits.
const abandonedAge = 10 * time.Minute

// abandoned reports whether a file is what a killed process left lying, by the time
// in its name.
func abandoned(file string) bool {
	stamp, _, _ := strings.Cut(file, "-")
	nanoseconds, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && time.Since(time.Unix(0, nanoseconds)) > abandonedAge
}

func (q *Queue) open(name string) (r Request, alive bool, err error) {
	file, err := os.Open(q.path(name, "request"))
	if err != nil {
		return r, false, err
	}
	defer file.Close()
	if flock(file, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return r, false, nil
	}
	info, err := file.Stat()
	if err != nil {
		return r, false, err
	}
	r = Request{Body: make([]byte, info.Size()), Created: info.ModTime(), name: name}
	_, err = file.ReadAt(r.Body, 0)
	return r, err == nil, err
}

// deliver removes the request and writes the answer.
func (q *Queue) deliver(r Request, answer []byte) bool {
	if err := os.Remove(q.path(r.name, "request")); err != nil {
		return false // withdrawn
	}
	pipe, err := os.OpenFile(q.path(r.name, "answer"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false // ENXIO: nobody reads
	}
	defer pipe.Close()
	_ = pipe.SetWriteDeadline(time.Now().Add(time.Second)) // answers are far below a pipe's size
	_, err = pipe.Write(append(slices.Clone(answer), '\n'))
	return err == nil
}

func (q *Queue) remove(name string) {
	_ = os.Remove(q.path(name, "request"))
	_ = os.Remove(q.path(name, "answer"))
}

func (q *Queue) path(name, kind string) string { return filepath.Join(q.directory, name+"."+kind) }

// waiter is this process in the queue.
type waiter struct {
	queue *Queue
	name  string
	held  *os.File // the request, locked while we wait
	pipe  *os.File
}

// enter puts a request into the queue.
func (q *Queue) enter(body []byte) (*waiter, error) {
	w := &waiter{queue: q, name: fmt.Sprintf("%019d-%d", time.Now().UnixNano(), os.Getpid())}
	err := syscall.Mkfifo(q.path(w.name, "answer"), 0o600)
	if err == nil {
		// Open for writing too, so that a writer which closes does not end it.
		w.pipe, err = os.OpenFile(q.path(w.name, "answer"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	}
	if err == nil {
		w.held, err = os.OpenFile(q.path(w.name, "new"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	}
	if err == nil {
		err = flock(w.held, syscall.LOCK_EX)
	}
	if err == nil {
		_, err = w.held.Write(body)
	}
	if err == nil {
		err = os.Rename(q.path(w.name, "new"), q.path(w.name, "request"))
	}
	if err != nil {
		w.leave()
		return nil, fmt.Errorf("queue: %w", err)
	}
	return w, nil
}

// withdraw takes the request out of the queue. It reports false when somebody has
// removed it already: to answer it.
func (w *waiter) withdraw() bool {
	err := os.Remove(w.queue.path(w.name, "request"))
	return !errors.Is(err, fs.ErrNotExist)
}

// leave clears up. What a killed process leaves lying is cleared up by others.
func (w *waiter) leave() {
	if w.pipe != nil {
		w.pipe.Close()
	}
	if w.held != nil {
		w.held.Close()
	}
	_ = os.Remove(w.queue.path(w.name, "new"))
	w.queue.remove(w.name)
}

// read waits for the answer in the background, until the pipe is closed.
func (w *waiter) read() <-chan []byte {
	answers := make(chan []byte, 1)
	go func() {
		line, err := bufio.NewReader(w.pipe).ReadBytes('\n')
		if err == nil {
			answers <- line[:len(line)-1]
		}
	}()
	return answers
}

// answerGrace is how long a process that has been told to go on waits for an answer
// that is on its way through the pipe.
const answerGrace = 500 * time.Millisecond

func (w *waiter) answerNow(answers <-chan []byte) ([]byte, bool) {
	select {
	case answer := <-answers:
		return answer, true
	case <-time.After(answerGrace):
		return nil, false
	}
}

// flock locks an open file (flock(2)), again when a signal interrupts it: the Go
// runtime sends itself some.
func flock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
