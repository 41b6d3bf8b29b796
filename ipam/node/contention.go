package node

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Contention remembers for a moment in which pools this node met writers of other
// nodes:
//
//	<run directory>/contended/<hash of the pool>    what a slow write took, in nanoseconds
type Contention struct {
	directory string
}

// contentionAge is how long a burst of pods on many nodes is taken to go on.
const contentionAge = 5 * time.Second

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

const (
	// slowWrite is far above what a write takes that meets no others.
	slowWrite = 400 * time.Millisecond

	// maxPause is below what a DEL takes for a datastore out of reach.
	maxPause = 1500 * time.Millisecond
)

// Wrote remembers how long a write took, if it was slow: others were met.
func (c *Contention) Wrote(id ipam.PoolID, took time.Duration) {
	if took >= slowWrite {
		_ = replace(c.path(id), strconv.AppendInt(nil, int64(took), 10), false)
	}
}

// Pause is how long to hold back before a write: at random up to some times what the
// last one took, if that was slow, so that fewer of the nodes write at once.
func (c *Contention) Pause(id ipam.PoolID) time.Duration {
	data, err := os.ReadFile(c.path(id))
	if err != nil || !c.Met(id) {
		return 0
	}
	nanoseconds, err := strconv.ParseInt(string(data), 10, 64)
	if took := time.Duration(nanoseconds); err == nil && took >= slowWrite {
		return rand.N(min(4*took, maxPause))
	}
	return 0
}

func (c *Contention) path(id ipam.PoolID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return filepath.Join(c.directory, hex.EncodeToString(sum[:8]))
}
