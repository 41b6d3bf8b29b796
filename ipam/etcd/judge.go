package etcd

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// scene is what is stored about the address of a change.
type scene struct {
	record, reservation entry

	// elsewhere answers the range of another pool of the network that has a record
	// of the address. It reads much, and is only asked about reservations that do
	// not say where they belong.
	elsewhere func() (cidr string, found bool, err error)
}

// validate refuses what could be written but not be found or read again. A release
// writes nothing, so it is always fine.
func validate(c ipam.Change) error {
	switch {
	case c.Seen != nil && c.Seen.Version == "":
		return fmt.Errorf("%w: the reservation of %s has no version, with which it could be released; read it first", ipam.ErrInvalid, c.Address)
	case c.After == nil && c.Before == nil && c.Seen == nil:
		return fmt.Errorf("%w: the change of %s names no record", ipam.ErrInvalid, c.Address)
	case c.After == nil:
		return nil
	case !c.Pool.Range.Contains(c.Address):
		return fmt.Errorf("%w: %s is not an address of range %s", ipam.ErrInvalid, c.Address, c.Pool.Range)
	case c.After.ContainerID == "" && c.After.PodRef == "":
		return fmt.Errorf("%w: the record of %s names no owner", ipam.ErrInvalid, c.Address)
	}
	if year := c.After.Since.Year(); year < 0 || year > 9999 {
		return fmt.Errorf("%w: the record of %s is of the year %d", ipam.ErrInvalid, c.Address, year)
	}
	return nil
}

// judge answers the writes that carry a change out; none if there is nothing to do.
// With a *ipam.ConflictError, which says why the change is refused, they are those
// that leave nothing of it behind. Any other error means that it could not be judged.
func (s scene) judge(c ipam.Change) ([]op, error) {
	if c.After != nil {
		return s.judgeWrite(c)
	}
	ops, err := s.judgeSeen(c), error(nil)
	if c.Seen == nil {
		ops, err = s.judgeRelease(c)
	}
	if err == nil && c.Strict && len(ops) == 0 {
		return nil, &ipam.ConflictError{Address: c.Address, Holder: s.record.Record}
	}
	if err == nil && c.Before != nil && (len(ops) > 0 || c.Before.Gen != "") {
		ops = append(ops, fence(c))
	}
	return ops, err
}

// fence keeps out what is still on its way for the container of a release: a take or
// rewrite compares that the fence was not written since its sender heard from etcd last.
// Such a write may be on its way for minutes, in the buffers of a connection that is cut
// or of a process that was killed. With a token the container meant to write a record
// here, whether or not one is found.
func fence(c ipam.Change) op { return putOp(fenceKey(c.Pool.Network, c.Before.ContainerID), nil) }

// judgeWrite judges a take or a rewrite. One that is refused because of the record
// gives up the reservation that its owner may have left.
func (s scene) judgeWrite(c ipam.Change) ([]op, error) {
	done := s.record.exists() && !s.record.unreadable && s.record.Same(*c.After)
	if !done && !s.expected(c.Before) {
		leftover, err := s.judgeRelease(ipam.Change{Pool: c.Pool, Address: c.Address, Before: c.After})
		if err == nil {
			err = &ipam.ConflictError{Address: c.Address, Holder: s.record.Record}
		}
		return leftover, err
	}
	ops := s.writeRecord(c)
	if !c.Overlap {
		return ops, nil
	}
	if err := s.claimable(c); err != nil {
		return nil, err
	}
	return append(ops, putOp(reservationKey(c.Pool.Network, c.Address), encodeReservation(*c.After, c.Pool))), nil
}

// writeRecord writes a record and its place in the index. A key is written only once
// in a transaction.
func (s scene) writeRecord(c ipam.Change) []op {
	ops := []op{putOp(recordKey(c.Pool, c.Address), encodeRecord(*c.After))}
	kept := map[string]bool{}
	for _, key := range ownerKeys(c.Pool, c.After.ContainerID, c.After.PodRef) {
		kept[key] = true
		ops = append(ops, putOp(key+digits(c.Address), nil))
	}
	for _, key := range ownerKeys(c.Pool, s.record.ContainerID, s.record.PodRef) {
		if !kept[key] {
			ops = append(ops, deleteOp(key+digits(c.Address)))
		}
	}
	return ops
}

// removeRecord removes a record, its place in the index, and what is noted of its
// block.
func (s scene) removeRecord(c ipam.Change) []op {
	ops := []op{
		deleteOp(recordKey(c.Pool, c.Address)),
		putOp(blockKey(c.Pool, c.Address), encodeNote(note{})),
	}
	for _, key := range ownerKeys(c.Pool, s.record.ContainerID, s.record.PodRef) {
		ops = append(ops, deleteOp(key+digits(c.Address)))
	}
	return ops
}

// expected reports whether what a change expects is what is there.
func (s scene) expected(before *ipam.Record) bool {
	if before == nil || !s.record.exists() {
		return before == nil && !s.record.exists()
	}
	return !s.record.unreadable && s.record.Same(*before)
}

// claimable answers nil if the change's owner can have the reservation: there is
// none, or it is the owner's own and belongs to this pool.
func (s scene) claimable(c ipam.Change) error {
	r := s.reservation
	if !r.exists() {
		return nil
	}
	conflict := &ipam.ConflictError{Address: c.Address, Holder: r.Record, Reserved: true, Range: r.pool}
	own := !r.unreadable && (r.ownedBy(*c.After) || c.Before != nil && r.ownedBy(*c.Before))
	if !own || r.pool != "" && !r.of(c.Pool) {
		return conflict
	}
	if r.pool != "" {
		return nil
	}
	cidr, found, err := s.elsewhere()
	if err == nil && found {
		conflict.Range = cidr
		return conflict
	}
	return err
}

// judgeRelease answers which of record and reservation go. There is no release that
// is refused.
func (s scene) judgeRelease(c ipam.Change) ([]op, error) {
	var ops []op
	held := s.record.exists()
	released := held && !s.record.unreadable && c.Frees(s.record.Record)
	if released {
		ops = s.removeRecord(c)
	}
	r := s.reservation
	if !r.exists() || r.unreadable || r.pool != "" && !r.of(c.Pool) {
		return ops, nil
	}
	if held && !released && (s.record.unreadable || r.ownedBy(s.record.Record)) {
		return ops, nil // it goes with the record that stays
	}
	if !r.left(*c.Before, released) {
		return ops, nil
	}
	if r.pool == "" {
		if _, found, err := s.elsewhere(); found || err != nil {
			return ops, err
		}
	}
	return append(ops, deleteOp(reservationKey(c.Pool.Network, c.Address))), nil
}

// judgeSeen answers the release of a reservation alone. Each write gives a key a
// revision of its own: one that was written since stays.
func (s scene) judgeSeen(c ipam.Change) []op {
	if c.Seen == nil || !s.reservation.exists() || s.reservation.unreadable || versionOf(s.reservation) != c.Seen.Version {
		return nil
	}
	return []op{deleteOp(reservationKey(c.Pool.Network, c.Address))}
}

func versionOf(e entry) string { return strconv.FormatInt(e.revision, 10) }

// left reports whether a reservation is what the owner of a record leaves when it
// goes. Once its record was released here, the container id may be an older one (an
// adoption without overlap protection does not rewrite it). Without, the same pod's
// next container could be the one that made the reservation.
func (e entry) left(before ipam.Record, released bool) bool {
	if released {
		any := before
		any.IfName = e.IfName
		return e.ownedBy(before) || before.IfName == "" && e.ownedBy(any)
	}
	return e.ContainerID == before.ContainerID && e.ownedBy(before)
}

// ownedBy reports whether the owner that a record names may continue the entry.
func (e entry) ownedBy(r ipam.Record) bool {
	return e.OwnedBy(ipam.Owner{ContainerID: r.ContainerID, IfName: r.IfName, PodRef: r.PodRef, UID: r.UID})
}

// of reports whether a reservation belongs to a pool.
func (e entry) of(id ipam.PoolID) bool {
	p, err := netip.ParsePrefix(e.pool)
	return err == nil && p.Masked() == id.Range.Masked()
}
