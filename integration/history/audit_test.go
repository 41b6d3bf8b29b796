package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// stored is what is written down about a place.
type stored struct {
	entries     map[string]Object // by pool
	reservation Object            // its spec; nil if there is none
}

func newStored() *stored { return &stored{entries: map[string]Object{}} }

// storedAt is what is known of a place so far.
func storedAt(all map[place]*stored, p place) *stored {
	if all[p] == nil {
		all[p] = newStored()
	}
	return all[p]
}

// watch compares, again and again, what is stored with what is held. It tells the
// same holding once only.
func (w *world) watch(ctx context.Context) {
	const every = time.Second
	told := map[holding]bool{}
	for sleep(ctx, every) {
		before := w.ledger.openHoldings()
		all, _, err := w.store.read(ctx)
		if err != nil {
			continue // the servers are away
		}
		for _, h := range before {
			if !w.ledger.stillOpen(h) || told[h] {
				continue
			}
			w.audited.Add(1)
			if wrong := w.excused(all[h.place]).contradicts(h); wrong != "" {
				told[h] = true
				w.ledger.find(fmt.Sprintf("%s holds %s since %s, but %s", h.holder, h.place, short(h.from), wrong), h.place)
			}
		}
	}
}

// excused leaves out the entries of killed ADDs whose write came late, when the DEL of
// the container had been: nobody was told of them, they lie in another range's pool,
// and a clean-up frees them.
func (w *world) excused(s *stored) *stored {
	if s == nil || len(s.entries) < 2 {
		return s
	}
	kept := &stored{entries: map[string]Object{}, reservation: s.reservation}
	for pool, entry := range s.entries {
		reasons := w.ledger.excusesOf(entry.String("id"))
		if !slices.Contains(reasons, lateWrite) || !slices.Contains(reasons, addKilled) {
			kept.entries[pool] = entry
		}
	}
	return kept
}

// contradicts says what is not as it has to be while a holding lasts; nothing if all
// is well.
func (s *stored) contradicts(h holding) string {
	if s == nil {
		return "nothing is recorded there"
	}
	if len(s.entries) != 1 {
		return fmt.Sprintf("%d pools have it: %v", len(s.entries), s.entries)
	}
	for pool, entry := range s.entries {
		if entry.String("id") != h.container || entry.String("podref") != h.podRef || entry.String("ifname") != h.ifName {
			return fmt.Sprintf("pool %s says %v", pool, entry)
		}
	}
	if h.network.unprotected {
		return ""
	}
	r := s.reservation
	if r.String("containerid") != h.container || r.String("podref") != h.podRef || r.String("ifname") != h.ifName || r.String("uid") != h.uid {
		return fmt.Sprintf("the reservation says %v", r)
	}
	return ""
}

// containers lists those that the records of a place name.
func (s *stored) containers() []string {
	named := map[string]bool{}
	for _, entry := range s.entries {
		named[entry.String("id")] = true
	}
	if s.reservation != nil {
		named[s.reservation.String("containerid")] = true
	}
	return slices.Sorted(maps.Keys(named))
}

// kind says in which way the records of a place are left over.
func (s *stored) kind() string {
	switch {
	case len(s.entries) == 0:
		return "reservation without an entry"
	case s.reservation == nil:
		return "entry without a reservation"
	case len(s.containers()) > 1:
		return "entry and reservation of different containers"
	default:
		return "entry with its reservation"
	}
}
