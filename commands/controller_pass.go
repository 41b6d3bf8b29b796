package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// sliceLooks bounds the requests in flight.
const sliceLooks = 8

// slicePass is one look at everything.
type slicePass struct {
	kube.SlicePicture
	heads    map[string]*kube.PoolHead // by name
	problems []slice.Problem
	jobs     []*sliceJob
	fresh    map[string]kube.NodePool // read in this pass, by name
	awaited  map[string]bool
}

// sliceJob is a list, and what is to be done about it.
type sliceJob struct {
	*sliceTask
	pools   map[slice.Key]kube.NodePool
	plan    slice.Plan
	summary *kube.SliceSummary
	pruned  bool  // the API server does not keep summaries
	err     error // why there is no plan
}

// object is the list as it is to be, and whether that has to be written.
func (j *sliceJob) object() (want kube.SlicePool, write bool) {
	want = j.wanted(j.plan.Allocations)
	want.Summary = j.summary
	kept := want
	if j.pruned {
		kept.Summary = j.stored.Summary
	}
	return want, differs(j.stored, kept)
}

// idle reports whether nothing is to be done.
func (j *sliceJob) idle() bool {
	if len(j.plan.Close)+len(j.plan.Seal)+len(j.plan.Open) > 0 {
		return false
	}
	if j.gone() && j.spent() {
		return false
	}
	_, write := j.object()
	return !write
}

// spent reports whether no node has anything of the list.
func (j *sliceJob) spent() bool { return len(j.plan.Allocations) == 0 }

// pass brings everything a step further. It decides by what the watches know whether
// there is anything to do, and by what it reads then what that is: see package
// ipam/slice for the order. Each step is told by the watches, and so the next pass
// comes by itself.
func (c *sliceController) pass(ctx context.Context) error {
	p := c.plan(ctx, c.cluster.Picture())
	if !p.idle() {
		picture, err := c.cluster.Read(ctx)
		if err != nil {
			return err
		}
		p = c.plan(ctx, picture)
	}
	c.cluster.Await(p.awaited)
	c.teller.tell(p)
	c.figures.lists(p)
	var errs []error
	for _, j := range p.jobs {
		c.heart.beat()
		err := j.err
		if err == nil && !j.idle() {
			err = c.carryOut(ctx, j)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("slice pool %s: %w", j.name, err))
		}
	}
	if p.idle() {
		errs = append(errs, c.forget(ctx, p.SlicePicture))
	}
	return errors.Join(errs...)
}

func (p *slicePass) idle() bool {
	return !slices.ContainsFunc(p.jobs, func(j *sliceJob) bool { return j.err != nil || !j.idle() })
}

// plan decides what is to be done about each list.
func (c *sliceController) plan(ctx context.Context, picture kube.SlicePicture) *slicePass {
	p := &slicePass{SlicePicture: picture, heads: map[string]*kube.PoolHead{}, fresh: map[string]kube.NodePool{}, awaited: map[string]bool{}}
	for _, h := range picture.Heads {
		p.heads[h.Name] = h
	}
	maps.DeleteFunc(c.looked, func(name string, _ kube.NodePool) bool { return p.heads[name] == nil })
	tasks, problems := sliceTasks(picture, c.flat)
	p.problems = problems
	others := listedBySpace(tasks)
	for _, t := range tasks {
		c.heart.beat()
		j := &sliceJob{sliceTask: t, pruned: c.pruned}
		p.jobs = append(p.jobs, j)
		j.err = c.planOne(ctx, p, j, others[t.list.Space])
		j.summary = j.summarize(problems, c.now())
	}
	return p
}

// listedBySpace is which networks list a slice as a node's, in each address space.
func listedBySpace(tasks []*sliceTask) map[string]map[slice.Key][]string {
	all := map[string]map[slice.Key][]string{}
	for _, t := range tasks {
		space := all[t.list.Space]
		if space == nil {
			space = map[slice.Key][]string{}
			all[t.list.Space] = space
		}
		for _, k := range t.listed() {
			space[k] = append(space[k], t.list.Network)
		}
	}
	return all
}

// planOne makes the plan of one list. A fault of ours there is no reason to leave the
// others alone.
func (c *sliceController) planOne(ctx context.Context, p *slicePass, j *sliceJob, listed map[slice.Key][]string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("panic", "list", j.name, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	if j.held {
		j.plan.Allocations = j.stored.Allocations
		return nil
	}
	p.findPools(j, listed)
	in := slice.Input{Cut: j.cut, Max: j.max, Listed: j.stored.Allocations}
	if !j.gone() {
		if in.Nodes, err = c.grow(ctx, p, j); err != nil {
			return err
		}
	}
	for {
		in.Pools = c.states(p, j)
		j.plan = slice.Assign(in)
		if len(j.plan.Look) == 0 {
			return nil
		}
		if err := c.look(ctx, p, j, j.plan.Look); err != nil {
			return err
		}
	}
}

// findPools picks the pools of nodes that belong to a list: those within its range, and
// those of slices in it. Networks without a network_name have their pools in one address
// space; a slice that another one lists is not this one's.
func (p *slicePass) findPools(j *sliceJob, listed map[slice.Key][]string) {
	j.pools = map[slice.Key]kube.NodePool{}
	if !j.gone() {
		for _, h := range p.Heads {
			if pool, ok := h.In(j.list.Space, j.cut.Prefix()); ok {
				j.pools[pool.Key()] = pool
			}
		}
	}
	own := map[slice.Key]bool{}
	for _, k := range j.listed() {
		own[k] = true
		id := j.poolID(k)
		if h := p.heads[kube.PoolName(id)]; h != nil {
			if pool, ok := h.Of(id); ok {
				j.pools[k] = pool
			}
		}
	}
	maps.DeleteFunc(j.pools, func(k slice.Key, _ kube.NodePool) bool {
		strange := func(network string) bool { return network != j.list.Network }
		return !own[k] && slices.ContainsFunc(listed[k], strange)
	})
}

// states is the pools of a list with what is known of their content.
func (c *sliceController) states(p *slicePass, j *sliceJob) []slice.Pool {
	var pools []slice.Pool
	for k := range j.pools {
		pool := c.known(p, j, k)
		pools = append(pools, slice.Pool{Key: k, State: pool.State})
	}
	return pools
}

// known is a pool with its content, if that has been read since it was written last.
func (c *sliceController) known(p *slicePass, j *sliceJob, k slice.Key) kube.NodePool {
	pool := j.pools[k]
	name := kube.PoolName(pool.ID)
	if fresh, ok := p.fresh[name]; ok {
		return fresh
	}
	if before := c.looked[name]; pool.State == slice.Unknown && before.Version == pool.Version && before.UID == pool.UID && pool.Version != "" {
		p.awaited[name] = true
		return before
	}
	return pool
}

// look reads the content of pools.
func (c *sliceController) look(ctx context.Context, p *slicePass, j *sliceJob, keys []slice.Key) error {
	found := make([]kube.NodePool, len(keys))
	err := eachAtOnce(keys, func(i int, k slice.Key) (err error) {
		found[i], err = c.cluster.NodePool(ctx, j.poolID(k))
		return err
	})
	if err != nil {
		return err
	}
	for i, k := range keys {
		name := kube.PoolName(j.poolID(k))
		p.awaited[name] = true
		j.pools[k] = found[i]
		p.fresh[name], c.looked[name] = found[i], found[i]
	}
	return nil
}

// grow is the nodes with how many slices each asks for.
func (c *sliceController) grow(ctx context.Context, p *slicePass, j *sliceJob) ([]slice.Node, error) {
	if j.max <= 1 {
		return p.Nodes, nil
	}
	var unknown []slice.Key
	byNode := map[string][]slice.Key{}
	for _, k := range j.listed() {
		byNode[k.Node] = append(byNode[k.Node], k)
		if _, exists := j.pools[k]; exists && c.known(p, j, k).State == slice.Unknown {
			unknown = append(unknown, k)
		}
	}
	if err := c.look(ctx, p, j, unknown); err != nil {
		return nil, err
	}
	nodes := slices.Clone(p.Nodes)
	for i, n := range nodes {
		var loads []slice.Load
		keys := byNode[n.Name]
		slices.SortFunc(keys, func(a, b slice.Key) int { return a.Slice.Addr().Compare(b.Slice.Addr()) })
		for _, k := range keys {
			if j.cut.Has(k.Slice) {
				loads = append(loads, slice.Load{Size: j.cut.Capacity(k.Slice), Used: c.known(p, j, k).Used})
			}
		}
		nodes[i].Slices = slice.Wanted(loads)
	}
	return nodes, nil
}

// carryOut writes what was decided: first the list, and only if that was still as it was
// read, the pools.
func (c *sliceController) carryOut(ctx context.Context, j *sliceJob) error {
	if err := c.writeList(ctx, j); err != nil {
		return err
	}
	return errors.Join(
		c.mark(ctx, j, "closed", j.plan.Close, c.cluster.CloseNodePool),
		c.mark(ctx, j, "sealed", j.plan.Seal, c.cluster.SealNodePool),
		c.mark(ctx, j, "opened", j.plan.Open, c.cluster.OpenNodePool),
	)
}

func (c *sliceController) writeList(ctx context.Context, j *sliceJob) error {
	want, write := j.object()
	switch {
	case j.gone() && j.spent():
		if err := c.cluster.DeleteSlicePool(ctx, want); err != nil {
			return err
		}
		c.figures.written("list")
		c.log.Info("deleted a slice pool that no definition wants any more", "list", j.name)
		return nil
	case write:
		written, err := c.cluster.WriteSlicePool(ctx, want)
		if err != nil {
			return err
		}
		// The resource definitions of older versions drop what they do not know. Not to
		// write it again and again, it is expected no more until it is seen to stay.
		c.pruned = want.Summary != nil && written.Summary == nil
		c.figures.written("list")
		c.log.Info("wrote a slice pool", "list", j.name, "nodes", len(owners(want.Allocations)), "changes", changes(j.stored.Allocations, want.Allocations))
		return nil
	case len(j.plan.Seal)+len(j.plan.Open) > 0:
		return c.unchanged(ctx, j)
	}
	return nil
}

// unchanged makes sure that a list is still as it was read: the pools were read after it,
// and what they show may belong to a later one.
func (c *sliceController) unchanged(ctx context.Context, j *sliceJob) error {
	now, err := c.cluster.SlicePool(ctx, j.name)
	if err != nil {
		return err
	}
	if now == nil || now.Version != j.stored.Version || now.UID != j.stored.UID {
		return fmt.Errorf("read it again: %w", kube.ErrChanged)
	}
	return nil
}

// mark changes the marks of pools.
func (c *sliceController) mark(ctx context.Context, j *sliceJob, done string, keys []slice.Key, write func(context.Context, kube.NodePool) error) error {
	return eachAtOnce(keys, func(_ int, k slice.Key) error {
		pool, exists := j.pools[k]
		if !exists {
			pool = kube.NodePool{ID: j.poolID(k), State: slice.Empty}
		}
		if err := write(ctx, pool); err != nil {
			return err
		}
		c.figures.written("pool")
		c.log.Info("marked a pool", "pool", kube.PoolName(pool.ID), "node", k.Node, "slice", k.Slice, "as", done)
		return nil
	})
}

// eachAtOnce calls f for all of them, some at a time, and joins their errors.
func eachAtOnce[T any](keys []T, f func(int, T) error) error {
	errs := make([]error, len(keys))
	var group sync.WaitGroup
	limit := make(chan struct{}, sliceLooks)
	for i, k := range keys {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			errs[i] = f(i, k)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// owners is the slices that are somebody's.
func owners(allocations []slice.Allocation) map[slice.Allocation]bool {
	all := map[slice.Allocation]bool{}
	for _, a := range allocations {
		if a.NodeName != "" {
			all[a] = true
		}
	}
	return all
}

// changes counts the slices that are given or taken.
func changes(before, after []slice.Allocation) int {
	n := 0
	had, has := owners(before), owners(after)
	for a := range had {
		if !has[a] {
			n++
		}
	}
	for a := range has {
		if !had[a] {
			n++
		}
	}
	return n
}
