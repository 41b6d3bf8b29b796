package mixed

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// taking is a DELETE of a reservation by the DEL of an older plugin, and for which pod.
type taking struct {
	name, podRef string
	begin, end   time.Time
}

// takings lists those that the API server has carried out, or may have.
func takings(nodes []*node) []taking {
	var all []taking
	for _, n := range nodes {
		for _, r := range n.proxy.Find(testenv.Match{Method: http.MethodDelete, Path: "/" + reservations + "/"}) {
			podRef, old := strings.CutPrefix(r.Header.Get("User-Agent"), agentPrefix)
			lost := r.Upstream == 0 && r.Err != nil
			if old && (r.Upstream == http.StatusOK || lost) {
				all = append(all, taking{r.Path[strings.LastIndex(r.Path, "/")+1:], podRef, r.Begin, r.Begin.Add(r.Duration)})
			}
		}
	}
	return all
}

// prove answers the time for which the address had no reservation before one of two
// holders made its own, if the double is one of the window: the other one had a
// reservation, the DEL of an older plugin for another pod deleted it, and it was not
// there again. Else it answers why it is none.
func (d double) prove(changes []change, taken []taking) (gap time.Duration, err error) {
	gap, err = d.proveInTurn(changes, taken)
	if err == nil {
		return gap, nil
	}
	// The one that was told last may have been the first to reserve the address.
	other := double{d.second, d.first}
	gap, otherErr := other.proveInTurn(changes, taken)
	if otherErr == nil {
		return gap, nil
	}
	return 0, fmt.Errorf("%w; and %w", err, otherErr)
}

// proveInTurn is prove for the one that lost its reservation and the one that came next.
func (d double) proveInTurn(changes []change, taken []taking) (gap time.Duration, err error) {
	deleted := time.Time{} // any reservation
	lost := fmt.Errorf("%s has no reservation", d.first)
	err = fmt.Errorf("%s has made no reservation", d.second)
	current := "" // whose reservation there is
	byAnother := wrong(changes, taken)
	for i, c := range changes {
		first, created := c.podRef == d.first.podRef(), !c.deleted && c.podRef != current
		switch {
		case first && created:
			lost = fmt.Errorf("the reservation of %s was there", d.first)
		case first && c.deleted && byAnother[i]:
			lost = nil
		case first && c.deleted:
			lost = fmt.Errorf("the reservation of %s was not deleted by an older plugin's DEL of another pod", d.first)
		case created && c.podRef == d.second.podRef():
			gap, err = c.at.Sub(deleted), lost
		}
		current = c.podRef
		if c.deleted {
			current, deleted = "", c.at
		}
	}
	return gap, err
}

// wrong answers which changes of a reservation are deletions by the DEL of a pod that it
// was not of.
func wrong(changes []change, taken []taking) map[int]bool {
	found := map[int]bool{}
	for _, t := range taken {
		if i := t.deletes(changes); i >= 0 && changes[i].podRef != t.podRef {
			found[i] = true
		}
	}
	return found
}

// lag is how late a change may be told.
const lag = 5 * time.Second

// deletes finds what a DELETE has deleted: its own pod's reservation if that went before
// the answer, or else the first that went since it was sent. It answers -1 if none did.
func (t taking) deletes(changes []change) int {
	first := -1
	for i, c := range changes {
		if !c.deleted || c.name != t.name || c.at.Before(t.begin) || c.at.After(t.end.Add(lag)) {
			continue
		}
		if c.podRef == t.podRef && !c.at.After(t.end) {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}
