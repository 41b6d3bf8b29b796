package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroups are a node's control groups: a directory of its name in each hierarchy
// (version 1), or in the only one (version 2).
type cgroups struct {
	path string // from a hierarchy's root, with a slash before
}

// unified reports whether the machine has control groups of version 2 alone.
func unified() bool {
	var fs unix.Statfs_t
	return unix.Statfs(cgroupMount, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// roots are the hierarchies' directories.
func (c cgroups) roots() []string {
	if unified() {
		return []string{cgroupMount}
	}
	var roots []string
	entries, _ := os.ReadDir(cgroupMount) // none: make tells
	for _, entry := range entries {
		if entry.IsDir() { // links are second names
			roots = append(roots, filepath.Join(cgroupMount, entry.Name()))
		}
	}
	return roots
}

// make makes the groups, with all processors and all controllers.
func (c cgroups) make() error {
	roots := c.roots()
	if len(roots) == 0 {
		return errors.New("no control groups in " + cgroupMount)
	}
	for _, root := range roots {
		for _, directory := range c.ways(root) {
			if err := os.MkdirAll(directory, 0o755); err != nil {
				return err
			}
			if err := inherit(directory); err != nil {
				return err
			}
		}
	}
	return nil
}

// ways are the directories from below the root to the node's, outermost first.
func (c cgroups) ways(root string) (directories []string) {
	for directory := root + c.path; directory != root; directory = filepath.Dir(directory) {
		directories = append(directories, directory)
	}
	slices.Reverse(directories)
	return directories
}

// inherit hands on what a new group does not have by itself: in version 1 its
// processors and memory, in version 2 its parent's controllers.
func inherit(directory string) error {
	parent := filepath.Dir(directory)
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, os.ErrNotExist) || unified() {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, name), value, 0o644); err != nil {
			return err
		}
	}
	if !unified() {
		return nil
	}
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+name), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the groups when their processes have gone; it waits a little for
// that.
func (c cgroups) remove() {
	for _, root := range c.roots() {
		for range 50 {
			if removeGroup(root + c.path) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = os.Remove(filepath.Dir(root + c.path)) // the last node's
	}
}

// removeGroup removes a group and those below it, which go by rmdir alone.
func removeGroup(directory string) bool {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeGroup(filepath.Join(directory, entry.Name()))
		}
	}
	return os.Remove(directory) == nil
}
