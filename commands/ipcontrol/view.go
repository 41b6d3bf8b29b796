package ipcontrol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// view is what is stored, as it was when it was read, and what is known around it.
type view struct {
	*access
	spaces  []space
	cluster *kube.Inspection // nil for a local datastore
	defined []defined
}

// space is what one namespace holds. A local datastore has one, without a name.
type space struct {
	namespace string
	*ipam.Snapshot
}

// defined is a use of this plugin by a definition.
type defined struct {
	kube.Definition
	*ipam.Config
}

// stored is a pool and where it is.
type stored struct {
	space
	pool *ipam.Pool
}

// look reads what is stored; pods and nodes too if they are asked for.
func (o options) look(ctx context.Context, a *access, pods bool) (*view, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	v := &view{access: a}
	if a.client == nil {
		snapshot, err := a.local.Snapshot(ctx)
		v.spaces = []space{{"", snapshot}}
		return v, err
	}
	in, err := kube.Inspect(ctx, a.client, a.flat, kube.Scope{Namespace: o.namespace, Pods: pods})
	if err != nil {
		return nil, err
	}
	v.cluster = in
	snapshots, err := in.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, namespace := range slices.Sorted(maps.Keys(snapshots)) {
		v.spaces = append(v.spaces, space{namespace, snapshots[namespace]})
	}
	for _, d := range in.Definitions {
		for _, cfg := range d.Configs(a.flat) {
			v.defined = append(v.defined, defined{d, cfg})
		}
	}
	return v, nil
}

// pools are all pools, or those that the options choose.
func (v *view) pools(o options) []stored {
	var found []stored
	for _, s := range v.spaces {
		for _, p := range s.Pools {
			here := stored{s, p}
			if o.chooses(here) {
				found = append(found, here)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b stored) int {
		if a.namespace != b.namespace {
			return strings.Compare(a.namespace, b.namespace)
		}
		if a.pool.ID.Network != b.pool.ID.Network {
			return strings.Compare(a.pool.ID.Network, b.pool.ID.Network)
		}
		return a.pool.ID.Range.Compare(b.pool.ID.Range)
	})
	return found
}

func (o options) chooses(s stored) bool {
	return (o.network == "" || sameNetwork(o.network, s.pool.ID)) && (o.pool == "" || s.called(o.pool))
}

// called reports whether a pool goes by a name: that of its object, with or without
// the namespace before it, or its range.
func (s stored) called(name string) bool {
	if own := s.name(); own == name || s.namespace+"/"+own == name {
		return true
	}
	p, err := ipam.ParsePrefix(name)
	return err == nil && p.Masked() == s.pool.ID.Range
}

func (s stored) name() string { return kube.PoolName(s.pool.ID) }

// String names a pool for a person.
func (s stored) String() string {
	if s.namespace == "" {
		return s.name()
	}
	return s.namespace + "/" + s.name()
}

// sameNetwork compares by names of objects: that is where the network of a stored
// pool was read from, perhaps spelled differently.
func sameNetwork(network string, id ipam.PoolID) bool {
	return kube.PoolName(ipam.PoolID{Network: network, Node: id.Node, Range: id.Range}) == kube.PoolName(id)
}

// ranges are what definitions say about a pool.
func (v *view) ranges(id ipam.PoolID) []ipam.Range {
	var found []ipam.Range
	for _, d := range v.defined {
		if sameNetwork(d.NetworkName, id) {
			found = append(found, d.RangesOf(id)...)
		}
	}
	return found
}

// reservation is that of an address of a pool's network, or nil.
func (s space) reservation(network string, a netip.Addr) *ipam.Reservation {
	for i := range s.Reservations {
		if r := &s.Reservations[i]; r.Address == a && r.Space == network {
			return r
		}
	}
	return nil
}

// missing is what could not be read, in words.
func (v *view) missing() []string {
	if v.cluster == nil {
		return nil
	}
	var words []string
	for _, err := range v.cluster.Missing {
		words = append(words, plain(err))
	}
	return words
}

// progress tells a person at a terminal what takes long.
func (o options) progress(format string, args ...any) {
	if o.terminal(o.Stderr) {
		fmt.Fprintf(o.Stderr, format+" …\n", args...)
	}
}

func (o options) warn(format string, args ...any) {
	fmt.Fprintf(o.Stderr, "note: "+format+"\n", args...)
}

func isDirectory(err error) bool { return errors.Is(err, syscall.EISDIR) }
