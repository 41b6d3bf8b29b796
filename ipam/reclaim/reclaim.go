package reclaim

import (
	"context"
	"log/slog"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Reclaimer frees what nobody holds, in the store of one namespace. Its passes must
// not overlap; several Reclaimers, here or elsewhere, may work at once.
type Reclaimer struct {
	Store    ipam.Store // see PoolRemover and TurnEnder for what else it may be
	Known    Cluster    // asked for every record: from memory
	Live     Cluster    // asked just before something is written
	Networks Networks   // nil: nothing is known of the network definitions
	Events   Recorder   // nil: nobody is told

	// Grace is how long a pod may be missing, and how far two looks are apart
	// that have to agree. It should not be shorter than the 60 s that one ADD
	// has: what an ADD under way has written by then is half a record.
	Grace           time.Duration
	KeepUnreachable bool // keep the addresses of pods on unreachable nodes

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: slog.Default

	looks looks
}

// Report is what a pass found and did.
type Report struct {
	Pools        int
	Records      int // entries of pools
	Reservations int
	Unreadable   int // pools, entries and reservations that cannot be understood; left alone
	Duplicates   int // addresses that two pools of one network record; left alone

	Freed     int // records and bare reservations
	Completed int // half records that were made whole
	Removed   int // pools that were empty and named by no definition
	Changed   int // what was to be freed or completed, and is somebody else's by now
	Failed    int // what could not be looked at, freed, completed or removed

	// Kept counts records and half records that are left alone, Waiting those
	// that are looked at again.
	Kept    map[Reason]int
	Waiting int

	// Due is when another pass may find more, even if nothing changes in the
	// cluster; zero: never.
	Due time.Time
}

// due notes a time at which another look is worthwhile.
func (r *Report) due(at time.Time) {
	if r.Due.IsZero() || at.Before(r.Due) {
		r.Due = at
	}
}

// Pass looks at all that is stored and frees, completes and removes what is due.
// The snapshot was read before what Known answers, and may be older. An error is
// logged, counted as failed, and does not stop the pass; the end of the context
// does, and what is left then counts as failed.
func (r *Reclaimer) Pass(ctx context.Context, snapshot *ipam.Snapshot) Report {
	p := &pass{
		Reclaimer: r, snapshot: snapshot, now: r.time(), content: map[ipam.PoolID]*ipam.Pool{},
		report: Report{Pools: len(snapshot.Pools), Reservations: len(snapshot.Reservations), Kept: map[Reason]int{}},
	}
	r.looks.begin()
	p.sift(ctx)
	for todo := p.todo; len(todo) > 0; {
		n := min(batchSize, len(todo))
		p.carryOut(ctx, todo[:n])
		todo = todo[n:]
	}
	p.removePools(ctx)
	p.endTurns(ctx)
	return p.report
}

// pass is one pass of a Reclaimer.
type pass struct {
	*Reclaimer
	snapshot *ipam.Snapshot
	now      time.Time
	report   Report
	todo     []candidate
	content  map[ipam.PoolID]*ipam.Pool // pools read in this pass
}

// candidate is a record or half a record about which something is to be done.
type candidate struct {
	spot
	pool        ipam.PoolID
	record      ipam.Record
	reservation *ipam.Reservation  // nil: record is an entry of the pool
	disputed    bool               // the address of the reservation is recorded for somebody else
	rule        func(Case) Verdict // decides about it

	verdict Verdict
	pod     *Pod
	node    *Node
	stored  *ipam.Reservation // of one that is to be completed, as it is now
	err     error
}

// ask finds out about the pod of a candidate, and about its node if that matters.
func (c *candidate) ask(ctx context.Context, cluster Cluster) {
	c.pod, c.node, c.err = nil, nil, nil
	namespace, name, ok := splitPodRef(c.record.PodRef)
	if !ok {
		return
	}
	c.pod, c.err = cluster.Pod(ctx, namespace, name)
	if c.err == nil && c.pod != nil && !c.pod.Deleted.IsZero() && c.pod.Node != "" {
		c.node, c.err = cluster.Node(ctx, c.pod.Node)
	}
}

// decide applies the candidate's rule to what was found out.
func (p *pass) decide(c *candidate) {
	facts := Case{
		Address: c.address, Record: c.record, Pod: c.pod, Node: c.node, Now: p.now, First: p.now,
		Grace: p.Grace, KeepUnreachable: p.KeepUnreachable,
	}
	c.verdict = c.rule(facts)
	if c.verdict.Action != Wait {
		return
	}
	seen := sightOf(c.record, c.token(), c.pod, c.verdict.Reason)
	facts.First = p.looks.first(c.spot, seen, p.now)
	c.verdict = c.rule(facts)
	p.looks.note(c.spot, seen, facts.First)
}

// token is what changes when a candidate is written.
func (c *candidate) token() string {
	if c.reservation != nil {
		return c.reservation.Version
	}
	return c.record.Gen
}

// count takes down a decision after which nothing is done.
func (p *pass) count(v Verdict) {
	if v.Action == Wait {
		p.report.Waiting++
		p.report.due(v.At)
		return
	}
	p.report.Kept[v.Reason]++
}

// fail takes down an error. What failed is worth another try.
func (p *pass) fail(message string, c *candidate, err error) {
	p.report.Failed++
	p.report.due(p.now.Add(p.Grace))
	p.log().Warn(message, "address", c.address, "pool", c.where(), "owner", c.record.Holder(), "reason", string(c.verdict.Reason), "error", err)
}

// where is the candidate's pool in words.
func (c *candidate) where() string {
	if c.pool.Range.IsValid() {
		return c.pool.String()
	}
	return "unknown"
}

func (r *Reclaimer) time() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

func (r *Reclaimer) log() *slog.Logger {
	if r.Log == nil {
		return slog.Default()
	}
	return r.Log
}

// protection reports whether a pool's records need reservations, as far as that is
// known.
func (r *Reclaimer) protection(id ipam.PoolID) (on, known bool) {
	if r.Networks == nil {
		return false, false
	}
	return r.Networks.Protection(id)
}
