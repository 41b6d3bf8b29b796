package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// FindingKind is the class of a Finding, for machines.
type FindingKind string

const (
	// FindingDuplicate is an address that two pools of one network_name hold.
	FindingDuplicate FindingKind = "duplicate"

	// FindingHalfRecord is a record that should have a reservation but has none.
	FindingHalfRecord FindingKind = "half-record"

	// FindingBareReservation is a reservation whose address nobody holds.
	FindingBareReservation FindingKind = "bare-reservation"

	// FindingDisagree is a reservation that names another owner or another pool
	// than the record of its address.
	FindingDisagree FindingKind = "disagree"

	// FindingOutside is a record of an address outside its pool's range.
	FindingOutside FindingKind = "outside-range"

	// FindingUnreadable is a stored entry that cannot be understood.
	FindingUnreadable FindingKind = "unreadable"
)

// Finding is one thing that is wrong with what is stored.
type Finding struct {
	Kind    FindingKind
	Network string     // network_name
	Address netip.Addr // invalid if the entry names no address
	Pool    PoolID     // zero if no record is concerned
	Text    string     // for the operator
}

// CheckOptions is what a caller of Check knows beyond the stored objects.
type CheckOptions struct {
	// NeedsReservation reports whether overlap protection is on for a record.
	// Nil means that nobody knows: then no record counts as half a record.
	NeedsReservation func(PoolID, Record) bool
}

// Check looks for contradictions in a store's content and answers them ordered
// by network, address and kind; nothing if all is well. It does not know which
// pods live. An address in two overlapping pools of one network_name is always
// a finding, also where overlap protection is switched off: whether that is
// meant is for the operator to say.
func Check(s *Snapshot, opts CheckOptions) []Finding {
	var found []Finding
	for _, p := range s.Pools {
		found = append(found, checkPool(p)...)
	}
	for at, here := range claimsByPlace(s) {
		found = append(found, here.check(at, opts)...)
	}
	slices.SortFunc(found, compareFindings)
	return found
}

func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.Network, b.Network),
		a.Address.Compare(b.Address),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Text, b.Text),
	)
}

func checkPool(p *Pool) []Finding {
	var found []Finding
	for a := range p.Records {
		if !p.ID.Range.Contains(a) {
			found = append(found, finding(FindingOutside, p.ID, a,
				"%s is recorded in range %s but lies outside of it", a, p.ID))
		}
	}
	for _, key := range p.Bad {
		a, _ := netip.ParseAddr(key)
		found = append(found, finding(FindingUnreadable, p.ID, a,
			"entry %q of range %s cannot be read and is left as it is", key, p.ID))
	}
	return found
}

// place is what must be unique: an address in its address space.
type place struct {
	network string
	address netip.Addr
}

// stake is all that is stored about one place.
type stake struct {
	claims       []claim
	reservations []Reservation
}

type claim struct {
	pool   PoolID
	record Record
}

func claimsByPlace(s *Snapshot) map[place]*stake {
	all := map[place]*stake{}
	at := func(network string, a netip.Addr) *stake {
		p := place{network, a}
		if all[p] == nil {
			all[p] = &stake{}
		}
		return all[p]
	}
	for _, p := range s.Pools {
		for a, r := range p.Records {
			here := at(p.ID.Network, a)
			here.claims = append(here.claims, claim{p.ID, r})
		}
	}
	for _, r := range s.Reservations {
		here := at(r.Space, r.Address)
		here.reservations = append(here.reservations, r)
	}
	return all
}

func (s *stake) check(at place, opts CheckOptions) []Finding {
	var found []Finding
	if len(s.claims) > 1 {
		found = append(found, finding(FindingDuplicate, s.claims[0].pool, at.address,
			"%s is held %d times: %s", at.address, len(s.claims), listClaims(s.claims)))
	}
	if len(s.reservations) == 0 {
		found = append(found, s.checkUnreserved(at, opts)...)
	}
	for _, r := range s.reservations {
		found = append(found, s.checkReservation(r)...)
	}
	return found
}

func (s *stake) checkUnreserved(at place, opts CheckOptions) []Finding {
	var found []Finding
	for _, c := range s.claims {
		unknown := c.record == Record{} // reported as unreadable
		if unknown || opts.NeedsReservation == nil || !opts.NeedsReservation(c.pool, c.record) {
			continue
		}
		found = append(found, finding(FindingHalfRecord, c.pool, at.address,
			"%s is held by %s without a reservation: another range may hand it out too", at.address, c))
	}
	return found
}

func (s *stake) checkReservation(r Reservation) []Finding {
	nowhere := PoolID{Network: r.Space}
	if (r.Record == Record{}) {
		return []Finding{finding(FindingUnreadable, nowhere, r.Address,
			"the reservation of %s cannot be read and is left as it is", r.Address)}
	}
	if len(s.claims) == 0 {
		return []Finding{finding(FindingBareReservation, nowhere, r.Address,
			"%s is reserved for %s but recorded nowhere: it is neither used nor handed out", r.Address, r.Holder())}
	}
	if slices.ContainsFunc(s.claims, func(c claim) bool { return c.agrees(r) }) {
		return nil
	}
	return []Finding{finding(FindingDisagree, s.claims[0].pool, r.Address,
		"%s is reserved for %s%s but held by %s", r.Address, ownerInWords(r.Record), throughRange(r.Range), listClaims(s.claims))}
}

// agrees reports whether nothing that is known contradicts that the reservation
// is this claim's. The container id of a reservation may lag behind: older
// versions adopt a record without rewriting it.
func (c claim) agrees(r Reservation) bool {
	if p, err := netip.ParsePrefix(r.Range); err == nil && p.Masked() != c.pool.Range.Masked() {
		return false
	}
	if differ(c.record.IfName, r.IfName) {
		return false
	}
	if c.record.PodRef != "" && r.PodRef != "" {
		return c.record.PodRef == r.PodRef
	}
	return !differ(c.record.ContainerID, r.ContainerID)
}

// differ reports whether both values are known and not the same.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

func finding(kind FindingKind, id PoolID, a netip.Addr, format string, args ...any) Finding {
	f := Finding{Kind: kind, Network: id.Network, Address: a, Text: fmt.Sprintf(format, args...)}
	if id.Range.IsValid() {
		f.Pool = id
	}
	return f
}

func (c claim) String() string {
	return fmt.Sprintf("%s (range %s)", ownerInWords(c.record), c.pool)
}

func listClaims(claims []claim) string {
	words := make([]string, len(claims))
	for i, c := range claims {
		words[i] = c.String()
	}
	slices.Sort(words)
	return strings.Join(words, " and ")
}

func ownerInWords(r Record) string {
	if r.IfName == "" {
		return r.Holder()
	}
	return r.Holder() + " interface " + r.IfName
}

func throughRange(cidr string) string {
	if cidr == "" {
		return ""
	}
	return " through range " + cidr
}
