// Package kube keeps records in Kubernetes custom resources and talks to the API
// server.
//
// # Objects
//
// An IPPool holds the records of one range: a map from the offset of an address
// to its holder. An OverlappingRangeIPReservation claims one address in a whole
// address space; its name is the lock. Both are shared with older
// implementations, whose objects stay readable and whose fields keep their
// meaning; ours are optional additions, which older resource definitions prune.
//
// # Writes
//
// Pool entries change by JSON patches (RFC 6902) that test the fields of the
// entry they replace, never the object's resource version, so that writers of
// different entries do not collide. A reservation is created before its entry and
// deleted after it, with its UID and resource version as preconditions. There is
// no lease, and no lock that anything waits for: where a pool is so crowded that
// writes hinder each other, nodes go one after the other (see Store.Turn), but what
// they write is as safe without, and goes on without.
//
// # Start-up cost
//
// Every package linked is paid at each start of a pod. Requests are plain HTTP
// over client-go's transport with small types of our own: the typed clientsets
// would bring in every API group.
package kube
