// Package node keeps what one node remembers of its own calls: files on its disk,
// never shared with other nodes.
//
// The truth about addresses is in the store. What is here saves requests and finds
// what the network configuration no longer names; each thing it says is tested
// against the store before anything is done, and a node whose directories cannot be
// written works without.
package node
