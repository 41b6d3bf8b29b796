package installer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Removed is what became of an installation.
type Removed struct {
	Gone []string // paths that were removed
	Left []string // paths that stay, since somebody else put them there, or something into them
}

// Remove takes away what an installer put on a node, of whatever version. What has
// our names and is not ours stays. The links go first: no call of the plugin begins
// then that would miss the rest.
func Remove(s Settings, now time.Time) (Removed, error) {
	r := remover{settings: s, now: now}
	r.binaries()
	r.configuration()
	return r.removed, errors.Join(r.errs...)
}

type remover struct {
	settings Settings
	files    files
	now      time.Time
	removed  Removed
	errs     []error
}

// fail notes an error; that something is not there is none.
func (r *remover) fail(variable string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		r.errs = append(r.errs, explain(variable, err))
	}
}

func (r *remover) remove(variable, path string) {
	gone, err := r.files.remove(path)
	if gone {
		r.removed.Gone = append(r.removed.Gone, path)
	}
	r.fail(variable, err)
}

func (r *remover) leave(path string) { r.removed.Left = append(r.removed.Left, path) }

func (r *remover) binaries() {
	directory := r.settings.BinDir
	for _, name := range linkNames() {
		link := filepath.Join(directory, name)
		target, err := os.Readlink(link)
		switch {
		case err == nil && ourTarget(target):
			r.remove(binDirVariable, link)
		case !errors.Is(err, fs.ErrNotExist):
			r.leave(link)
		}
	}
	names, err := versionsIn(directory)
	r.fail(binDirVariable, err)
	for _, name := range names {
		r.remove(binDirVariable, filepath.Join(directory, name))
	}
	r.fail(binDirVariable, r.files.sweep(directory, r.now))
}

func (r *remover) configuration() {
	directory := r.settings.Directory()
	r.fail(confDirVariable, r.flatFile())
	r.remove(confDirVariable, filepath.Join(directory, nodeNameName))
	r.remove(confDirVariable, r.settings.KubeconfigPath())
	r.fail(confDirVariable, r.files.sweep(directory, r.now))
	if entries, err := os.ReadDir(directory); err == nil && len(entries) > 0 {
		r.leave(directory)
	} else if err == nil {
		r.remove(confDirVariable, directory)
	}
}

// flatFile takes our keys out of the file, and the file away if nothing is left.
func (r *remover) flatFile() error {
	path := r.settings.flatFilePath()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	found, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rest, err := r.settings.withoutOurs(found)
	switch {
	case err != nil: // it does not parse, so we did not write it
		r.leave(path)
		return nil
	case rest == nil:
		r.remove(confDirVariable, path)
		return nil
	}
	r.leave(path)
	_, err = r.files.keep(path, rest, info.Mode())
	return err
}
