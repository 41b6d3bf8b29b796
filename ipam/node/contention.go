package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Contention remembers for a moment in which pools this node met writers of other
// nodes, and how often it may come so that they do not hinder each other:
//
//	<run directory>/contended/<hash of the pool>    empty, or "<pause> <generation>"
//
// The pause is in nanoseconds; the generation is the pool object's after this node's
// last write, which was at the time of the file.
//
// Nobody assigns turns. Each node sees from the generation how many writes of all
// nodes came through while its own was on its way: those are the writers at once. If
// they are more than a few, it comes less often, and if it is alone, more often
// again.
type Contention struct {
	directory string
}

const (
	// contentionAge is how long a burst of pods on many nodes is taken to go on.
	contentionAge = 5 * time.Second

	// crowded is how many writers at once are too many. With two or three, the
	// next is ready when one has come through; more make all of them slower.
	crowded = 3.0

	// maxPause bounds the pause between two writes of a node.
	maxPause = 6 * time.Second

	// minPause is not worth the wait.
	minPause = 20 * time.Millisecond
)

// NewContention remembers below the run directory.
func NewContention(runDirectory string) *Contention {
	return &Contention{filepath.Join(runDirectory, "contended")}
}

// Met reports whether others were met in the pool lately.
func (c *Contention) Met(id ipam.PoolID) bool {
	info, err := os.Stat(c.path(id))
	return err == nil && time.Since(info.ModTime()) < contentionAge
}

// Note remembers that others were met. It is only a hint: what fails here does no
// harm.
func (c *Contention) Note(id ipam.PoolID) {
	if !c.Met(id) {
		_ = replace(c.path(id), nil, false)
	}
}

// Wrote learns from a write how many others there are.
func (c *Contention) Wrote(id ipam.PoolID, w ipam.Write) {
	last := c.load(id)
	pause := nextPause(last, w)
	if pause == 0 && last.pause == 0 {
		return
	}
	_ = replace(c.path(id), fmt.Appendf(nil, "%d %d", pause, w.Generation), false)
}

// Pause is how long to hold back before the next write of a pool.
func (c *Contention) Pause(id ipam.PoolID) time.Duration {
	last := c.load(id)
	if last.pause < minPause {
		return 0
	}
	return max(0, last.pause/2+rand.N(last.pause)-time.Since(last.at))
}

// turn is what is remembered of this node's last write of a pool.
type turn struct {
	pause      time.Duration
	generation int64
	at         time.Time
}

// load answers the zero turn when nothing is remembered, or nothing that still counts.
func (c *Contention) load(id ipam.PoolID) turn {
	var t turn
	data, err := os.ReadFile(c.path(id))
	if err != nil {
		return turn{}
	}
	if _, err := fmt.Sscan(string(data), &t.pause, &t.generation); err != nil || t.pause < 0 || t.pause > maxPause {
		return turn{}
	}
	info, err := os.Stat(c.path(id))
	if err != nil || time.Since(info.ModTime()) > max(contentionAge, 3*t.pause) {
		return turn{}
	}
	t.at = info.ModTime()
	return t
}

// nextPause is the pause after a write.
//
// By Little's law the writers at once are the rate at which writes come through,
// times what one takes. With the pause all but a few of them wait outside the server;
// there writes come through faster when fewer meet, twice as fast when many did.
func nextPause(last turn, w ipam.Write) time.Duration {
	before, since := w.Before, w.Since
	if before == 0 && last.generation != 0 {
		before, since = last.generation, time.Since(last.at)
	}
	if before == 0 || since <= 0 || w.Generation <= before {
		return last.pause
	}
	rate := float64(w.Generation-before) / since.Seconds()
	writers := rate * w.Took.Seconds()
	switch {
	case writers > crowded:
		more := time.Duration((writers - crowded) / (2 * rate) * float64(time.Second))
		return min(last.pause+more, maxPause)
	case writers < crowded/2:
		if last.pause < minPause {
			return 0
		}
		return last.pause * 3 / 4
	default:
		return last.pause
	}
}

func (c *Contention) path(id ipam.PoolID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return filepath.Join(c.directory, hex.EncodeToString(sum[:8]))
}
