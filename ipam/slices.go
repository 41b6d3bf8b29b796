package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Slices answers which node has which slice of a range: what the controller wrote
// last. It may be out of date as soon as it is read; what protects a slice that was
// taken away meanwhile is that its pool is closed (see Pool.Closed).
type Slices interface {
	// Slices returns the slices that nodes have, in address order, without those
	// that are free. A list that does not exist is empty.
	Slices(ctx context.Context, list SliceList) ([]NodeSlice, error)
}

// SliceList names the list of slices of one range.
type SliceList struct {
	Space   string       // network_name, which the pools of the slices have; "" is the default address space
	Network string       // whose list it is: network_name, else the name of the CNI network
	Range   netip.Prefix // the whole range, masked
	First   bool         // the first range of its network
}

// String is the list in words: "storage", "storage, range 10.1.0.0/16".
func (l SliceList) String() string {
	if l.First {
		return l.Network
	}
	return fmt.Sprintf("%s, range %s", l.Network, l.Range)
}

// pool is where the records of a slice are.
func (l SliceList) pool(s NodeSlice) PoolID {
	return PoolID{Network: l.Space, Node: s.Node, Range: s.Range}
}

// NodeSlice is a slice that a node has.
type NodeSlice struct {
	Node  string
	Range netip.Prefix // masked
}

// Sliced reports whether nodes have slices of any of the ranges.
func (c *Config) Sliced() bool {
	return slices.ContainsFunc(c.Ranges, func(r Range) bool { return r.SliceSize > 0 })
}

// SliceLists names the lists of slices of the ranges that are cut, in their order.
func (c *Config) SliceLists() []SliceList {
	var lists []SliceList
	for i, r := range c.Ranges {
		if r.SliceSize > 0 {
			lists = append(lists, c.sliceList(i))
		}
	}
	return lists
}

// sliceList names the list of slices of a range.
func (c *Config) sliceList(i int) SliceList {
	network := c.NetworkName
	if network == "" {
		network = c.Name
	}
	return SliceList{Space: c.NetworkName, Network: network, Range: c.Ranges[i].Prefix, First: i == 0}
}

// listing is what a batch knows of a list of slices.
type listing struct {
	slices []NodeSlice
	err    error
}

// of is the slices of a node.
func (l listing) of(node string) []NodeSlice {
	return slices.DeleteFunc(slices.Clone(l.slices), func(s NodeSlice) bool { return s.Node != node })
}

// around is the slice with an address, if a node has it.
func (l listing) around(a netip.Addr) (NodeSlice, bool) {
	i := slices.IndexFunc(l.slices, func(s NodeSlice) bool { return s.Range.Contains(a) })
	if i < 0 {
		return NodeSlice{}, false
	}
	return l.slices[i], true
}

// listings reads lists of slices, each once and all at once.
func (a *Allocator) listings(ctx context.Context, lists []SliceList) map[SliceList]listing {
	known := map[SliceList]listing{}
	done := make(chan struct{})
	var missing []SliceList
	for _, list := range lists {
		if !slices.Contains(missing, list) {
			missing = append(missing, list)
		}
	}
	answers := make([]listing, len(missing))
	for i, list := range missing {
		go func() {
			answers[i] = a.listing(ctx, list)
			done <- struct{}{}
		}()
	}
	for range missing {
		<-done
	}
	for i, list := range missing {
		known[list] = answers[i]
	}
	return known
}

func (a *Allocator) listing(ctx context.Context, list SliceList) listing {
	if a.Slices == nil {
		return listing{err: fmt.Errorf("%w: node_slice_size: this datastore has no slices; remove the key or use the datastore %s",
			ErrInvalid, DatastoreKubernetes)}
	}
	if list.Network == "" {
		return listing{err: fmt.Errorf(`%w: network_name: missing, and the network has no name either, by which to find its slices; `+
			`set one like "network_name": "storage"`, ErrInvalid)}
	}
	found, err := a.Slices.Slices(ctx, list)
	return listing{slices: found, err: err}
}

// site is where an address may be taken from: a pool, and the part of the range that
// is recorded there.
type site struct {
	pool PoolID
	rng  Range
}

// sites lists where an ADD takes an address of a range from, the first one first:
// the whole range, or the node's slices of it.
func (c *Config) sites(i int, node string, known map[SliceList]listing) ([]site, error) {
	r := c.Ranges[i]
	if r.SliceSize == 0 {
		return []site{{c.PoolOf(r), r}}, nil
	}
	list := c.sliceList(i)
	l := known[list]
	if l.err != nil {
		return nil, l.err
	}
	if node == "" {
		return nil, fmt.Errorf("%w: node_slice_size: the name of this node is not known; set NODENAME, "+
			"or write it to the file nodename beside the flat file", ErrInvalid)
	}
	var sites []site
	missing := &NoSliceError{Node: node, List: list, Nobody: len(l.slices) == 0}
	for _, s := range l.of(node) {
		part, ok := r.Within(s.Range)
		if !ok {
			missing.Outside = append(missing.Outside, s.Range)
			continue
		}
		sites = append(sites, site{list.pool(s), part})
	}
	if len(sites) == 0 {
		return nil, missing
	}
	return sites, nil
}

// siteOf is where an address of a range is recorded that somebody asks for by
// number, on whatever node. There is one pool for each address:
//
//   - the whole range's for one that is never handed out dynamically,
//   - that of the node whose slice it is in, which may be another node,
//   - the whole range's for one in a slice that no node has. The node that gets the
//     slice later learns of it from the reservation, and so there has to be one.
func (c *Config) siteOf(i int, a netip.Addr, known map[SliceList]listing) (site, error) {
	r := c.Ranges[i]
	whole := site{c.PoolOf(r), r}
	if r.SliceSize == 0 || !r.Eligible(a) {
		return whole, nil
	}
	list := c.sliceList(i)
	l := known[list]
	if l.err != nil {
		return site{}, l.err
	}
	if s, ok := l.around(a); ok {
		return site{list.pool(s), r}, nil
	}
	if !c.Overlap {
		return site{}, fmt.Errorf("%w: requested address %s is in a slice that no node has, and cannot be kept from the node that gets it; "+
			"put it into exclude or set enable_overlapping_ranges", ErrInvalid, a)
	}
	return whole, nil
}

// Serves makes sure that an ADD would find where to look for addresses: the node has
// a slice of each range. Errors are those of an ADD.
func (a *Allocator) Serves(ctx context.Context, cfg *Config) error {
	known := a.listings(ctx, cfg.SliceLists())
	var errs []error
	for i := range cfg.Ranges {
		_, err := cfg.sites(i, cfg.Node, known)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
