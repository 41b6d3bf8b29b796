// Package commands has one file for each role of the binary: flags, wiring and
// output. Decisions are made in package ipam.
package commands
