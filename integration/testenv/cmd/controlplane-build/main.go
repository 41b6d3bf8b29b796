// Command controlplane-build builds the control plane that integration tests
// run on, unless it is in the cache already, and prints its path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	path, err := testenv.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane-build:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
