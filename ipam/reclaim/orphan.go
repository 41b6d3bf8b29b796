package reclaim

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Action is what is to be done about a record or half a record.
type Action int

const (
	// Keep leaves it alone, until something about its pod, its node or itself
	// changes.
	Keep Action = iota

	// Wait leaves it alone for now: at Verdict.At it is worth another look, even
	// if nothing changes.
	Wait

	// Free gives the address back.
	Free

	// Complete makes the other half of half a record.
	Complete
)

// Reason is why, for machines. It never contains anything but lower-case letters
// and '-'.
type Reason string

// The reasons of Judge, in the order of its rules.
const (
	ReasonUnreadable    Reason = "unreadable"       // keep: it names no owner, or a pod that cannot be one
	ReasonReserved      Reason = "reserved"         // keep: an operator keeps it out of circulation
	ReasonNoPod         Reason = "no-pod"           // keep: its owner is a container alone
	ReasonPodGone       Reason = "pod-gone"         // free after the grace time
	ReasonPodFinished   Reason = "pod-finished"     // free
	ReasonNodeGone      Reason = "node-gone"        // free
	ReasonOutOfService  Reason = "out-of-service"   // free
	ReasonUnreachable   Reason = "node-unreachable" // free after the pod's deletion grace, or keep
	ReasonTerminating   Reason = "terminating"      // keep
	ReasonShown         Reason = "shown"            // keep: the pod shows the address
	ReasonAnotherPod    Reason = "another-pod"      // free after the grace time
	ReasonPending       Reason = "pending"          // keep
	ReasonStatusMissing Reason = "status-missing"   // keep
	ReasonNotShown      Reason = "not-shown"        // free at the second look
)

// Verdict is a decision.
type Verdict struct {
	Action Action
	Reason Reason
	At     time.Time // of Wait: when to look again
}

// Case is all that decides about one record.
type Case struct {
	Address netip.Addr
	Record  ipam.Record
	Pod     *Pod  // that Record.PodRef names; nil: it does not exist
	Node    *Node // of the pod; nil: it does not exist

	Now time.Time
	// First is when this very record was first seen with this Pod and what
	// Judge then said of it; Now if that is the first time.
	First time.Time

	Grace           time.Duration // for a pod that may only just have come or gone
	KeepUnreachable bool          // keep the addresses of pods on unreachable nodes
}

// Judge decides whether a record is an orphan. The first rule that fits decides.
func Judge(c Case) Verdict {
	if v, decided := judgeOwner(c.Record); decided {
		return v
	}
	switch {
	case c.Pod == nil:
		return c.free(ReasonPodGone, c.gone())
	case c.Pod.Phase == Succeeded || c.Pod.Phase == Failed:
		return Verdict{Action: Free, Reason: ReasonPodFinished}
	case !c.Pod.Deleted.IsZero():
		return c.judgeTerminating()
	case c.Pod.Shows(c.Address):
		return keep(ReasonShown)
	case !c.Pod.MayBe(c.Record.UID):
		return c.free(ReasonAnotherPod, c.First.Add(c.Grace))
	case c.Pod.Phase == Pending:
		return keep(ReasonPending)
	case !c.Pod.Networks:
		return keep(ReasonStatusMissing)
	default:
		return c.free(ReasonNotShown, c.First.Add(c.Grace))
	}
}

// judgeOwner decides about records that no pod can decide about.
func judgeOwner(r ipam.Record) (v Verdict, decided bool) {
	_, _, named := splitPodRef(r.PodRef)
	switch {
	case r == (ipam.Record{}):
		return keep(ReasonUnreadable), true
	case r.Reserved():
		return keep(ReasonReserved), true
	case r.PodRef == "":
		return keep(ReasonNoPod), true
	case !named:
		return keep(ReasonUnreadable), true
	}
	return Verdict{}, false
}

// judgeTerminating decides about a pod that is to end. As long as its node may be
// at work, the DEL will come. That it was evicted proves nothing: a taint on a
// healthy node does that too.
func (c Case) judgeTerminating() Verdict {
	switch {
	case c.Pod.Node == "": // never scheduled: nothing has run
		return keep(ReasonTerminating)
	case c.Node == nil:
		return Verdict{Action: Free, Reason: ReasonNodeGone}
	case c.Node.OutOfService:
		return Verdict{Action: Free, Reason: ReasonOutOfService}
	case c.Node.Unreachable.IsZero():
		return keep(ReasonTerminating)
	case c.KeepUnreachable:
		return keep(ReasonUnreachable)
	}
	return c.free(ReasonUnreachable, c.Node.Unreachable.Add(c.Pod.Grace))
}

// gone is from when on a record counts whose pod does not exist: it may have been
// written for a pod that whoever answers has not heard of yet. A record from the
// future is one of a clock that is wrong; it waits no longer than one of unknown age.
func (c Case) gone() time.Time {
	at := c.First.Add(c.Grace)
	if since := c.Record.Since; !since.IsZero() && since.Add(c.Grace).Before(at) {
		at = since.Add(c.Grace)
	}
	return at
}

// free is the verdict on what is an orphan from a time on.
func (c Case) free(reason Reason, from time.Time) Verdict {
	if c.Now.Before(from) {
		return Verdict{Action: Wait, Reason: reason, At: from}
	}
	return Verdict{Action: Free, Reason: reason}
}

func keep(reason Reason) Verdict { return Verdict{Action: Keep, Reason: reason} }

// Shows reports whether the pod's network status lists the address.
func (p *Pod) Shows(a netip.Addr) bool { return p.Networks && slices.Contains(p.Addresses, a) }

// MayBe reports whether nothing that is known contradicts that a record's pod is
// this one.
func (p *Pod) MayBe(uid string) bool {
	return uid == "" || p.UID == "" || uid == p.UID || slices.Contains(p.OtherUIDs, uid)
}

// splitPodRef splits "namespace/name".
func splitPodRef(ref string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(ref, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}
