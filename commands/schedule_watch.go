package commands

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long after a change the files are looked at: one change comes as
// several events, and a file may be empty in between.
const settleTime = 100 * time.Millisecond

// directoryWatch calls look when something in a directory may have changed: a file
// written, renamed or removed, the directory itself made, removed or replaced. It
// watches the directory and not the file because a mounted ConfigMap changes by
// another target of the symbolic link `..data` in it, which no watch of the file
// would see.
type directoryWatch struct {
	directory string
	poll      time.Duration // look this often without an event, too
	log       *slog.Logger
	look      func() // called from one goroutine; once at the start
}

// run returns when the context ends.
func (w directoryWatch) run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	follow := func() {}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("changes are noticed late: the kernel does not report them", "directory", w.directory, "every", w.poll, "error", err)
	} else {
		defer notify.Close()
		events, errs = notify.Events, notify.Errors
		follow = func() { w.follow(notify) }
	}
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	settled := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if w.concerns(e.Name) && settled == nil {
				settled = time.After(settleTime)
			}
			continue
		case err := <-errs: // events were lost
			w.log.Debug("changes of files were not reported", "directory", w.directory, "error", err)
			if settled == nil {
				settled = time.After(settleTime)
			}
			continue
		case <-settled:
		case <-poll.C:
		}
		settled = nil
		follow() // first: what changes after the look is reported
		w.look()
	}
}

// chain is the directory and all above it, from the root.
func (w directoryWatch) chain() []string {
	var chain []string
	for d := filepath.Clean(w.directory); ; d = filepath.Dir(d) {
		chain = append(chain, d)
		if d == filepath.Dir(d) {
			break
		}
	}
	slices.Reverse(chain)
	return chain
}

// concerns reports whether a path is in the directory, or one of those that lead
// to it.
func (w directoryWatch) concerns(path string) bool {
	path = filepath.Clean(path)
	return filepath.Dir(path) == filepath.Clean(w.directory) || slices.Contains(w.chain(), path)
}

// follow watches the directory and those above it as far as they exist, so that it
// is noticed when a missing one is made. One that is watched already is no error.
func (w directoryWatch) follow(notify *fsnotify.Watcher) {
	for _, d := range w.chain() {
		err := notify.Add(d)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			w.log.Debug("changes of a directory are noticed late", "directory", d, "every", w.poll, "error", err)
		}
	}
}
