// Package integration tests the built binary from outside, as a container
// runtime drives it: parameters in the environment, the network configuration on
// stdin, one JSON document on stdout. The API server is a real one (see
// testenv), behind a proxy that counts requests and injects faults.
//
// Every test that uses a cluster ends with the same check of what is stored: each
// entry of a pool has its reservation and the other way round, and no address is
// held twice (records_test.go).
package integration
