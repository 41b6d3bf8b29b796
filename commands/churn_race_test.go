//go:build race

package commands

// churnSize is smaller with the race detector: it makes each process ten times as
// expensive.
const churnSize = 60
