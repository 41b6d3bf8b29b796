package ipam

import (
	"context"
	"net/netip"
	"time"
)

// Store keeps records. Stores differ in how they make a write atomic, not in
// policy: which address to choose, whether to adopt, what to roll back is decided
// by the Allocator.
//
// All methods are safe for concurrent use, obey the context's deadline, and
// retry what is worth retrying (time-outs, refusals, lost answers) until then.
// Errors they answer wrap one of the errors of errors.go.
type Store interface {
	// Read returns a pool's records. A pool that nobody has written yet is not
	// an error: Exists is false and there are no records. Read creates nothing.
	// The records need not carry their details (UID, Node, Network, Since):
	// those may be stored elsewhere, see Reservation.
	Read(ctx context.Context, id PoolID) (*Pool, error)

	// Commit carries out changes and answers one error for each, in order; nil
	// is success. Each change is atomic and stands for itself: that one fails
	// does not fail the others. A batch of one is the normal case.
	//
	// A change whose precondition does not hold answers a *ConflictError and
	// leaves nothing behind. A change that had been carried out already (a
	// repeated call, an answer that got lost) succeeds.
	//
	// An error that wraps ErrUnavailable means that the outcome may be unknown:
	// the change may have been carried out, and Commit could not find out.
	Commit(ctx context.Context, changes []Change) []error

	// Reservation returns the reservation of an address, or nil if there is
	// none.
	Reservation(ctx context.Context, network string, a netip.Addr) (*Reservation, error)

	// Snapshot returns everything that is stored, details included: for
	// clean-up, audits and garbage collection, never on the way of a pod.
	Snapshot(ctx context.Context) (*Snapshot, error)

	// Ready makes one cheap request and answers nil if the store can serve.
	Ready(ctx context.Context) error

	// Close releases files and connections.
	Close() error
}

// Change replaces the record of one address: a compare-and-swap.
//
//	Before  After   meaning
//	nil     set     take a free address
//	set     set     rewrite a record: adoption, or the same owner again
//	set     nil     release
//	nil     nil     release of the reservation in Seen alone
//
// Before is compared by Record.Same. Releasing an address that somebody else
// holds by now, or nobody, is a success (see Strict): the owner named no longer
// holds it.
type Change struct {
	Pool    PoolID
	Address netip.Addr
	Before  *Record
	After   *Record

	// Overlap asks for a reservation beside the record: taken before it. A
	// take or rewrite fails if the reservation is somebody else's; one that
	// this owner left behind at a crash is continued. A release always looks
	// for the reservation of its owner and frees it after the record, whatever
	// Overlap says.
	Overlap bool

	// Latest, in a release, is for a container that ends now: it frees the
	// record of its container and interface whatever the token, and that of
	// Before is only a first guess. Without it a record under another token is
	// a newer holding, as for a release that comes late.
	Latest bool

	// Seen makes a release that of a reservation alone, as it was read: what
	// no record stands beside. Pool.Network and Address say where it is; Before
	// is nil and no record is touched. It is freed only while it has the Version
	// of Seen: one that was written since is in use, and stays. A Version ""
	// answers an error that wraps ErrInvalid.
	//
	// Between the reservation and the record of a take the version does not
	// change. So the caller first lets pass the time that one ADD has, and reads
	// the pool again.
	Seen *Reservation

	// Strict, in a release, makes it a conflict, instead of a success, if there
	// was nothing to free: for a caller that has to know whether it was this very
	// change that freed the address. One that was carried out, but whose answer
	// got lost, may be such a conflict too.
	Strict bool

	// Hasty allows a take to answer a conflict without finding out who holds
	// the address: the caller has another one to try. The *ConflictError may
	// then lack holder and range.
	Hasty bool
}

// Snapshot is the whole content of a store.
type Snapshot struct {
	Pools        []*Pool
	Reservations []Reservation
	Turns        []Turn

	Unreadable []string // names of pools whose range cannot be understood, in order; they are not in Pools
}

// Turn is the mark of a writer to a crowded pool, in stores whose writers go one after
// the other then. It holds no address. A writer that is killed leaves its mark behind,
// which does no harm: others write without it in the end.
type Turn struct {
	Name  string    // of the mark in the store
	UID   string    // of this one of that name
	Since time.Time // by the store's clock
}

// Frees reports whether a release frees the record that is there.
func (c Change) Frees(current Record) bool {
	before := *c.Before
	if c.Latest {
		before.Gen = ""
	}
	return current.Same(before)
}
