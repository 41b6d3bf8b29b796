// Package reclaim finds addresses that nobody holds any more and frees them, and
// repairs half records: an entry without the reservation beside it, or a
// reservation without its entry.
//
// # Deciding
//
// Judge says whether a record is an orphan, RepairEntry and RepairReservation what
// becomes of half a record. They do no I/O and know no store; each is a list of
// rules of which the first that fits decides. Doubt keeps the address.
//
// # Acting
//
// A Reclaimer looks at a whole snapshot at a time. What is stored was read before
// the pods are asked for: a pod whose record is there was there before it. A first
// decision comes from memory, of what a watch knows. Just before anything is
// written the pod is asked for again, live, and every release names the exact
// record or the exact version of a reservation that it frees. Several may run at
// once, with the plugins of all nodes.
//
// Some decisions need two looks a grace time apart. Between them a Reclaimer
// remembers how it saw a record first.
package reclaim
