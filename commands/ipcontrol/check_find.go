package ipcontrol

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// find reads everything and looks for problems.
func (ch checker) find(ctx context.Context) (finding, error) {
	v, err := ch.lookEverywhere(ctx)
	if err != nil {
		return finding{}, err
	}
	return ch.examine(ctx, v), nil
}

// lookEverywhere reads all namespaces, whatever is asked about: a pod's address may be
// recorded in another one.
func (ch checker) lookEverywhere(ctx context.Context) (*view, error) {
	ch.progress("reading pools, reservations and pods")
	all := ch.options
	all.namespace = ""
	return all.look(ctx, ch.access, true)
}

// skips reports whether a namespace is not asked about.
func (ch checker) skips(namespace string) bool {
	return ch.namespace != "" && ch.client != nil && ch.namespace != namespace
}

func (ch checker) examine(ctx context.Context, v *view) finding {
	f := finding{problems: []problem{}, unread: v.missing()}
	for _, s := range v.spaces {
		if ch.skips(s.namespace) {
			continue
		}
		f.pools += len(s.Pools)
		for _, p := range s.Pools {
			f.records += len(p.Records)
		}
		for _, name := range s.Unreadable {
			f.problems = append(f.problems, problem{
				Kind: kindUnreadablePool, Namespace: s.namespace, Pool: name,
				Text: fmt.Sprintf("pool %s/%s: spec.range is no CIDR; nothing is taken from it or freed in it", s.namespace, name),
			})
		}
		f.problems = append(f.problems, ch.contradictions(ctx, v, s)...)
		if v.cluster != nil {
			f.problems = append(f.problems, ch.orphans(ctx, v, s)...)
		}
	}
	if v.cluster != nil {
		f.problems = append(f.problems, ch.unrecorded(v)...)
	}
	queued, err := ch.queued()
	if err != nil {
		f.unread = append(f.unread, plain(err))
	}
	f.problems = slices.DeleteFunc(f.problems, func(p problem) bool { return ch.skips(p.Namespace) })
	f.problems = append(f.problems, queued...)
	for i := range f.problems {
		_, f.problems[i].Remedy = f.problems[i].Kind.words()
	}
	sortProblems(f.problems)
	return f
}

// contradictions is what is wrong with the records by themselves.
func (ch checker) contradictions(ctx context.Context, v *view, s space) []problem {
	opts := ipam.CheckOptions{NeedsReservation: func(id ipam.PoolID, r ipam.Record) bool {
		if r.Reserved() || v.cluster == nil {
			return r.Reserved() // both halves were written
		}
		on, known := v.cluster.Protection(id)
		return known && on && !r.Unprotected
	}}
	var found []problem
	for _, one := range ipam.Check(s.Snapshot, opts) {
		if one.Kind == ipam.FindingBareReservation && ch.underWay(s, one) {
			continue
		}
		p := problem{
			Kind: problemKind(one.Kind), Namespace: s.namespace, Network: one.Network, Text: one.Text, at: one.Address,
			Safe: v.cluster != nil && ch.repairable(ctx, v, s, one),
		}
		if one.Pool.Range.IsValid() {
			p.Pool = kube.PoolName(one.Pool)
		}
		if one.Address.IsValid() {
			p.Address = one.Address.String()
		}
		found = append(found, p)
	}
	return found
}

// underWay reports whether a bare reservation is so young that an ADD may be about
// to write its record.
func (ch checker) underWay(s space, one ipam.Finding) bool {
	r := s.reservation(one.Network, one.Address)
	return r != nil && !r.Since.IsZero() && ch.Now().Sub(r.Since) < min(ch.grace, leastGrace)
}

// orphans are records that the clean-up would free, now or at its second look.
func (ch checker) orphans(ctx context.Context, v *view, s space) []problem {
	var found []problem
	for _, p := range s.Pools {
		for a, record := range p.Records {
			verdict, ok := ch.judge(ctx, v, a, record, reclaim.Judge)
			if !ok || verdict.Action != reclaim.Free {
				continue
			}
			found = append(found, problem{
				Kind: kindOrphan, Namespace: s.namespace, Network: p.ID.Network, Pool: kube.PoolName(p.ID),
				Address: a.String(), Pod: record.PodRef, Reason: string(verdict.Reason), Safe: true, at: a,
				Text: fmt.Sprintf("%s (range %s) is recorded for %s, but %s", a, p.ID, holder(record), verdict.Reason.Words()),
			})
		}
	}
	return found
}

// judge asks a rule of the clean-up as at its second look. ok is false while it is
// not known whether the pod lives.
func (ch checker) judge(ctx context.Context, v *view, a netip.Addr, record ipam.Record, rule func(reclaim.Case) reclaim.Verdict) (reclaim.Verdict, bool) {
	c := reclaim.Case{Address: a, Record: record, Now: ch.Now(), First: ch.Now().Add(-ch.grace), Grace: ch.grace}
	if err := ask(ctx, v.cluster, &c); err != nil {
		return reclaim.Verdict{}, false
	}
	return rule(c), true
}

// ask fills in the pod of a record, and its node if that matters.
func ask(ctx context.Context, cluster reclaim.Cluster, c *reclaim.Case) (err error) {
	namespace, name, ok := strings.Cut(c.Record.PodRef, "/")
	if !ok || namespace == "" || name == "" {
		return nil
	}
	c.Pod, err = cluster.Pod(ctx, namespace, name)
	if err == nil && c.Pod != nil && !c.Pod.Deleted.IsZero() && c.Pod.Node != "" {
		c.Node, err = cluster.Node(ctx, c.Pod.Node)
	}
	return err
}

// repairable reports whether the clean-up would see to half a record.
func (ch checker) repairable(ctx context.Context, v *view, s space, one ipam.Finding) bool {
	var record *ipam.Record
	for _, p := range s.Pools {
		if r, held := p.Records[one.Address]; held && p.ID.Network == one.Network {
			record = &r
		}
	}
	reservation := s.reservation(one.Network, one.Address)
	owner := ipam.Record{}
	rule := reclaim.Judge
	switch {
	case one.Kind == ipam.FindingHalfRecord && record != nil:
		owner = *record
		rule = func(c reclaim.Case) reclaim.Verdict { return reclaim.RepairEntry(c, true, true) }
	case (one.Kind == ipam.FindingBareReservation || one.Kind == ipam.FindingDisagree) && reservation != nil:
		owner = reservation.Record
		rule = func(c reclaim.Case) reclaim.Verdict {
			return reclaim.RepairReservation(c, reclaim.Rest{Record: record, PoolKnown: reservation.Range != ""})
		}
	default:
		return false
	}
	verdict, known := ch.judge(ctx, v, one.Address, owner, rule)
	return known && (verdict.Action == reclaim.Free || verdict.Action == reclaim.Complete)
}

func holder(r ipam.Record) string {
	if r.Reserved() {
		return fmt.Sprintf("an operator's reservation for %q", purpose(r))
	}
	words := r.Holder()
	if r.PodRef != "" {
		words = "pod " + words
	}
	if r.IfName != "" {
		words += " interface " + r.IfName
	}
	return words
}

// unrecorded are addresses of living pods that lie inside a pool, and are recorded
// in none for the pod. What definitions keep out of circulation in all ranges may
// well come from elsewhere and can be given to nobody.
func (ch checker) unrecorded(v *view) []problem {
	pools := v.pools(options{})
	var found []problem
	for pod := range v.cluster.Pods() {
		if pod.Phase == reclaim.Succeeded || pod.Phase == reclaim.Failed || !pod.Deleted.IsZero() {
			continue
		}
		ref := pod.Namespace + "/" + pod.Name
		for _, a := range pod.Addresses {
			if p, ok := ch.unrecordedAddress(v, pools, ref, a); ok {
				found = append(found, p)
			}
		}
	}
	return found
}

func (ch checker) unrecordedAddress(v *view, pools []stored, ref string, a netip.Addr) (problem, bool) {
	var around *stored
	for i := range pools {
		s := &pools[i]
		record, held := s.pool.Records[a]
		if held && (record.PodRef == ref || record.Reserved() || record == ipam.Record{}) {
			return problem{}, false
		}
		if around != nil || ch.skips(s.namespace) {
			continue
		}
		if held || s.pool.ID.Range.Contains(a) && unheld(s.pool.ID, v.ranges(s.pool.ID), a) == stateFree {
			around = s
		}
	}
	if around == nil || v.fixed(a) {
		return problem{}, false
	}
	whose := "for nobody"
	if record, held := around.pool.Records[a]; held {
		whose = "for " + holder(record)
	}
	return problem{
		Kind: kindUnrecorded, Namespace: around.namespace, Network: around.pool.ID.Network, Pool: around.name(),
		Address: a.String(), Pod: ref, at: a,
		Text: fmt.Sprintf("pod %s uses %s, which range %s has recorded %s", ref, a, around.pool.ID, whose),
	}, true
}

// fixed reports whether a definition gives the address to every pod.
func (v *view) fixed(a netip.Addr) bool {
	return slices.ContainsFunc(v.defined, func(d defined) bool {
		return slices.ContainsFunc(d.Fixed, func(f ipam.FixedAddress) bool { return f.Address.Addr() == a })
	})
}

// queued is what waits in the release queue of this node.
func (ch checker) queued() ([]problem, error) {
	b, err := node.NewReleases(ch.state, "").Backlog()
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", ch.state, err)
	}
	var found []problem
	if b.Length > 0 {
		found = append(found, problem{Kind: kindQueued, Text: fmt.Sprintf("%s in %s/releases, the oldest of %s",
			waiting(b.Length), ch.state, b.Oldest.UTC().Format(time.RFC3339))})
	}
	if b.Corrupt > 0 {
		found = append(found, problem{Kind: kindQueueBroken, Text: fmt.Sprintf("%s ending in .corrupt in %s/releases", plural(b.Corrupt, "file"), ch.state)})
	}
	return found, nil
}

func waiting(n int) string {
	if n == 1 {
		return "1 release waits"
	}
	return fmt.Sprintf("%d releases wait", n)
}
