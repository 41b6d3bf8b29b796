package ipam

import (
	"errors"
	"fmt"
	"net/netip"
)

var (
	// ErrInvalid is wrapped by errors of the configuration: the operator has to
	// change something. CNI code 7.
	ErrInvalid = errors.New("invalid network configuration")

	// ErrNoSource is wrapped, beside ErrInvalid, by the error about a
	// configuration that names no address at all.
	ErrNoSource = errors.New("names no address")

	// ErrDecode is wrapped by errors about JSON that does not parse. CNI code 6.
	ErrDecode = errors.New("not valid JSON")

	// ErrArgs is wrapped by errors about CNI_ARGS and other parameters in the
	// environment. CNI code 4.
	ErrArgs = errors.New("invalid environment variable")

	// ErrExhausted is wrapped by *ExhaustedError. CNI code 11.
	ErrExhausted = errors.New("no free address")

	// ErrConflict is wrapped by *ConflictError: somebody else was first.
	ErrConflict = errors.New("address is held")

	// ErrNoSlice is wrapped by errors about a node that has no slice to take an
	// address from: *NoSliceError and *ClosedError. CNI code 11.
	ErrNoSlice = errors.New("node has no slice")

	// ErrNotRecorded is wrapped by errors of a check: an address in use is not
	// recorded for its user.
	ErrNotRecorded = errors.New("address is not recorded")

	// ErrUnavailable is wrapped by errors of a store that cannot be reached or
	// does not answer. CNI code 11.
	ErrUnavailable = errors.New("datastore is not available")

	// ErrDenied is wrapped by errors of a store that answers but refuses us for
	// good: bad credentials, missing rights or missing resource definitions.
	ErrDenied = errors.New("datastore refuses")

	// ErrCorrupt is wrapped by errors about stored objects that cannot be
	// understood, and without which nothing safe can be done.
	ErrCorrupt = errors.New("stored object cannot be read")
)

// ConflictError says that a change's precondition did not hold.
type ConflictError struct {
	Address netip.Addr
	Holder  Record // who has it; zero when unknown or nobody

	// Reserved is true when the address is claimed by a reservation rather than
	// by a record of the same pool. Range is then the pool the reservation
	// belongs to, "" when unknown.
	Reserved bool
	Range    string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s is held by %s", e.Address, e.Holder.Holder())
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// ExhaustedError says that a range has no free address left.
type ExhaustedError struct {
	Pool      PoolID
	Range     Range // the configured range, or the node's slice of it
	Used      int   // records in the pool
	Elsewhere int   // addresses known to be held through other ranges

	// More is the other slices of the node, which have no free address either.
	More []PoolID
}

func (e *ExhaustedError) Error() string {
	elsewhere := ""
	if e.Elsewhere > 0 {
		elsewhere = fmt.Sprintf(", %d held through other ranges", e.Elsewhere)
	}
	if len(e.More) > 0 {
		elsewhere += fmt.Sprintf(", %d more slices of the node without a free one", len(e.More))
	}
	return fmt.Sprintf("no free address in range %s (pool %s): %d in use%s, %s of %s usable addresses excluded; "+
		"free some or widen the range", e.Range, e.Pool, e.Used, elsewhere, e.Range.Excluded(), e.Range.Size())
}

func (e *ExhaustedError) Unwrap() error { return ErrExhausted }

// NoSliceError says that a node has no slice of a range.
type NoSliceError struct {
	Node    string
	List    SliceList
	Outside []netip.Prefix // slices that it has, but of which the range has nothing
	Nobody  bool           // no node has one
}

func (e *NoSliceError) Error() string {
	why := "all slices may be in use by other nodes; free some, widen the range or make node_slice_size longer"
	switch {
	case len(e.Outside) > 0:
		why = fmt.Sprintf("it has %s, where the range has no usable address; wait for the controller, or correct range and exclude", e.Outside)
	case e.Nobody:
		why = "no node has one; is the controller running, and does it see this network?"
	}
	return fmt.Sprintf("node %s has no slice of range %s (slice pool %s): %s", e.Node, e.List.Range, e.List, why)
}

func (e *NoSliceError) Unwrap() error { return ErrNoSlice }

// ClosedError says that a pool is closed: its slice is being taken away from its node.
type ClosedError struct{ Pool PoolID }

func (e *ClosedError) Error() string {
	return fmt.Sprintf("slice %s of node %s was taken away (its pool is closed); try again once the node has another",
		e.Pool.Range, e.Pool.Node)
}

func (e *ClosedError) Unwrap() error { return ErrNoSlice }
