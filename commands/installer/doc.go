// Package installer puts Whereabouts on a node: the binary into the directory of
// the CNI plugins, and the credentials and the flat file it reads into the
// directory of the CNI configurations. It runs in a pod that has both mounted, or on
// the node itself.
//
// # What is on a node
//
//	<bin>/.whereabouts-<version>-<hash>    the binary; the dot keeps it out of lists of plugins
//	<bin>/whereabouts, <bin>/ip-control    symbolic links to it, relative: they hold wherever
//	                                       the directory is mounted
//	<conf>/whereabouts.d/whereabouts.kubeconfig
//	<conf>/whereabouts.d/whereabouts.conf
//	<conf>/whereabouts.d/nodename
//
// # Invariants
//
//  1. Each name holds the old content or the new one, whole, at each moment and after
//     a power cut: content goes to a temporary file, which is synced and renamed.
//  2. Everything may be repeated, and what is as it should be is not touched. So a
//     process that was killed at any point is made up for by the next one.
//  3. A failure leaves in force what was there. Of several things, one that fails does
//     not keep the others from their turn.
//  4. What others put there stays: keys of the flat file that are not ours, files that
//     have our names but are not ours when it comes to removing them.
package installer
