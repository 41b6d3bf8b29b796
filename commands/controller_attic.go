package commands

import (
	"context"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// forgetAfter is how long a closed pool is kept that nobody needs: much longer than an
// ADD may take that has read an older list.
const forgetAfter = time.Hour

// attic is the pools of slices that their nodes have not any more, by name, and since
// when each has been so without a change. What a former process has seen does not count.
type attic struct {
	keep  time.Duration
	found map[string]leftPool
}

type leftPool struct {
	kube.NodePool
	since time.Time
}

// look takes down what is left now.
func (a *attic) look(p kube.SlicePicture, now time.Time) {
	found := map[string]leftPool{}
	for _, left := range leftPools(p) {
		name := kube.PoolName(left.ID)
		if before := a.found[name]; before.UID == left.UID && before.Version == left.Version {
			found[name] = before
		} else {
			found[name] = leftPool{left, now}
		}
	}
	a.found = found
}

// due is the pools that have been left for long enough. They are due once: one that cannot
// be removed then, such as one that an older plugin has written to, is tried again after
// the same time, and not in each pass.
func (a *attic) due(now time.Time) map[string]kube.NodePool {
	due := map[string]kube.NodePool{}
	for name, left := range a.found {
		if now.Sub(left.since) >= a.keep {
			due[name] = left.NodePool
			a.found[name] = leftPool{left.NodePool, now}
		}
	}
	return due
}

// rest is how long it is until a pool is due; a day when none is left.
func (a *attic) rest(now time.Time) time.Duration {
	rest := 24 * time.Hour
	for _, left := range a.found {
		rest = min(rest, a.keep-now.Sub(left.since))
	}
	return rest
}

// leftPools is the marked pools that no list has as their nodes', in whatever address
// space it may be: lists of older versions do not say.
func leftPools(p kube.SlicePicture) []kube.NodePool {
	listed := map[string]bool{}
	for _, stored := range p.Lists {
		t := sliceTask{stored: *stored}
		for _, k := range t.listed() {
			for _, space := range []string{"", stored.Name, stored.Network} {
				listed[kube.PoolName(ipam.PoolID{Network: space, Node: k.Node, Range: k.Slice})] = true
			}
			if stored.Space != nil {
				listed[kube.PoolName(ipam.PoolID{Network: *stored.Space, Node: k.Node, Range: k.Slice})] = true
			}
		}
	}
	var left []kube.NodePool
	for _, h := range p.Heads {
		if pool, ok := h.Marked(); ok && !listed[h.Name] {
			left = append(left, pool)
		}
	}
	return left
}

// forget removes the objects of pools that nobody needs any more: see package ipam/slice.
// What the watches show says when to look; what is removed is as it is read then.
func (c *sliceController) forget(ctx context.Context, p kube.SlicePicture) error {
	c.attic.look(p, c.now())
	due := c.attic.due(c.now())
	if len(due) == 0 {
		return nil
	}
	picture, err := c.cluster.Read(ctx)
	if err != nil {
		return err
	}
	var old []kube.NodePool
	for _, left := range leftPools(picture) {
		if before, ok := due[kube.PoolName(left.ID)]; ok && before.UID == left.UID && before.Version == left.Version {
			old = append(old, left)
		}
	}
	return eachAtOnce(old, func(_ int, pool kube.NodePool) error {
		if err := c.cluster.ForgetNodePool(ctx, pool); err != nil {
			return err
		}
		c.figures.written("pool")
		c.log.Info("removed the pool of a slice that its node has not any more", "pool", kube.PoolName(pool.ID))
		return nil
	})
}
