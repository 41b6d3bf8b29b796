// Package slice cuts ranges into slices, one for each node, so that nodes do not
// compete for addresses. It is pure: it decides, and whoever calls it reads and
// writes.
//
// Cut says which slices a range has, Networks which definitions are to be cut, and
// Assign which node gets which slice.
//
// # How a slice changes hands
//
// Who may hand out the addresses of a slice is written in the status of the slice
// pool, and what a node has handed out in the node's own pool object for the slice.
// These are two objects, and no write changes both. A plugin that has read the
// status may carry out its ADD much later, so a slice must not be given to another
// node before nothing can be written to the former node's pool any more. That is
// what the mark in the pool object is for: the plugin's write tests that there is
// none. Seen from the pool of one node for one slice:
//
//	           status says      plugin   what comes next
//	open       the node's       writes   Close, when the node shall give it up and holds nothing
//	Closing    the node's       refused  the status is changed: the slice is free, or another node's
//	Closing    not the node's   refused  Seal
//	Closed     not the node's   refused  the slice may be given to this node again
//	Closed     the node's       refused  Open; or Close, when the node shall give it up after all
//
// A pool object that does not exist is open and empty: Close creates it.
//
// Close, Seal and Open are compare-and-swaps of the whole pool object, and Close
// always writes, even to a pool that is Closed. Together with the rule that a pool
// which is Closing is never opened again before its slice was somebody else's or
// nobody's, that makes several controllers safe: one that is late with an Open it
// decided on long ago fails, since every way to take the slice from the node leads
// through a Close.
//
// # A round of the controller
//
//  1. Read the status and remember its resource version.
//  2. Read the pools of the network, after the status.
//  3. Call Assign. If it asks to look at pools, read those and call it again.
//  4. If the allocations differ from the status, write the status with the resource
//     version of step 1. If they do not, and there are pools to open, read the status
//     again and go on only if its resource version is still the same. On a conflict,
//     start over.
//  5. Close, seal and open pools, each with the resource version of step 2, and each
//     only if a pool to close still holds nothing, not even entries that cannot be
//     read. One that fails is for the next round.
//  6. Start over until there is nothing left to do.
//
// To take a slice from a node, its pool has to be read after the status, or the mark
// may be that of an earlier time; to open a pool, the status has to be read after it.
// Step 4 sees to both.
//
// # Pools that are not needed any more
//
// A pool that is marked, holds nothing and is not listed as its node's is deleted once it
// has been so, unchanged, for longer than any plugin can carry on with a status that it
// has read. Nobody who has read that the slice is the node's is on his way any more then,
// and without an object the pool is as it was before it ever had the slice. The deletion
// names the version of the object: to give the slice to the node again means to open the
// pool, and that is another version.
//
// # What cannot be known
//
// When the status gets lost, it is made again from the pool objects. A node that has
// a slice but no pool object yet is forgotten then; a plugin of it that has read the
// lost status and still runs could meet the next node of the slice. Plugins that know
// no mark write to closed pools; let the controller work once all nodes have the new
// one.
package slice
