package installer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// temporaryPrefix begins the names of files that are not finished.
const temporaryPrefix = ".whereabouts.new-"

// files changes files so that each name has its old content or its new one, whole,
// whatever happens.
type files struct {
	// step, if set, is called before each change on disk. A test ends the process
	// there.
	step func()
}

func (f files) before() {
	if f.step != nil {
		f.step()
	}
}

// write replaces a file by what fill writes.
func (f files) write(path string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	directory := filepath.Dir(path)
	f.before()
	temporary, err := os.CreateTemp(directory, temporaryPrefix)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, temporary.Close())
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	// Held while it is being written: sweep removes those that nobody holds.
	_ = syscall.Flock(int(temporary.Fd()), syscall.LOCK_EX)
	f.before()
	if err := fill(temporary); err != nil {
		return err
	}
	f.before()
	if err := temporary.Chmod(mode); err != nil {
		return err
	}
	if err := temporary.Sync(); err != nil {
		return err
	}
	f.before()
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	f.before()
	return syncDirectory(directory)
}

// keep makes sure of a file's content and mode, and reports whether it had to be
// written.
func (f files) keep(path string, content []byte, mode fs.FileMode) (bool, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode() == mode {
		if found, err := os.ReadFile(path); err == nil && bytes.Equal(found, content) {
			return false, nil
		}
	}
	err := f.write(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	return err == nil, err
}

// link has a symbolic link take the place of whatever file or link has that name.
func (f files) link(target, path string) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory and in the way; move it elsewhere", path)
	}
	directory := filepath.Dir(path)
	temporary := filepath.Join(directory, fmt.Sprintf("%s%x", temporaryPrefix, rand.Uint64()))
	f.before()
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	f.before()
	if err := os.Rename(temporary, path); err != nil {
		_ = os.Remove(temporary)
		return err
	}
	f.before()
	return syncDirectory(directory)
}

// remove reports whether there was something to remove.
func (f files) remove(path string) (bool, error) {
	f.before()
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// linkAge is longer than it takes to rename a link once it is made.
const linkAge = time.Minute

// sweep removes unfinished files that killed processes left behind.
func (f files) sweep(directory string, now time.Time) error {
	entries, err := os.ReadDir(directory)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporaryPrefix) && abandoned(filepath.Join(directory, e.Name()), now) {
			_, removeErr := f.remove(filepath.Join(directory, e.Name()))
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

func abandoned(path string, now time.Time) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if !info.Mode().IsRegular() {
		return now.Sub(info.ModTime()) > linkAge
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// directory makes a directory in which those may look for files who may read files of
// this mode. One that is there is left as it is.
func (f files) directory(path string, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is no directory; move it elsewhere", path)
		}
		return nil
	}
	f.before()
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(path, 0o700|mode|(mode&0o044)>>2) // whatever the umask is
}

// syncDirectory makes a renamed file survive a power cut under its new name.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// explain adds to an error of the file system what it is about and what to do.
func explain(variable string, err error) error {
	if err == nil {
		return nil
	}
	remedy := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "; free some space on that file system: until then stays in force what was there"
	case errors.Is(err, syscall.EROFS):
		remedy = "; mount the host's directory there so that it can be written"
	case errors.Is(err, fs.ErrPermission):
		remedy = "; run as root, and see whether a security module of the host forbids it"
	case errors.Is(err, fs.ErrNotExist):
		remedy = "; mount the host's directory there, or correct " + variable
	}
	return fmt.Errorf("%s: %w%s", variable, err, remedy)
}
