//go:build !race

package commands

// churnSize is how many containers come and go at once.
const churnSize = 200
