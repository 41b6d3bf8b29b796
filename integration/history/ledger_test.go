package history

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// place is an address in an address space.
type place struct {
	space   string
	address netip.Addr
}

func (p place) String() string {
	if p.space == "" {
		return p.address.String()
	}
	return p.address.String() + " of network " + p.space
}

// owner is who may hold an address: one interface of one pod, whatever container
// it runs in.
type owner struct {
	uid, ifName string
}

// holder is an owner in one of its containers.
type holder struct {
	owner
	podRef, container string
}

func (h holder) String() string {
	return fmt.Sprintf("%s (%s) %s in %s", h.podRef, h.uid, h.ifName, h.container)
}

// holding is the time in which a holder definitely has an address: it has been told
// so, and it has not begun to give it back.
type holding struct {
	place
	holder
	network  *network
	from, to time.Duration // since the ledger was opened; to is open while it is negative
}

// open is for the end of a holding that has none yet.
const open time.Duration = -1

// event is anything that happened to a container.
type event struct {
	at        time.Duration
	container string
	text      string
	detail    string // long, and dropped after a while
}

// ledger writes down what happened, and finds what must not happen. Its methods may
// be called from any goroutine.
type ledger struct {
	now func() time.Duration

	mu       sync.Mutex
	holdings map[place][]*holding  // all, in order
	current  map[holder][]*holding // the open ones
	events   []event               // in order
	excuses  map[string][]string   // by container: why it may have left a trace
	findings []string              // what must not happen and did
	wire     func(place) []wire    // the writes about a place
	report   func(what string)     // tells a finding at once
	checked  int                   // holdings compared
}

func newLedger(now func() time.Duration) *ledger {
	return &ledger{
		now: now, holdings: map[place][]*holding{}, current: map[holder][]*holding{}, excuses: map[string][]string{},
		wire: func(place) []wire { return nil }, report: func(string) {},
	}
}

// granted notes that an ADD has returned these addresses. It is a finding if one of
// them is anybody else's at this moment, or if the container had others already.
func (l *ledger) granted(h holder, n *network, places []place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.now()
	l.noteLocked(at, h.container, "is told "+fmt.Sprint(places), "")
	if had := l.current[h]; len(had) > 0 {
		if !slices.Equal(placesOf(had), places) {
			l.findLocked(fmt.Sprintf("%s asked again and was told %v instead of %v", h, places, placesOf(had)), append(placesOf(had), places...)...)
		}
		return
	}
	for _, p := range places {
		l.checked++
		mine := &holding{place: p, holder: h, network: n, from: at, to: open}
		l.holdings[p] = append(l.holdings[p], mine)
		l.current[h] = append(l.current[h], mine)
		for _, other := range l.holdings[p] {
			if other.to == open && other.owner != h.owner {
				l.findLocked(fmt.Sprintf("%s is held twice: by %s since %s and by %s since %s",
					p, other.holder, short(other.from), h, short(at)), p)
			}
		}
	}
}

// ends notes that a holder's DEL is about to start, or its successor's ADD.
func (l *ledger) ends(h holder, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.now()
	l.noteLocked(at, h.container, why, "")
	for _, mine := range l.current[h] {
		mine.to = at
	}
	delete(l.current, h)
}

// holds answers what a holder has at this moment, in the order of the result.
func (l *ledger) holds(h holder) []place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return placesOf(l.current[h])
}

// openHoldings answers copies of all that are open.
func (l *ledger) openHoldings() []holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []holding
	for _, list := range l.current {
		for _, h := range list {
			all = append(all, *h)
		}
	}
	return all
}

// stillOpen reports whether a holding that was open is so without a break.
func (l *ledger) stillOpen(was holding) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.current[was.holder], func(h *holding) bool { return h.place == was.place && h.from == was.from })
}

// excuse notes why a container may have left a trace.
func (l *ledger) excuse(container, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.excuses[container], why) {
		l.excuses[container] = append(l.excuses[container], why)
	}
}

func (l *ledger) excusesOf(container string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.excuses[container])
}

func (l *ledger) note(container, text, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(l.now(), container, text, detail)
}

func (l *ledger) noteLocked(at time.Duration, container, text, detail string) {
	l.events = append(l.events, event{at, container, text, detail})
}

// find notes what must not happen, with the history of the addresses concerned.
func (l *ledger) find(what string, about ...place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.findLocked(what, about...)
}

// maxFindings bounds how many are told in full: one fault of the product soon has
// many consequences.
const maxFindings = 10

func (l *ledger) findLocked(what string, about ...place) {
	l.findings = append(l.findings, what)
	if len(l.findings) > maxFindings {
		return
	}
	text := fmt.Sprintf("at %s: %s", short(l.now()), what)
	slices.SortFunc(about, func(a, b place) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range slices.Compact(about) {
		text += "\n" + l.historyLocked(p)
	}
	l.report(text)
}

// historyLocked is all that is known of an address: what became of each container
// that was told to have it, and the writes that mention it.
func (l *ledger) historyLocked(p place) string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	concerned := map[string]bool{}
	for _, h := range l.holdings[p] {
		concerned[h.container] = true
	}
	for _, w := range l.wire(p) {
		lines = append(lines, line{w.at, w.String()})
		if containers := containersIn(w.body); len(containers) == 1 {
			concerned[containers[0]] = true
		}
	}
	for _, e := range l.events {
		if concerned[e.container] {
			lines = append(lines, line{e.at, strings.TrimRight(e.container+" "+e.text+"\n"+e.detail, "\n")})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.at - b.at) })
	text := "history of " + p.String() + ":"
	for _, line := range lines {
		text += "\n  " + short(line.at) + " " + line.text
	}
	return text
}

// trim drops the details of what happened before a time, so that a long run fits
// into memory.
func (l *ledger) trim(before time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events {
		if l.events[i].at >= before {
			return
		}
		l.events[i].detail = ""
	}
}

func (l *ledger) counts() (checked, held, findings int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.current {
		held += len(list)
	}
	return l.checked, held, len(l.findings)
}

func placesOf(holdings []*holding) []place {
	var places []place
	for _, h := range holdings {
		places = append(places, h.place)
	}
	return places
}

func short(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

// Reasons for which a container may have left a trace.
const (
	addKilled = "its ADD was killed"
	lateWrite = "a write came late"
)
