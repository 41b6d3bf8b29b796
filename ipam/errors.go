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
	Range     Range // the configured range
	Used      int   // records in the pool
	Elsewhere int   // addresses known to be held through other ranges
}

func (e *ExhaustedError) Error() string {
	elsewhere := ""
	if e.Elsewhere > 0 {
		elsewhere = fmt.Sprintf(", %d held through other ranges", e.Elsewhere)
	}
	return fmt.Sprintf("no free address in range %s (pool %s): %d in use%s, %s of %s usable addresses excluded; "+
		"free some or widen the range", e.Range, e.Pool, e.Used, elsewhere, e.Range.Excluded(), e.Range.Size())
}

func (e *ExhaustedError) Unwrap() error { return ErrExhausted }
