// Whereabouts gives pods addresses on secondary networks, unique in the whole
// cluster. One binary has all roles; see package commands.
package main

import (
	"os"
	"time"

	"github.com/whereabouts-cni/whereabouts/commands"
)

// version is set when a release is linked.
var version = "development"

func main() {
	os.Exit(commands.Main(commands.Process{
		Args:     os.Args,
		Getenv:   os.Getenv,
		ReadFile: os.ReadFile,
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Now:      time.Now,
		Version:  version,
	}))
}
