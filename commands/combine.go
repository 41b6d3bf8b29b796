package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

// queueFormat tells apart processes whose requests another version would not
// understand, as there are during an upgrade.
const queueFormat = "1"

// task is one ADD or DEL, as a process hands it to another one of its node.
type task struct {
	Verb     string          `json:"verb"`
	Stdin    json.RawMessage `json:"stdin"`
	Args     string          `json:"args,omitempty"`
	Owner    ipam.Owner      `json:"owner"`
	Previous []netip.Addr    `json:"previous,omitempty"`
	Began    time.Time       `json:"began"`

	cfg      *ipam.Config
	addition *ipam.Addition
	removal  *ipam.Removal
	request  *node.Request // nil for the process's own
}

// answer is what came of a task.
type answer struct {
	Assigned    []ipam.Assigned `json:"assigned,omitempty"`
	Error       *types.Error    `json:"error,omitempty"`
	Unreachable bool            `json:"unreachable,omitempty"` // the store could not be asked
}

// combine has a task carried out together with those of other processes of this
// node, by this process or by one of them. The wait for others does not use up the
// time for the work.
func (v verbs) combine(ctx context.Context, c *call, t *task, patience node.Patience, timeout time.Duration) (a answer) {
	defer func() { v.note(c, t, a) }()
	body, err := json.Marshal(t)
	if err != nil {
		return answer{Error: cniError(err)}
	}
	queue, err := node.OpenQueue(c.cfg.RunDirectory, queueKey(c.cfg, v))
	if err == nil {
		done := func() {}
		defer func() { done() }()
		queue.Hold = func() { done = c.takeTurns(ctx, v, timeout, queue.Beat) }
		var data []byte
		data, err = queue.Do(ctx, body, patience, func(waiting []node.Request, deliver node.Deliver) []byte {
			w := &worker{verbs: v, call: c, deliver: deliver, beat: queue.Beat}
			return w.work(ctx, t, waiting, timeout).marshal()
		})
		if err == nil {
			return unmarshalAnswer(data)
		}
	}
	if errors.Is(err, node.ErrWaited) {
		return answer{Error: types.NewError(types.ErrTryAgainLater, err.Error(), ""), Unreachable: true}
	}
	c.log.Debug("calls of this node cannot be combined, working alone", "error", err)
	defer c.takeTurns(ctx, v, timeout, func() {})()
	w := &worker{verbs: v, call: c, beat: func() {}}
	return w.work(ctx, t, nil, timeout)
}

// turnTaker is a store whose writers of other nodes may be so many that they had better go
// one after the other.
type turnTaker interface {
	Turn(ctx context.Context, id ipam.PoolID, beat func()) (done func())
}

// takeTurns waits until this node may write to those of the call's pools that are
// crowded without hindering other nodes, and answers what ends the turns. The wait is
// a part of that for other calls, and takes nothing of the time for the work.
func (c *call) takeTurns(ctx context.Context, v verbs, timeout time.Duration, beat func()) (done func()) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	contention := node.NewContention(c.cfg.RunDirectory)
	var ends []func()
	for _, id := range c.cfg.Pools() {
		if !contention.IsCrowded(id) || c.open(v) != nil {
			continue
		}
		if store, ok := c.allocator.Store.(turnTaker); ok {
			c.log.Debug("other nodes write to the same pool, waiting for a turn", "pool", id)
			ends = append(ends, store.Turn(ctx, id, beat))
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func (a answer) marshal() []byte {
	data, err := json.Marshal(a)
	if err != nil {
		data, _ = json.Marshal(answer{Error: cniError(err)})
	}
	return data
}

func unmarshalAnswer(data []byte) answer {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return answer{Error: cniError(fmt.Errorf("answer of another call of this node: %w", err))}
	}
	return a
}

// queueKey is the same for calls that use the same store with the same
// credentials, and nothing else.
func queueKey(cfg *ipam.Config, v verbs) string {
	h := sha256.New()
	credentials, _ := v.ReadFile(cfg.Kubeconfig) // what is wrong with it is said when it is used
	for _, part := range []string{
		queueFormat, v.Version, storeName(cfg), cfg.StateDirectory, v.Getenv("WHEREABOUTS_NAMESPACE"),
		strings.Join(cfg.Etcd.Endpoints, ","), cfg.Etcd.Username, cfg.Etcd.Password, cfg.Etcd.CAFile, cfg.Etcd.CertFile, cfg.Etcd.KeyFile, string(credentials),
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// worker carries out a batch of tasks.
type worker struct {
	verbs
	*call
	deliver node.Deliver // nil when working alone
	beat    func()       // tells those who wait that work makes progress
	marks   *node.Marks
	queued  *node.Releases
}

// work carries out the process's own task and those that wait, and returns the
// answer to its own.
func (w *worker) work(ctx context.Context, own *task, waiting []node.Request, timeout time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w.answered = w.beat
	if own.Verb == "DEL" {
		silence := time.AfterFunc(delSilence, cancel)
		defer silence.Stop()
		w.answered = func() { silence.Reset(delSilence); w.beat() }
	}
	w.marks = node.NewMarks(w.cfg.RunDirectory)
	w.queued = node.NewReleases(w.cfg.StateDirectory, storeName(w.cfg))
	if err := w.open(w.verbs); err != nil {
		return answer{Error: cniError(err), Unreachable: unreachable(err)}
	}
	if own.Verb == "DEL" {
		w.allocator.Rollback = delRollback
		go probe(ctx, w.allocator.Store)
	}
	own.cfg = w.cfg
	tasks := append([]*task{own}, w.parse(waiting)...)
	replays := w.replays(tasks)
	var additions []*ipam.Addition
	var removals []*ipam.Removal
	for _, t := range tasks {
		switch {
		case t.Verb == "DEL":
			t.removal = ipam.NewRemoval(w.allocator.Journal, t.cfg, t.Owner, t.Previous)
			removals = append(removals, t.removal)
		case w.released(t):
			t.addition = &ipam.Addition{Err: errReleased}
		default:
			t.addition = &ipam.Addition{Config: t.cfg, Owner: t.Owner}
			additions = append(additions, t.addition)
		}
	}
	began := w.Now()
	w.allocator.Run(ctx, additions, append(removals, replays...))
	w.undoReleased(ctx, tasks)
	w.call.work.Info("carried out calls", "calls", len(tasks), "replayed", len(replays), "duration", w.Now().Sub(began))
	w.finishReplays(replays)
	w.answerOthers(ctx, tasks[1:])
	return answerTo(own)
}

// probe asks the store now and then whether it is still there, so that a write that
// waits behind many others is not taken for a store out of reach.
func probe(ctx context.Context, store ipam.Store) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(delSilence / 2):
			_ = store.Ready(ctx)
		}
	}
}

// errReleased is the outcome of an ADD whose container was released before the ADD
// got its turn.
var errReleased = fmt.Errorf("%w: the container has been released (DEL) since this ADD began", ipam.ErrConflict)

func (w *worker) released(t *task) bool { return w.marks.After(t.Owner, t.Began) }

// parse reads the tasks of the processes that wait.
func (w *worker) parse(waiting []node.Request) []*task {
	var tasks []*task
	for _, r := range waiting {
		t := &task{request: &r}
		err := json.Unmarshal(r.Body, t)
		if err == nil {
			t.cfg, err = ipam.ParseConfig(ipam.Sources{Stdin: t.Stdin, Args: t.Args, Getenv: w.Getenv, ReadFile: w.ReadFile})
		}
		if err != nil {
			w.deliver(r, answer{Error: cniError(err)}.marshal())
			continue
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// replays lists queued releases to carry out with the batch. Those of a container
// that is being started again are dropped: it keeps its address. Without the lock
// nothing is replayed.
func (w *worker) replays(tasks []*task) []*ipam.Removal {
	for _, t := range tasks {
		if t.Verb == "ADD" && !w.released(t) {
			if err := w.queued.Drop(t.Owner); err != nil {
				w.call.work.Error("queued release cannot be dropped", "error", err)
			}
		}
	}
	if w.deliver == nil {
		return nil
	}
	pending, err := w.queued.Pending()
	if err != nil {
		w.call.work.Error("queued releases", "error", err)
	}
	return pending
}

func (w *worker) finishReplays(replays []*ipam.Removal) {
	for _, r := range replays {
		if r.Err != nil {
			w.call.work.Warn("queued release failed again", "owner", r.Owner, "error", r.Err)
			continue
		}
		if err := w.queued.Drop(r.Owner); err != nil {
			w.call.work.Error("queued release is done and cannot be dropped", "error", err)
		}
	}
}

// undoReleased takes back what was given to containers that have been released in
// the meantime.
func (w *worker) undoReleased(ctx context.Context, tasks []*task) {
	var late []*ipam.Addition
	for _, t := range tasks {
		if t.Verb == "ADD" && t.addition.Err == nil && w.released(t) {
			late = append(late, t.addition)
		}
	}
	w.allocator.Undo(ctx, late, errReleased)
}

// answerOthers delivers the answers. A task that failed because the store did not
// answer in our time stays in the queue: the next process, or its own, goes on with
// it in its time.
func (w *worker) answerOthers(ctx context.Context, tasks []*task) {
	var unheard []*ipam.Addition
	for _, t := range tasks {
		if errors.Is(t.err(), ipam.ErrUnavailable) {
			continue
		}
		a := answerTo(t)
		if !w.deliver(*t.request, a.marshal()) && t.addition != nil && t.addition.Err == nil {
			unheard = append(unheard, t.addition)
		}
	}
	w.allocator.Undo(ctx, unheard, errUnheard)
}

var errUnheard = errors.New("the calling process is gone")

// err is the outcome of a task that has been carried out.
func (t *task) err() error {
	if t.removal != nil {
		return t.removal.Err
	}
	return t.addition.Err
}

func answerTo(t *task) answer {
	err := t.err()
	switch {
	case err == nil && t.addition != nil:
		return answer{Assigned: t.addition.Assigned}
	case err == nil:
		return answer{}
	}
	return answer{Error: describe(cniError(err), err, t.cfg), Unreachable: unreachable(err)}
}

// unreachable reports whether the store may carry out later what it has not now, with
// the same configuration.
func unreachable(err error) bool {
	return errors.Is(err, ipam.ErrUnavailable) || errors.Is(err, ipam.ErrDenied)
}
