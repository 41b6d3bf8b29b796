package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// bench is all that a run needs: the servers, the programs, and places for files.
type bench struct {
	plan     plan
	cp       *testenv.ControlPlane
	programs programs
	dir      string   // programs, configurations, logs
	memory   string   // the nodes' directories
	stderr   *os.File // of all programs
	floor    floor
	report   *report
	sites    atomic.Int64 // so far, for names
}

// measure starts what is needed, runs the parts and removes everything again. The
// report holds what was found out until an error, and is never nil.
func measure(ctx context.Context, o options, log io.Writer) (_ *report, err error) {
	b := &bench{plan: o.plan, report: &report{Machine: thisMachine()}}
	b.report.warn(log)
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx, o, log); err != nil {
		return b.report, err
	}
	for _, p := range parts() {
		if !o.wanted(p.name) {
			continue
		}
		fmt.Fprintf(log, "bench: %s\n", p.about)
		t, err := p.measure(ctx, b)
		if err != nil {
			return b.report, fmt.Errorf("%s: %w", p.name, err)
		}
		if ctx.Err() != nil {
			return b.report, ctx.Err()
		}
		b.report.Tables = append(b.report.Tables, t)
	}
	return b.report, nil
}

func (b *bench) open(ctx context.Context, o options, log io.Writer) (err error) {
	// The plugin takes only log files below /tmp and /var/log.
	if b.dir, err = os.MkdirTemp("/tmp", "whereabouts-bench-"); err != nil {
		return err
	}
	// /run is memory on a node, too. There may be no /dev/shm.
	if b.memory, err = os.MkdirTemp("/dev/shm", "whereabouts-bench-"); err != nil {
		b.memory = filepath.Join(b.dir, "nodes")
	}
	if b.stderr, err = os.OpenFile(b.path("stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(log, "bench: building and starting")
	if b.programs, err = buildPrograms(ctx, root, b.dir, o); err != nil {
		return err
	}
	servers, err := testenv.Build(ctx, log)
	if err != nil {
		return err
	}
	if b.cp, err = testenv.Launch(servers); err != nil {
		return err
	}
	if err := b.cp.InstallCRDs(ctx, filepath.Join(root, "manifests", "crds")); err != nil {
		return err
	}
	b.floor, err = b.newFloor(ctx, nil)
	return err
}

// close ends the servers and removes all files. The programs have ended: each is
// waited for, and killed when the context ends.
func (b *bench) close() error {
	var err error
	if b.cp != nil {
		err = b.cp.Close()
	}
	if b.stderr != nil {
		b.stderr.Close()
	}
	for _, directory := range []string{b.memory, b.dir} {
		if directory != "" {
			err = errors.Join(err, os.RemoveAll(directory))
		}
	}
	return err
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// problem notes what went wrong in a part: the exit code will tell.
func (b *bench) problem(part string, err error) {
	b.report.Problems = append(b.report.Problems, fmt.Sprintf("%s: %v", part, err))
}
