// Package ipam is the domain of Whereabouts: which addresses a network
// configuration names, which of them is next, who holds what, and how an
// address is taken and given back. It knows no Kubernetes and does no I/O of its
// own: what it needs from outside (a store, files, the clock, randomness) is
// passed in.
//
// # Invariants
//
//  1. An address is given out only after its record is durably written by an
//     atomic create or compare-and-swap. There is no lease, and no "check, then
//     write".
//  2. One owner, one identity: container id and interface on the runtime's
//     side, namespace/name and UID on Kubernetes' side. Whatever frees an
//     address names the owner it frees, never just the address or just the pod.
//  3. A failed operation leaves nothing behind; an answer that got lost is read
//     back; every operation may be repeated.
//  4. Two records of one fact have one order: the reservation before the pool
//     entry when taking, the pool entry before the reservation when freeing.
//  5. Doubt keeps the address: when it is unclear whether an owner lives,
//     nothing is freed.
//  6. The cost of one ADD does not grow with the number of nodes, networks,
//     pods or excluded addresses.
//
// # Reading order
//
// Config (config.go) is what the operator wrote, Range (range.go) what it means
// in addresses, Record and Owner (record.go) who holds one, Store (store.go)
// where that is written down, and Allocator (allocate.go, release.go) the policy
// on top of a Store.
package ipam
