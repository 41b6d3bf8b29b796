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
//	<run directory>/contended/<hash of the pool>    empty; its time tells
type Contention struct {
	directory string
}

// contentionAge is how long a burst of pods on many nodes is taken to go on.
const contentionAge = 2 * time.Second

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
	_ = replace(c.path(id), nil, false)
}

func (c *Contention) path(id ipam.PoolID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return filepath.Join(c.directory, hex.EncodeToString(sum[:8]))
}
