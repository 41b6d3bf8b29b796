package commands

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	// slicePassTimeout bounds one pass. It is shorter than stuckAfter.
	slicePassTimeout = 2 * time.Minute

	// sliceGap lies between two passes. After a failure the pause doubles from there
	// up to sliceBackoff.
	sliceGap     = 100 * time.Millisecond
	sliceBackoff = 30 * time.Second

	// sliceResync is when to look again without being told. It costs no request unless
	// there is something to do.
	sliceResync = 10 * time.Minute
)

// sliceCluster is where the controller learns what there is, and writes down what it
// decides. Errors of writes wrap kube.ErrChanged when somebody else was faster.
type sliceCluster interface {
	// Picture is what is known by watches, and Read what there is now.
	Picture() kube.SlicePicture
	Read(ctx context.Context) (kube.SlicePicture, error)
	// Changed gets a value when a pass may be necessary, and Await says whose writes
	// may make it so.
	Changed() <-chan struct{}
	Await(pools map[string]bool)
	// Ready answers why Picture cannot be trusted now; nil is fine.
	Ready() error

	SlicePool(ctx context.Context, name string) (*kube.SlicePool, error)
	WriteSlicePool(ctx context.Context, p kube.SlicePool) (*kube.SlicePool, error)
	DeleteSlicePool(ctx context.Context, p kube.SlicePool) error

	NodePool(ctx context.Context, id ipam.PoolID) (kube.NodePool, error)
	CloseNodePool(ctx context.Context, p kube.NodePool) error
	SealNodePool(ctx context.Context, p kube.NodePool) error
	OpenNodePool(ctx context.Context, p kube.NodePool) error
	ForgetNodePool(ctx context.Context, p kube.NodePool) error
}

// sliceController keeps the lists of slices up to date. Any number of processes may do
// so at once: each write is a compare-and-swap, see package ipam/slice.
type sliceController struct {
	cluster sliceCluster
	flat    []byte
	figures *controllerFigures
	teller  *sliceTeller
	heart   *heart
	now     func() time.Time
	log     *slog.Logger

	attic    attic
	looked   map[string]kube.NodePool // pools whose content was read, by name
	failures int                      // passes that failed, in a row
	pruned   bool                     // the API server has dropped the summary of a list
}

func newSliceController(cluster sliceCluster, flat []byte, m *metrics, now func() time.Time, log *slog.Logger) *sliceController {
	return &sliceController{
		cluster: cluster, flat: flat, figures: newControllerFigures(m), teller: newSliceTeller(now, log),
		heart: newHeart(now), now: now, log: log, attic: attic{keep: forgetAfter}, looked: map[string]kube.NodePool{},
	}
}

// run makes passes until the context ends.
func (c *sliceController) run(ctx context.Context) {
	if !c.waitUntilReady(ctx) {
		return
	}
	c.log.Info("giving slices to nodes")
	for ctx.Err() == nil {
		err := c.timed(ctx)
		c.wait(ctx, err != nil)
	}
}

// waitUntilReady answers false when the context has ended first.
func (c *sliceController) waitUntilReady(ctx context.Context) bool {
	complain := c.now().Add(heartbeat)
	for {
		c.heart.beat()
		err := c.cluster.Ready()
		if err == nil {
			return true
		}
		if now := c.now(); now.After(complain) {
			c.log.Warn("waiting for the cluster's state", "error", err)
			complain = now.Add(heartbeat)
		}
		if !pause(ctx, sliceGap) {
			return false
		}
	}
}

// timed makes one pass and takes down how it went.
func (c *sliceController) timed(ctx context.Context) error {
	select {
	case <-c.cluster.Changed(): // this pass sees it
	default:
	}
	limited, cancel := context.WithTimeout(ctx, slicePassTimeout)
	defer cancel()
	began := c.now()
	err := c.pass(limited)
	if ctx.Err() != nil {
		return nil // it is the end, and no failure
	}
	c.figures.passed(err, c.now().Sub(began), c.now())
	switch {
	case err == nil:
		c.failures = 0
	case onlyChanged(err):
		c.failures = min(c.failures+1, 4)
		c.log.Debug("somebody else was faster, looking again", "error", err)
	default:
		c.failures++
		c.log.Error("slices could not be brought up to date", "error", err, "failures", c.failures)
	}
	return err
}

// wait sleeps until there is a reason for another pass.
func (c *sliceController) wait(ctx context.Context, again bool) {
	gap := sliceGap
	for range c.failures {
		gap = min(2*gap, sliceBackoff)
	}
	c.heart.beat()
	if !pause(ctx, gap) || again {
		return
	}
	for end := c.now().Add(sliceResync); c.now().Before(end); {
		c.heart.beat()
		select {
		case <-ctx.Done():
			return
		case <-c.cluster.Changed():
			pause(ctx, sliceGap) // changes come in crowds
			return
		case <-time.After(min(heartbeat, c.attic.rest(c.now()))):
			if c.attic.rest(c.now()) <= 0 {
				return
			}
		}
	}
}

// pause answers false when the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// onlyChanged reports whether all parts of an error are about writes for which somebody
// else was faster.
func onlyChanged(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			if errors.Is(one, kube.ErrChanged) {
				continue
			}
			if !onlyChanged(one) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, kube.ErrChanged)
}
