package ipam

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// rollbackTimeout is for taking back what failed ADDs got, when their own time may
// be over.
const rollbackTimeout = 5 * time.Second

// Allocator takes and gives back addresses: the policy on top of a Store.
type Allocator struct {
	Store      Store
	Slices     Slices // nil: the store has none
	Journal    Journal
	Contention Contention // nil: nothing is remembered
	Now        func() time.Time
	Rand       func(n int) int // uniform in [0, n)
	Log        *slog.Logger

	// Rollback is for taking back what failed ADDs got, when their own time may be
	// over. Zero is 5 s.
	Rollback time.Duration
}

// Assigned is one address of the result of an ADD.
type Assigned struct {
	Address netip.Prefix // with the mask of the configured range
	Gateway netip.Addr   // zero when there is none
}

// Addition is an ADD to carry out, and its outcome.
type Addition struct {
	Config *Config
	Owner  Owner

	Assigned []Assigned // set on success
	Err      error

	job *addJob
}

// Removal is a DEL to carry out, and its outcome.
type Removal struct {
	Owner    Owner
	Pools    []PoolID     // where to look
	Slices   []SliceList  // where the owner's node has slices, in which to look too
	Previous []netip.Addr // the addresses of the previous result, if the runtime passed one
	Holdings []Holding    // what the owner is known to hold; its pools need not be read
	Late     bool         // it comes later than the container ended: see Change.Latest

	Err error
}

// NewRemoval is the release of all that the owner holds in the ranges of a
// configuration, and wherever else the journal remembers something. A journal that
// cannot be read remembers nothing.
func NewRemoval(journal Journal, cfg *Config, owner Owner, previous []netip.Addr) *Removal {
	m := &memory{owner: owner}
	m.loaded, _ = journal.Load(owner)
	return &Removal{Owner: owner, Pools: cfg.Pools(), Slices: cfg.SliceLists(), Previous: previous, Holdings: m.own()}
}

// Run carries out ADDs and DELs at once, with as few requests as if they were one.
// Each has its own outcome: that one fails does not fail the others. A DEL comes
// before an ADD of the same pod and interface.
//
// ADD: the owner gets one address from each range of its configuration, in order,
// then the requested ones in the ranges, the fixed ones, and the requested ones
// outside the ranges. Either all are recorded or none: what a failed ADD took is
// released again. An owner that asks again gets the addresses it has. Errors wrap
// ErrInvalid, ErrExhausted (*ExhaustedError), ErrNoSlice, ErrConflict (*RequestError),
// ErrUnavailable, ErrDenied or ErrCorrupt.
//
// DEL: every record of the container and interface is freed, with its reservation.
// That nothing is found is no error, and nothing is created then. A record that a
// newer container of the pod has adopted is not touched.
func (a *Allocator) Run(ctx context.Context, additions []*Addition, removals []*Removal) {
	v := newView(a.Store, a.Contention)
	known := a.listings(ctx, listsOf(additions, removals))
	var jobs []job
	var adds []*addJob
	for _, r := range removals {
		jobs = append(jobs, newRemoveJob(a, r, known))
	}
	released := jobs
	for _, add := range additions {
		j := newAddJob(a, add, known)
		for k, r := range removals {
			if r.Owner.sameHolder(add.Owner) {
				j.after = append(j.after, released[k])
			}
		}
		// Two ADDs for one holder at once would each take an address, and each
		// release the other's as one that is no longer used.
		for _, earlier := range adds {
			if earlier.Owner.sameHolder(add.Owner) {
				j.after = append(j.after, earlier)
			}
		}
		adds = append(adds, j)
		jobs = append(jobs, j)
	}
	a.run(ctx, v, jobs)
	a.rollback(ctx, adds)
	a.releaseLeftovers(ctx, v, adds)
}

// Add carries out one ADD; see Run.
func (a *Allocator) Add(ctx context.Context, cfg *Config, owner Owner) ([]Assigned, error) {
	add := &Addition{Config: cfg, Owner: owner}
	a.Run(ctx, []*Addition{add}, nil)
	return add.Assigned, add.Err
}

// Release carries out one DEL; see Run.
func (a *Allocator) Release(ctx context.Context, cfg *Config, owner Owner, previous []netip.Addr) error {
	r := NewRemoval(a.Journal, cfg, owner, previous)
	a.Run(ctx, nil, []*Removal{r})
	return r.Err
}

// Undo takes back ADDs that have succeeded and turned out not to be wanted any more,
// and makes them fail with cause. What an owner held before stays its own.
func (a *Allocator) Undo(ctx context.Context, additions []*Addition, cause error) {
	var jobs []*addJob
	for _, add := range additions {
		add.Assigned, add.Err = nil, cause
		jobs = append(jobs, add.job)
	}
	a.rollback(ctx, jobs)
}

// rollback releases what failed ADDs took. What an owner held before stays its
// own, and so does what a rewrite gave a new container id: the release of that
// container frees it.
//
// The journal keeps what was intended until it is certain that it is undone: the DEL
// that follows a failed ADD finds it there.
func (a *Allocator) rollback(ctx context.Context, adds []*addJob) {
	var release []Change
	var whose []*addJob
	for _, j := range adds {
		if j.Err == nil || j.memory == nil {
			continue
		}
		for _, c := range j.plan.undo() {
			release, whose = append(release, c), append(whose, j)
		}
	}
	uncertain := map[*addJob]bool{}
	if len(release) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(a.Rollback, rollbackTimeout))
		defer cancel()
		for i, err := range a.Store.Commit(ctx, release) {
			if err != nil {
				uncertain[whose[i]] = true
				a.Log.Error("address of a failed ADD could not be released", "owner", release[i].Before.Holder(), "address", release[i].Address, "error", err)
			}
		}
	}
	for _, j := range adds {
		if j.Err != nil && j.memory != nil && !uncertain[j] {
			j.memory.restore(j.plan.rewritten())
		}
	}
}

// releaseLeftovers frees what owners held and no longer get: an address that is
// excluded by now, or one that a requested address replaces. The ADD succeeds
// whatever becomes of it.
func (a *Allocator) releaseLeftovers(ctx context.Context, v *view, adds []*addJob) {
	var release []Change
	for _, j := range adds {
		if j.Err != nil {
			continue
		}
		for _, c := range j.plan.leftovers(v) {
			if a.mayDrop(ctx, j.Owner, c) {
				release = append(release, c)
			}
		}
	}
	if len(release) == 0 {
		return
	}
	for i, err := range a.Store.Commit(ctx, release) {
		if err != nil {
			a.Log.Warn("address that is no longer used could not be released", "address", release[i].Address, "error", err)
			continue
		}
		a.Log.Info("released address that the owner no longer uses", "owner", release[i].Before.Holder(), "address", release[i].Address)
	}
}

// mayDrop makes sure that a record under another container id is this pod's and
// not another's of the same name.
func (a *Allocator) mayDrop(ctx context.Context, owner Owner, c Change) bool {
	if c.Before.ContainerID == owner.ContainerID || c.Before.UID != "" || owner.UID == "" {
		return true
	}
	r, err := a.Store.Reservation(ctx, c.Pool.Network, c.Address)
	if err != nil {
		a.Log.Warn("address that is no longer used could not be released", "address", c.Address, "error", err)
		return false
	}
	return r == nil || r.ContainerID != c.Before.ContainerID || r.UID == "" || r.UID == owner.UID
}

// RequestError says that an address somebody asked for by number is held.
type RequestError struct {
	Address netip.Addr
	Source  string // where it was asked for
	Holder  Record
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("requested address %s (%s) is held by %s; request another one, or end its holder",
		e.Address, e.Source, e.Holder.Holder())
}

func (e *RequestError) Unwrap() error { return ErrConflict }
