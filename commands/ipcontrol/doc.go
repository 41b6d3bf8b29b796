// Package ipcontrol is the command for a person at a shell: it shows who holds
// which address, finds what is wrong with what is stored, repairs what is safe,
// releases and reserves addresses, and explains network configurations.
//
// # Output
//
// Tables are for people and may change. With -o json or -o yaml each command prints
// one document whose fields are those of the types in document.go; fields are
// added, never renamed. Counts of addresses are decimal strings, since those of IPv6
// ranges fit no number; times are RFC 3339 in UTC; what is unknown is left out.
// Warnings and progress go to stderr.
//
// # Exit codes
//
// 0 is fine, 1 means that problems were found or something was refused, 2 that the
// command line makes no sense or there is no access.
//
// # Writing
//
// It decides nothing by itself about orphans: that is package reclaim's. Whatever it
// frees it names exactly, and looks at again just before.
package ipcontrol
