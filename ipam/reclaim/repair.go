package reclaim

import (
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// ReasonUnknown is kept for records whose pod could not be asked for; the others are
// reasons of RepairEntry and RepairReservation beside those of Judge.
const (
	ReasonUnknown      Reason = "unknown"       // keep: whether its pod lives could not be found out
	ReasonUnfinished   Reason = "unfinished"    // a bare reservation of a pending pod that does not go on with it
	ReasonDuplicate    Reason = "duplicate"     // keep: two pools record the address
	ReasonDisputed     Reason = "disputed"      // keep: the reservation's owner lives, and so may the record's
	ReasonRangeUnknown Reason = "range-unknown" // keep: nobody knows into which pool the entry would go
)

// youth is how long a pod that has not started counts as on its way to its
// addresses.
const youth = 5 * time.Minute

// RepairEntry decides about an entry without a reservation. needs says whether its
// pool has overlap protection on, as far as that is known; the entry itself may
// know better. Only what Judge keeps comes to be completed, and only for an owner
// that shows the address or is on its way to it: at once, since until then another
// range may hand the address out.
func RepairEntry(c Case, needs, known bool) Verdict {
	v := Judge(c)
	if !known {
		// A version that writes tokens says of an entry without protection that
		// it has none.
		needs = c.Record.Gen != ""
	}
	if v.Action != Keep || c.Record.Unprotected || !needs {
		return v
	}
	if v.Reason == ReasonShown || v.Reason == ReasonPending && c.young() {
		v.Action = Complete
	}
	return v
}

// Rest is what RepairReservation has to know of what is stored beside a
// reservation.
type Rest struct {
	// Record is the entry of the address in a pool of the same network; nil if
	// there is none. It is not the reservation's own.
	Record *ipam.Record
	// PoolKnown says that it is known which pool the reservation belongs to.
	PoolKnown bool
}

// RepairReservation decides about a reservation without an entry, or one beside an
// entry of somebody else, as if it were a record. An ADD that is under way has
// written a reservation and not yet its entry, so that one of a pod that has not
// started is first left alone for a grace time; and for good while it is not known
// what pool to look at. Where doubt keeps a record it keeps a reservation too.
func RepairReservation(c Case, rest Rest) Verdict {
	v := Judge(c)
	if rest.Record != nil && *rest.Record == (ipam.Record{}) {
		return keep(ReasonUnreadable)
	}
	if v.Action == Keep && v.Reason == ReasonPending && rest.PoolKnown {
		v = c.unfinished()
	} else if v.Action == Keep && v.Reason == ReasonShown {
		v.Action = Complete
	}
	switch {
	case v.Action != Complete:
		return v
	case rest.Record != nil:
		return keep(ReasonDisputed)
	case !rest.PoolKnown || c.Record.ContainerID == "":
		return keep(ReasonRangeUnknown)
	}
	return v
}

// unfinished decides about the reservation of a pod that has not started.
func (c Case) unfinished() Verdict {
	v := c.free(ReasonUnfinished, c.First.Add(c.Grace))
	if v.Action == Free && c.young() {
		v.Action = Complete
	}
	return v
}

// young reports whether a pod that has not started is still on its way to an
// address: by the age of the record, or if that is unknown its own.
func (c Case) young() bool {
	since := c.Record.Since
	if since.IsZero() {
		since = c.Pod.Created
	}
	return c.Now.Sub(since) < youth
}
