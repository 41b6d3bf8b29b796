// Package mixed holds tests of clusters in which some nodes still run an older plugin:
// during an upgrade, and on the way back.
//
// # The older plugin
//
// It is simulated, as a process of its own, in the files old_*_test.go: what is known of
// its behaviour on the wire, the faults included. Each trait is a function of its own:
//
//	one lease in the cluster around each call                  old_lease_test.go
//	GET of the pool, which is made if there is none            readPool
//	an entry of its pod is adopted: its id alone is replaced   choose, entryPatch
//	GET of the reservation: 404 is free, another podref taken  reserved
//	a reservation with its podref is its own, whoever's it is  reserved
//	patch of the entry with a test of the resource version,
//	again after 422, for ten seconds                           untilWritten
//	any other failure of the patch passes for a success        untilWritten
//	POST of the reservation; after a failure the entry stays   add
//	DEL removes its entry, then whoever's reservation it is    del, unreserve
//
// TestTraits shows that the simulation has each of them. What the older plugin does
// beyond that (its log, its clean-up) is not simulated; the guide has its clean-up
// stopped first.
//
// # The storm
//
// Pods come and go on nodes of both kinds, on pools that overlap, while processes are
// killed and requests fail:
//
//	go test ./integration/mixed -run TestStorm                            half a minute
//	MIXED_TIME=5m go test ./integration/mixed -run TestStorm -timeout 0 -v
//
// MIXED_TIME is the length of each of its four parts. MIXED_SEED repeats the choices of
// a run; when things happen is up to the machine. What is proved is said at TestStorm.
package mixed
