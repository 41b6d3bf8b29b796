package installer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// versionPrefix begins the names of installed binaries.
const versionPrefix = ".whereabouts-"

// linkNames are the names under which the binary is called on a node.
func linkNames() []string { return []string{"whereabouts", "ip-control"} }

// graceTime is how long a binary that is no longer called by its link stays: a
// runtime that has read the link just before still finds it. Those that run already
// need no file: one that is removed lives on until its last process ends.
const graceTime = time.Minute

// binary is the binary to install.
type binary struct {
	source  string // path
	version string

	sum  []byte      // of its content; nil until it is known
	seen fs.FileInfo // the installed file when its content was compared last
}

// name is that of the installed file; the sum is known.
func (b *binary) name() string {
	return versionPrefix + strings.Map(nameRune, b.version) + "-" + hex.EncodeToString(b.sum)[:12]
}

// nameRune makes a version fit for a file name.
func nameRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".+-_", r) {
		return r
	}
	return '_'
}

// sumOf is the SHA-256 of a file.
func sumOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return nil, err
	}
	return hash.Sum(nil), nil
}

// installBinary puts the binary in place and has the links lead to it. Once it has
// done so, a link to another version is another installer's, which was started
// later: it stays.
func (i *Installer) installBinary() error {
	if i.binary.sum == nil {
		sum, err := sumOf(i.binary.source)
		if err != nil {
			return fmt.Errorf("own binary: %w", err)
		}
		i.binary.sum = sum
	}
	directory := i.settings.BinDir
	for _, name := range linkNames() {
		if i.linked && i.leadsToVersion(filepath.Join(directory, name)) {
			continue
		}
		if err := i.copyBinary(); err != nil {
			return err
		}
		if err := i.point(filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	i.linked = true
	return explain(binDirVariable, i.removeOldVersions())
}

// leadsToVersion reports whether a link leads to a version that is there, and whole if
// it is ours.
func (i *Installer) leadsToVersion(link string) bool {
	target, err := os.Readlink(link)
	if err != nil || !ourTarget(target) {
		return false
	}
	if target == i.binary.name() {
		return i.copied()
	}
	info, err := os.Stat(link)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// ourTarget reports whether a link with this target is one that an installer made.
func ourTarget(target string) bool {
	return strings.HasPrefix(target, versionPrefix) && !strings.ContainsRune(target, '/')
}

const binaryMode fs.FileMode = 0o755

// copied reports whether the installed file is there and whole. Its content is only
// read if it may have changed since the last time.
func (i *Installer) copied() bool {
	path := filepath.Join(i.settings.BinDir, i.binary.name())
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != binaryMode {
		return false
	}
	if seen := i.binary.seen; seen != nil && os.SameFile(seen, info) && seen.ModTime().Equal(info.ModTime()) && seen.Size() == info.Size() {
		return true
	}
	sum, err := sumOf(path)
	if err != nil || !slices.Equal(sum, i.binary.sum) {
		return false
	}
	i.binary.seen = info
	return true
}

// copyBinary has no effect on calls of the plugin: nothing leads to the file yet.
func (i *Installer) copyBinary() error {
	if i.copied() {
		return nil
	}
	source, err := os.Open(i.binary.source)
	if err != nil {
		return fmt.Errorf("own binary: %w", err)
	}
	defer source.Close()
	path := filepath.Join(i.settings.BinDir, i.binary.name())
	err = i.files.write(path, binaryMode, func(w io.Writer) error {
		hash := sha256.New()
		_, err := io.Copy(io.MultiWriter(hash, w), source)
		if err == nil && !slices.Equal(hash.Sum(nil), i.binary.sum) {
			err = errors.New("own binary: its content has changed while it was copied; start again")
		}
		return err
	})
	if err != nil {
		return explain(binDirVariable, err)
	}
	i.changed(path)
	return nil
}

// point makes a link to the installed file.
func (i *Installer) point(link string) error {
	before, err := os.Readlink(link)
	if err == nil && before == i.binary.name() {
		return nil
	}
	if err := i.files.link(i.binary.name(), link); err != nil {
		return explain(binDirVariable, err)
	}
	i.changed(link)
	return nil
}

// removeOldVersions removes the installed files that no link has led to for some
// time, and unfinished ones.
func (i *Installer) removeOldVersions() error {
	directory, now := i.settings.BinDir, i.now()
	swept := i.files.sweep(directory, now)
	used := map[string]bool{i.binary.name(): true}
	for _, name := range linkNames() {
		link := filepath.Join(directory, name)
		info, err := os.Lstat(link)
		if err != nil || now.Sub(info.ModTime()) < graceTime {
			return swept
		}
		if target, err := os.Readlink(link); err == nil {
			used[target] = true
		}
	}
	names, err := versionsIn(directory)
	err = errors.Join(swept, err)
	for _, name := range names {
		path := filepath.Join(directory, name)
		info, statErr := os.Lstat(path)
		if used[name] || statErr != nil || now.Sub(info.ModTime()) < graceTime { // another installer may be about to link it
			continue
		}
		_, removeErr := i.files.remove(path)
		err = errors.Join(err, removeErr)
	}
	return err
}

// versionsIn lists the names of installed binaries.
func versionsIn(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	var names []string
	for _, e := range entries {
		if ourTarget(e.Name()) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
