package local

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// explain turns an error of the file system or of bbolt into one of package
// ipam with path and remedy. It leaves nil and what it made itself alone.
func (s *Store) explain(err error) error {
	var errno syscall.Errno
	switch {
	case err == nil, errors.Is(err, ipam.ErrCorrupt), errors.Is(err, ipam.ErrDenied), errors.Is(err, ipam.ErrUnavailable):
		return err
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return s.failure(ipam.ErrDenied, err, "make it writable for the user this runs as")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		return s.failure(ipam.ErrDenied, err, "name another path")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return s.failure(ipam.ErrUnavailable, err, "free some space on its file system")
	case errors.As(err, &errno):
		return s.failure(ipam.ErrUnavailable, err, "see to its file system")
	case errors.Is(err, bolterrors.ErrTimeout):
		return s.failure(ipam.ErrUnavailable, err, "end the program that holds it")
	}
	return s.corrupt(err)
}

// corrupt is the error about a file whose content makes no sense.
func (s *Store) corrupt(err error) error {
	return s.failure(ipam.ErrCorrupt, err, "put back a good copy, or, when no container of this host is left that "+
		"has an address from it, remove the file and start afresh")
}

func (s *Store) failure(kind, err error, remedy string) error {
	return fmt.Errorf("%w: local_path %s: %w; %s", kind, s.path, err, remedy)
}
