package commands

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// Error codes of our own; those below 100 are the CNI spec's (1.1, section 5).
const (
	codeNotRecorded = 100 // CHECK: an address in use is not recorded for its user
	codeCorrupt     = 101 // a stored object cannot be understood
	codeDenied      = 102 // the datastore refuses us: rights, credentials, definitions
	codeInternal    = 199 // a fault of ours
)

// cniError maps an error to a CNI error code. This is the only place that does.
func cniError(err error) *types.Error {
	var already *types.Error
	if errors.As(err, &already) {
		return already
	}
	code := uint(codeInternal)
	for _, c := range []struct {
		is   error
		code uint
	}{
		{ipam.ErrDecode, types.ErrDecodingFailure},
		{ipam.ErrArgs, types.ErrInvalidEnvironmentVariables},
		{ipam.ErrInvalid, types.ErrInvalidNetworkConfig},
		{ipam.ErrExhausted, types.ErrTryAgainLater},
		{ipam.ErrNoSlice, types.ErrTryAgainLater},
		{ipam.ErrConflict, types.ErrTryAgainLater},
		{ipam.ErrUnavailable, types.ErrTryAgainLater},
		{ipam.ErrNotRecorded, codeNotRecorded},
		{ipam.ErrCorrupt, codeCorrupt},
		{ipam.ErrDenied, codeDenied},
	} {
		if errors.Is(err, c.is) {
			code = c.code
			break
		}
	}
	return types.NewError(code, err.Error(), "")
}

// describe adds where to look.
func describe(e *types.Error, err error, cfg *ipam.Config) *types.Error {
	if e.Details != "" || cfg.Datastore != ipam.DatastoreKubernetes {
		return e
	}
	var exhausted *ipam.ExhaustedError
	var noSlice *ipam.NoSliceError
	switch {
	case errors.As(err, &exhausted):
		e.Details = fmt.Sprintf("ippool %s has the holders", kube.PoolName(exhausted.Pool))
	case errors.As(err, &noSlice):
		e.Details = fmt.Sprintf("nodeslicepool %s has the slices and their nodes", kube.SlicePoolName(noSlice.List))
	case errors.Is(err, ipam.ErrDenied):
		e.Details = "are the role, its binding and the resource definitions of this version applied, and are the node's credentials fresh?"
	}
	return e
}

func isUnavailable(err error) bool { return errors.Is(err, ipam.ErrUnavailable) }
