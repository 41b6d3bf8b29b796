package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// settled checks what is left at a site after releases. A DEL that could not be
// made in time, on a machine that is very busy, succeeds and is made by the next
// call on its node: such calls are made here.
func (b *bench) settled(ctx context.Context, s *site, nodes []node, config string, want holders, protected bool) error {
	all := 0
	for _, n := range nodes {
		queued := n.queuedReleases()
		all += queued
		for range queued { // each call makes one or more
			if n.queuedReleases() == 0 {
				break
			}
			if o := b.run(ctx, s.call("DEL", n, "nobody", "net1", config)); o.err != nil {
				return o.err
			}
		}
	}
	if all > 0 {
		b.report.Notes = append(b.report.Notes, fmt.Sprintf("%s of %s waited in the nodes' queues: they could not be made in the 5 seconds that a DEL may take.",
			plural(all, "release"), s.namespace))
	}
	return s.check(ctx, want, protected)
}

func (n node) queuedReleases() int {
	files, _ := filepath.Glob(filepath.Join(n.stateDir, "releases", "[^.]*")) // the pattern is good
	return len(files)
}
