package node

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Contention remembers for a moment in which pools this node met writers of other
// nodes:
//
//	<run directory>/contended/<hash of the pool>          another one had the address
//	<run directory>/contended/<hash of the pool>-crowd    many write at once, and slowly
//
// The files are empty; their time is when it was last so.
type Contention struct {
	directory string
}

const (
	// contentionAge is how long a burst of pods on many nodes is taken to go on.
	contentionAge = 5 * time.Second

	// crowdAge is how long a crowd is taken to last; a node may come less often
	// then.
	crowdAge = 30 * time.Second

	// tooMany is how many writers at once are too many. With two or three, the next
	// is ready when one has come through; more make all of them slower.
	tooMany = 3.0

	// slow is what a write of a pool takes that is worth a wait for others. Small
	// pools are faster without.
	slow = 400 * time.Millisecond

	// verySlow is what a write takes that has met others, or a server in trouble,
	// when nothing tells how many there are.
	verySlow = time.Second
)

// NewContention remembers below the run directory.
func NewContention(runDirectory string) *Contention {
	return &Contention{filepath.Join(runDirectory, "contended")}
}

// Met reports whether others were met in the pool lately.
func (c *Contention) Met(id ipam.PoolID) bool { return fresh(c.path(id), contentionAge) }

// Note remembers that others were met. It is only a hint: what fails here does no
// harm.
func (c *Contention) Note(id ipam.PoolID) {
	if !c.Met(id) {
		_ = replace(c.path(id), nil, false)
	}
}

// IsCrowded reports whether so many wrote to the pool lately that it is better to go
// one after the other.
func (c *Contention) IsCrowded(id ipam.PoolID) bool { return fresh(c.crowdPath(id), crowdAge) }

// Crowded remembers that it is so.
func (c *Contention) Crowded(id ipam.PoolID) { _ = replace(c.crowdPath(id), nil, false) }

// Wrote learns from a write how many others there are. By Little's law the writers at
// once are the rate at which writes come through, times what one takes.
func (c *Contention) Wrote(id ipam.PoolID, w ipam.Write) {
	if crowded(w) {
		c.Crowded(id)
	}
}

func crowded(w ipam.Write) bool {
	if w.Before == 0 || w.Since <= 0 {
		return w.Took > verySlow
	}
	rate := float64(w.Generation-w.Before) / w.Since.Seconds()
	return w.Took > slow && rate*w.Took.Seconds() > tooMany
}

func fresh(path string, age time.Duration) bool {
	info, err := os.Stat(path)
	return err == nil && time.Since(info.ModTime()) < age
}

func (c *Contention) path(id ipam.PoolID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return filepath.Join(c.directory, hex.EncodeToString(sum[:8]))
}

func (c *Contention) crowdPath(id ipam.PoolID) string { return c.path(id) + "-crowd" }
