package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Backlog is how much a release queue has in it.
type Backlog struct {
	Length  int       // releases of all stores
	Oldest  time.Time // when the oldest was queued last; zero if there is none
	Corrupt int       // files that could not be understood and were set aside
}

// Backlog looks at the queue without reading the files in it. A queue that nobody has
// used yet is empty.
func (q *Releases) Backlog() (Backlog, error) {
	entries, err := os.ReadDir(q.directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Backlog{}, fmt.Errorf("release queue: %w", err)
	}
	var b Backlog
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, corruptSuffix):
			b.Corrupt++
		default:
			info, err := e.Info()
			if err != nil {
				continue // carried out meanwhile
			}
			b.Length++
			if queued := info.ModTime(); b.Oldest.IsZero() || queued.Before(b.Oldest) {
				b.Oldest = queued
			}
		}
	}
	return b, nil
}
