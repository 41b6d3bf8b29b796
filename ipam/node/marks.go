package node

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Marks remember for a short while which containers have been released: an ADD
// that began before the DEL of its container, and comes late, must not take an
// address any more. A container that is started again afterwards may.
//
//	<run directory>/released/<container id>@<interface>    the time, in nanoseconds
type Marks struct {
	directory string
}

// markAge is longer than any ADD lasts.
const markAge = 5 * time.Minute

// NewMarks keeps marks below the run directory.
func NewMarks(runDirectory string) *Marks { return &Marks{filepath.Join(runDirectory, "released")} }

// Set marks a container's interface as released at a time. Marks that have served
// their time are cleared away, now and then.
func (m *Marks) Set(owner ipam.Owner, now time.Time) error {
	if now.UnixNano()%16 == 0 {
		m.sweep(now)
	}
	return replace(m.path(owner), strconv.AppendInt(nil, now.UnixNano(), 10), false)
}

// After reports whether the container's interface has been released since a time.
func (m *Marks) After(owner ipam.Owner, since time.Time) bool {
	data, err := os.ReadFile(m.path(owner))
	if err != nil {
		return false
	}
	nanoseconds, err := strconv.ParseInt(string(data), 10, 64)
	return err == nil && nanoseconds > since.UnixNano()
}

func (m *Marks) sweep(now time.Time) {
	files, _ := os.ReadDir(m.directory)
	for _, file := range files {
		if info, err := file.Info(); err == nil && now.Sub(info.ModTime()) > markAge {
			_ = os.Remove(filepath.Join(m.directory, file.Name()))
		}
	}
}

func (m *Marks) path(owner ipam.Owner) string {
	return filepath.Join(m.directory, containerFile(owner))
}
