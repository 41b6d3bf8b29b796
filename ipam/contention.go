package ipam

import "time"

// Contention is what a node remembers of writers of other nodes that it met lately
// in a pool. Without one, each call finds out for itself.
type Contention interface {
	Met(PoolID) bool
	Note(PoolID)
}

// Write is a write of a pool that came through, in a store where writers of other
// nodes hinder each other.
type Write struct {
	Took       time.Duration
	Generation int64 // of the pool now: it counts the writes of all

	// What this process read of the pool earlier: Before is 0 if nothing.
	Before int64         // the generation then
	Since  time.Duration // from then to the end of the write
}

// window is how many of the lowest free addresses of a pool to choose from: one, as
// long as no other writer is met.
func (v *view) window(id PoolID) int {
	n := v.collisions[id]
	if n < metLately && v.metLately(id) {
		n = metLately
	}
	return min(1<<(2*min(n, 10)), maxWindow)
}

// metLately asks the node's memory once for each pool.
func (v *view) metLately(id PoolID) bool {
	met, asked := v.met[id]
	if !asked && v.contention != nil {
		met = v.contention.Met(id)
		v.met[id] = met
	}
	return met
}

const (
	// maxWindow bounds how far past the lowest free address a writer looks
	// when it meets others.
	maxWindow = 32

	// metLately is how many collisions it counts for that others were met by an
	// earlier call.
	metLately = 2

	// hastyCollisions is how many collisions in a row go by before a pool is
	// read again, and one holder is looked at.
	hastyCollisions = 4
)

// hasty reports whether to go on after a collision without asking who was first:
// others are writing to the pool, and there are more addresses.
func (v *view) hasty(id PoolID) bool {
	first := v.collisions[id] == 0 && v.metLately(id)
	return v.unknown[id] == 0 && (first || v.collisions[id]%hastyCollisions != 0)
}
