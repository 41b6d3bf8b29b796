package local

import (
	"bytes"
	"fmt"
	"net/netip"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// step is one write that a change consists of. A nil value deletes.
type step struct {
	buckets [][]byte
	key     []byte
	value   []byte
}

// judge answers the writes that carry a valid change out. With an error, which
// says why the change is refused, they are those that leave nothing of it behind.
func judge(tx *bbolt.Tx, c ipam.Change) ([]step, error) {
	in := spaceOf(tx, c.Pool.Network)
	if c.After != nil {
		return in.judgeWrite(c)
	}
	steps := in.judgeSeen(c)
	if c.Seen == nil {
		steps = in.judgeRelease(c)
	}
	if c.Strict && len(steps) == 0 {
		current, _ := in.record(c.Pool, c.Address)
		return nil, &ipam.ConflictError{Address: c.Address, Holder: current.Record}
	}
	return steps, nil
}

// validate refuses what could be written but not be found or read again. A
// release writes nothing, so it is always fine.
func validate(c ipam.Change) error {
	if c.Seen != nil && c.Seen.Version == "" {
		return fmt.Errorf("%w: the reservation of %s has no version, with which it could be released; read it first", ipam.ErrInvalid, c.Address)
	}
	if c.After == nil && c.Before == nil && c.Seen == nil {
		return fmt.Errorf("%w: the change of %s names no record", ipam.ErrInvalid, c.Address)
	}
	if c.After == nil {
		return nil
	}
	if !c.Pool.Range.Contains(c.Address) {
		return fmt.Errorf("%w: %s is not an address of range %s", ipam.ErrInvalid, c.Address, c.Pool.Range)
	}
	if c.After.ContainerID == "" && c.After.PodRef == "" {
		return fmt.Errorf("%w: the record of %s names no owner", ipam.ErrInvalid, c.Address)
	}
	if year := c.After.Since.Year(); year < 0 || year > 9999 {
		return fmt.Errorf("%w: the record of %s is of the year %d", ipam.ErrInvalid, c.Address, year)
	}
	for _, key := range [][]byte{networkKey(c.Pool.Network), poolKey(c.Pool)} {
		if len(key) > bbolt.MaxKeySize {
			return fmt.Errorf("%w: a name of %d bytes is too long for the local datastore",
				ipam.ErrInvalid, len(key))
		}
	}
	return nil
}

// judgeWrite judges a take or a rewrite. One that is refused because of the
// record gives up the reservation that its owner may have left at a crash.
func (s space) judgeWrite(c ipam.Change) ([]step, error) {
	current, held := s.record(c.Pool, c.Address)
	done := held && !current.unreadable && current.Same(*c.After)
	if !done && !holds(c.Before, current, held) {
		leftover := s.judgeRelease(ipam.Change{Pool: c.Pool, Address: c.Address, Before: c.After})
		return leftover, &ipam.ConflictError{Address: c.Address, Holder: current.Record}
	}
	record := step{poolPath(c.Pool), addressKey(c.Address), encodeRecord(*c.After)}
	if !c.Overlap {
		return []step{record}, nil
	}
	if err := s.claimable(c); err != nil {
		return nil, err
	}
	reservation := step{reservationPath(c.Pool), addressKey(c.Address), encodeReservation(*c.After, c.Pool)}
	return []step{reservation, record}, nil
}

// holds reports whether what a change expects is what is there.
func holds(before *ipam.Record, current entry, held bool) bool {
	if before == nil || !held {
		return before == nil && !held
	}
	return !current.unreadable && current.Same(*before)
}

// claimable answers nil if the change's owner can have the reservation: there
// is none, or it is the owner's own and belongs to this pool.
func (s space) claimable(c ipam.Change) error {
	r, reserved := s.reservation(c.Address)
	if !reserved {
		return nil
	}
	conflict := &ipam.ConflictError{Address: c.Address, Holder: r.Record, Reserved: true, Range: r.pool}
	own := !r.unreadable && (r.ownedBy(*c.After) || c.Before != nil && r.ownedBy(*c.Before))
	if !own || r.pool != "" && !r.of(c.Pool) {
		return conflict
	}
	if r.pool == "" {
		if other, found := s.inOtherPool(c.Pool, c.Address); found {
			conflict.Range = other.Range.String()
			return conflict
		}
	}
	return nil
}

// judgeRelease answers which of record and reservation go. There is no release
// that fails.
func (s space) judgeRelease(c ipam.Change) []step {
	var steps []step
	current, held := s.record(c.Pool, c.Address)
	released := held && !current.unreadable && c.Frees(current.Record)
	if released {
		steps = append(steps, step{buckets: poolPath(c.Pool), key: addressKey(c.Address)})
	}
	r, reserved := s.reservation(c.Address)
	if !reserved || r.unreadable || r.pool != "" && !r.of(c.Pool) {
		return steps
	}
	if held && !released && (current.unreadable || r.ownedBy(current.Record)) {
		return steps // it goes with the record that stays
	}
	if r.pool == "" {
		if _, found := s.inOtherPool(c.Pool, c.Address); found {
			return steps
		}
	}
	if r.left(*c.Before, released) {
		steps = append(steps, step{buckets: reservationPath(c.Pool), key: addressKey(c.Address)})
	}
	return steps
}

// judgeSeen answers the release of a reservation alone. Its content is its version,
// and its owner may have written the same again: with a record beside it, it stays.
func (s space) judgeSeen(c ipam.Change) []step {
	if c.Seen == nil {
		return nil
	}
	r, reserved := s.reservation(c.Address)
	if !reserved || r.unreadable || r.version != c.Seen.Version {
		return nil
	}
	if id, found := s.inOtherPool(ipam.PoolID{Network: c.Pool.Network}, c.Address); found {
		if current, _ := s.record(id, c.Address); current.unreadable || r.ownedBy(current.Record) {
			return nil
		}
	}
	return []step{{buckets: reservationPath(c.Pool), key: addressKey(c.Address)}}
}

// left reports whether a reservation is what the owner of a record leaves when
// it goes. Once its record was released here, the container id may be an older
// one (an adoption without overlap protection does not rewrite it). Without,
// the same pod's next container could be the one that made the reservation.
func (e entry) left(before ipam.Record, released bool) bool {
	if released {
		return e.ownedBy(before) || before.IfName == "" && e.ownedBy(withIfName(before, e.IfName))
	}
	return e.ContainerID == before.ContainerID && e.ownedBy(before)
}

func withIfName(r ipam.Record, name string) ipam.Record {
	r.IfName = name
	return r
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

func poolPath(id ipam.PoolID) [][]byte {
	return [][]byte{keyNetworks, networkKey(id.Network), keyPools, poolKey(id)}
}

func reservationPath(id ipam.PoolID) [][]byte {
	return [][]byte{keyNetworks, networkKey(id.Network), keyReservations}
}

// perform carries steps out and reports whether they changed anything.
func perform(tx *bbolt.Tx, steps []step) (changed bool, err error) {
	for _, st := range steps {
		did, err := st.perform(tx)
		if err != nil {
			return false, err
		}
		changed = changed || did
	}
	return changed, nil
}

func (st step) perform(tx *bbolt.Tx) (changed bool, err error) {
	b, err := tx.CreateBucketIfNotExists(st.buckets[0])
	for _, key := range st.buckets[1:] {
		if err != nil {
			return false, err
		}
		b, err = b.CreateBucketIfNotExists(key)
	}
	if err != nil {
		return false, err
	}
	if bytes.Equal(b.Get(st.key), st.value) {
		return false, nil
	}
	if st.value == nil {
		return true, b.Delete(st.key)
	}
	return true, b.Put(st.key, st.value)
}
