package ipcontrol

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// phaseTimeout is how long show asks for a pod's phase, which is no more than
// nice to know.
const phaseTimeout = 3 * time.Second

// showAddress answers who has an address, for each pool that it lies in.
func (s shower) showAddress(ctx context.Context, v *view, a netip.Addr) error {
	document := answerDocument{Address: a.String(), Answers: []addressDocument{}}
	for _, pool := range v.around(s.options, a) {
		d := v.state(pool, a)
		s.phase(ctx, &d)
		d.Text = d.sentence(pool, s.Now())
		document.Answers = append(document.Answers, d)
	}
	if s.machine() {
		return s.print(document)
	}
	if len(document.Answers) == 0 {
		fmt.Fprintf(s.Stdout, "%s lies outside every pool%s\n", a, v.definedAround(a))
	}
	for i := range document.Answers {
		fmt.Fprintln(s.Stdout, printable(document.Answers[i].Text))
	}
	return nil
}

// around are the pools that an address lies in, or is recorded in all the same.
func (v *view) around(o options, a netip.Addr) []stored {
	return slices.DeleteFunc(v.pools(o), func(s stored) bool {
		_, recorded := s.pool.Records[a]
		return !recorded && !s.pool.ID.Range.Contains(a)
	})
}

// definedAround names a definition from whose range an address may come.
func (v *view) definedAround(a netip.Addr) string {
	for _, d := range v.defined {
		for _, r := range d.Ranges {
			if r.Contains(a) {
				return fmt.Sprintf("; network attachment definition %s has it in range %s, from which nothing was taken yet", d.Definition, r)
			}
		}
	}
	return ""
}

// state is what is known of an address in one pool.
func (v *view) state(s stored, a netip.Addr) addressDocument {
	d := addressDocument{Address: a.String()}
	record, held := s.pool.Records[a]
	reservation := s.reservation(s.pool.ID.Network, a)
	switch {
	case held:
		d.describe(record)
		d.Reservation = reservation != nil && reservation.Beside(s.pool.ID, record)
	case reservation != nil:
		d.describe(reservation.Record)
		d.State, d.Reservation = stateClaimed, true
	default:
		d.State = unheld(s.pool.ID, v.ranges(s.pool.ID), a)
	}
	d.Namespace, d.Pool, d.Network = s.namespace, s.name(), s.pool.ID.Network
	return d
}

// unheld is the state of an address that nobody has.
func unheld(id ipam.PoolID, ranges []ipam.Range, a netip.Addr) string {
	if len(ranges) == 0 {
		ranges = []ipam.Range{ipam.RangeOf(id)}
	}
	state := stateUnusable
	for _, r := range ranges {
		switch {
		case r.Eligible(a):
			return stateFree
		case r.Gateway.IsValid() && r.Gateway == a:
			state = stateGateway
		case state == stateUnusable && blocked(r, a):
			state = stateExcluded
		}
	}
	return state
}

func blocked(r ipam.Range, a netip.Addr) bool {
	for _, span := range r.Blocked() {
		if span.Contains(a) {
			return true
		}
	}
	return false
}

// phase asks for the state of the pod that holds an address.
func (s shower) phase(ctx context.Context, d *addressDocument) {
	namespace, name, ok := strings.Cut(d.Pod, "/")
	if !ok || s.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, phaseTimeout)
	defer cancel()
	pod, err := s.live().Pod(ctx, namespace, name)
	switch {
	case err != nil: // it may not be permitted
	case pod == nil:
		d.PodPhase = "does not exist"
	case !pod.Deleted.IsZero():
		d.PodPhase = "Terminating"
	case !pod.MayBe(d.UID):
		d.PodPhase = "another pod of the same name exists"
	default:
		d.PodPhase = string(pod.Phase)
	}
}

// sentence is the answer in words.
func (d *addressDocument) sentence(s stored, now time.Time) string {
	where := fmt.Sprintf("in pool %s", s)
	switch d.State {
	case stateFree:
		return fmt.Sprintf("%s is free %s", d.Address, where)
	case stateExcluded:
		return fmt.Sprintf("%s is excluded %s: it is not handed out", d.Address, where)
	case stateGateway:
		return fmt.Sprintf("%s is the gateway %s: it is not handed out", d.Address, where)
	case stateUnusable:
		return fmt.Sprintf("%s is never handed out %s: it is the network's own, or outside start and end", d.Address, where)
	case stateUnreadable:
		return fmt.Sprintf("%s is recorded %s by an entry that cannot be read: it is not handed out", d.Address, where)
	case stateReserved:
		return fmt.Sprintf("%s is kept out of circulation %s for %q%s", d.Address, where, d.Purpose, d.sinceWords(now))
	case stateClaimed:
		return fmt.Sprintf("%s is reserved for %s and not recorded %s: another range may have it, or a record lacks its half (`%s check` tells)",
			d.Address, d.owner(), where, Name)
	}
	protected := ", without a reservation"
	if d.Reservation {
		protected = ", with its reservation"
	}
	return fmt.Sprintf("%s is held by %s %s%s%s", d.Address, d.owner(), where, d.sinceWords(now), protected)
}

func (d *addressDocument) owner() string {
	owner := "container " + short(d.ContainerID)
	switch {
	case d.Pod != "":
		owner = "pod " + d.Pod
		if d.PodPhase != "" {
			owner += " (" + d.PodPhase + ")"
		}
	case d.Purpose != "":
		owner = fmt.Sprintf("%q", d.Purpose)
	}
	if d.Interface != "" {
		owner += " interface " + d.Interface
	}
	if d.Node != "" {
		owner += " on node " + d.Node
	}
	return owner
}

func (d *addressDocument) sinceWords(now time.Time) string {
	if d.Since == nil {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", d.Since.Format(time.RFC3339), age(now, d.Since))
}
