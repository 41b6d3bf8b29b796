package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// openTry is how long one try to open the file waits for programs that hold it
// without holding the lock file, as the bbolt tool does.
const openTry = 100 * time.Millisecond

// errUnchanged ends a transaction that has nothing to write, without the two
// syncs to disk that a commit costs.
var errUnchanged = errors.New("nothing to write")

// view runs fn on what is stored. It does not run fn when nothing is.
func (s *Store) view(ctx context.Context, fn func(*bbolt.Tx) error) error {
	if ctx.Err() != nil {
		return s.gaveUp(ctx)
	}
	if exists, err := s.exists(); err != nil || !exists {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.use(ctx, s.path, &bbolt.Options{ReadOnly: true}, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			if err := s.checkLayout(tx); err != nil {
				return err
			}
			return fn(tx)
		})
	})
}

// update runs fn in a transaction that is on the disk when update returns nil,
// and is undone when fn reports no change or an error. A file that does not
// exist is made if create is set; otherwise fn is not run.
func (s *Store) update(ctx context.Context, create bool, fn func(*bbolt.Tx) (changed bool, err error)) error {
	if ctx.Err() != nil {
		return s.gaveUp(ctx)
	}
	exists, err := s.exists()
	if err != nil || !exists && !create {
		return err
	}
	if create {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
			return s.explain(err)
		}
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if create {
		if err := s.create(ctx); err != nil {
			return err
		}
	}
	return s.use(ctx, s.path, &bbolt.Options{FreelistType: bbolt.FreelistMapType}, func(db *bbolt.DB) error {
		return s.transact(db, fn)
	})
}

func (s *Store) transact(db *bbolt.DB, fn func(*bbolt.Tx) (changed bool, err error)) error {
	err := db.Update(func(tx *bbolt.Tx) error {
		if err := s.checkLayout(tx); err != nil {
			return err
		}
		changed, err := fn(tx)
		if err == nil && !changed {
			return errUnchanged
		}
		return err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// exists reports whether there is a file. An empty one is none that this
// package made: it is never taken for an empty store.
func (s *Store) exists() (bool, error) {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, s.explain(err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%w: local_path %s is not a regular file: name another path", ipam.ErrDenied, s.path)
	case info.Size() == 0:
		return false, s.corrupt(errors.New("the file is empty"))
	}
	return true, nil
}

// create makes the file unless it exists. It appears under its name only when
// it is complete and on the disk, so that nobody who dies here leaves a broken
// one. The lock is held.
func (s *Store) create(ctx context.Context) error {
	if exists, err := s.exists(); err != nil || exists {
		return err
	}
	unfinished := s.path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.explain(err)
	}
	err := s.use(ctx, unfinished, &bbolt.Options{}, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(keyMeta)
			if err != nil {
				return err
			}
			return b.Put(keyLayout, []byte(layoutVersion))
		})
	})
	if err != nil {
		return err
	}
	if err := os.Rename(unfinished, s.path); err != nil {
		return s.explain(err)
	}
	return s.explain(syncDirectory(filepath.Dir(s.path)))
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// use opens a database, runs fn on it and closes it. bbolt panics on pages that
// contradict each other, and reading beyond the end of a file that was cut is a
// fault: both become errors here.
func (s *Store) use(ctx context.Context, path string, opts *bbolt.Options, fn func(*bbolt.DB) error) (err error) {
	var file *os.File
	opts.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		if path == s.path {
			flag &^= os.O_CREATE // only create makes it
		}
		var err error
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			abandon(file)
			err = s.corrupt(fmt.Errorf("%v", p))
		}
	}()
	db, err := open(ctx, path, opts)
	if err != nil {
		return s.explain(err)
	}
	return s.explain(errors.Join(fn(db), db.Close()))
}

// abandon closes the file of a database in which bbolt panicked. DB.Close could
// wait for ever for locks that the panic left behind. The memory map stays until
// the process ends and would keep the lock on the file with it, hence the unlock.
func abandon(file *os.File) {
	if file == nil {
		return
	}
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}

// open is bbolt.Open that ends with the context.
func open(ctx context.Context, path string, opts *bbolt.Options) (*bbolt.DB, error) {
	opts.Timeout = openTry
	for {
		db, err := bbolt.Open(path, 0o600, opts)
		if err == nil || !errors.Is(err, bolterrors.ErrTimeout) {
			return db, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: another program has the file open: %w", err, context.Cause(ctx))
		}
	}
}

func (s *Store) checkLayout(tx *bbolt.Tx) error {
	b := tx.Bucket(keyMeta)
	if b == nil {
		return s.corrupt(errors.New("it is a bbolt database, but not one of Whereabouts"))
	}
	if v := b.Get(keyLayout); string(v) != layoutVersion {
		return fmt.Errorf("%w: local_path %s has layout %q, this version knows %q: "+
			"use the version of Whereabouts that wrote it, or name another path", ipam.ErrCorrupt, s.path, v, layoutVersion)
	}
	return nil
}

// writable answers why a record could not be written, as far as rights tell.
func (s *Store) writable() error {
	const writeAccess = 2 // W_OK of access(2)
	path := s.path
	for {
		err := syscall.Access(path, writeAccess)
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return s.explain(err)
		}
		path = filepath.Dir(path)
	}
}
