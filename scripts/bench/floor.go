package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// floor runs the two programs that figures are compared with.
type floor struct {
	programs programs
	settings string // file of the program request
	stderr   *os.File
	names    *atomic.Int64
}

// newFloor gives the program request a namespace of its own, with a pool to get. It
// goes through the proxy if there is one.
func (b *bench) newFloor(ctx context.Context, via *proxy) (floor, error) {
	s, err := b.newSite(ctx, "floor", via)
	if err != nil {
		return floor{}, err
	}
	f := floor{programs: b.programs, settings: s.path("floor.json"), stderr: b.stderr, names: &atomic.Int64{}}
	if err := s.createPool(ctx, "floor", "10.0.0.0/24", Object{}); err != nil {
		return f, err
	}
	server, ca := b.apiServer(via)
	return f, writeJSON(f.settings, Object{
		"server": server, "token": b.cp.Token(testenv.Admin), "ca": ca,
		"get": s.collection(pools) + "/floor", "create": s.collection(reservations),
	})
}

// start runs the empty program.
func (f floor) start(ctx context.Context) (time.Duration, error) {
	return f.run(exec.CommandContext(ctx, f.programs.empty))
}

// request runs the program that makes two requests.
func (f floor) request(ctx context.Context) (time.Duration, error) {
	return f.run(exec.CommandContext(ctx, f.programs.request, f.settings, fmt.Sprint("floor-", f.names.Add(1))))
}

func (f floor) run(cmd *exec.Cmd) (time.Duration, error) {
	_, took, err := spawn(cmd, "", f.stderr)
	if err != nil {
		return 0, fmt.Errorf("the floor's program: %w", err)
	}
	return took, nil
}

// requests runs the program request n times, so many at once.
func (f floor) requests(ctx context.Context, n, workers int) (crowd, error) {
	c := crowd{took: make(sample, n)}
	errs := make([]error, n)
	c.wall = atOnce(n, workers, func(i int) { c.took[i], errs[i] = f.request(ctx) })
	return c, firstOf(errs)
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// crowd is what many calls at once took: each of them, and all together.
type crowd struct {
	took sample
	wall time.Duration
}

func (c crowd) and(d crowd) crowd {
	return crowd{took: append(c.took[:len(c.took):len(c.took)], d.took...), wall: c.wall + d.wall}
}

// rate is calls per second.
func (c crowd) rate() float64 { return float64(len(c.took)) / c.wall.Seconds() }
