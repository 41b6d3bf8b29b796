package kube

import (
	"crypto/sha256"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// definitionObject is the part of a NetworkAttachmentDefinition that is decoded.
type definitionObject struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Version   string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Config anyText `json:"config"`
	} `json:"spec"`
}

func (o *definitionObject) ident() identity {
	return identity{o.Metadata.Namespace, o.Metadata.Name, o.Metadata.Version}
}

// anyText is a string; of any other JSON value it is the text of that, which is no
// configuration then. Older clusters have definitions whose schema checks nothing.
type anyText string

// UnmarshalJSON never fails.
func (t *anyText) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*t = anyText(text)
	} else {
		*t = anyText(data)
	}
	return nil
}

// definition is what one definition says about pools.
type definition struct {
	sum    [sha256.Size]byte // of its configuration
	claims []poolClaim

	// unclear is set when it may name pools that claims does not have: an empty
	// configuration stands for a file on the nodes, and one that cannot be
	// understood may have been good when its records were made.
	unclear bool
}

// poolClaim is what one use of this plugin says about pools. What depends on a file of
// the nodes that is not known here is open.
type poolClaim struct {
	network     string
	anyNetwork  bool // the network is open
	ranges      []netip.Prefix
	anyRange    bool // the ranges are open
	overlap     bool
	overlapOpen bool
	sizes       map[netip.Prefix]int // node_slice_size of the ranges that have one
	sliceOpen   bool

	config *ipam.Config // as the plugin reads it; nil if something is open
}

// certainty is whether a definition names a pool.
type certainty int

const (
	no certainty = iota
	maybe
	yes
)

// names compares names of objects: the network in the id of a stored pool was read
// from one, where it may be spelled differently.
func (c *poolClaim) names(id ipam.PoolID) certainty {
	inNetwork, inRange := no, no
	switch {
	case c.anyNetwork:
		inNetwork = maybe
	case PoolName(ipam.PoolID{Network: c.network, Node: id.Node, Range: id.Range}) == PoolName(id):
		inNetwork = yes
	}
	if c.anyRange {
		inRange = maybe
	}
	for _, r := range c.ranges {
		switch {
		case id.Node == "" && r == id.Range:
			inRange = yes
		case id.Node != "" && within(id.Range, r) && c.sizes[r] > 0:
			inRange = yes
		case id.Node != "" && within(id.Range, r) && c.sliceOpen:
			inRange = max(inRange, maybe)
		}
	}
	return min(inNetwork, inRange)
}

func within(inner, outer netip.Prefix) bool {
	return inner.IsValid() && inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}

// definitions answers reclaim.Networks from all definitions there are.
//
// A definition that depends on what cannot be seen here only says "maybe": it makes
// Named true, and Protection unknown for the pools it may name. One that cannot be
// understood at all makes Named true for every pool; it has no voice in Protection,
// since no pod can be started by it, and where no other definition names a pool that
// is unknown anyway.
type definitions struct {
	mu      sync.Mutex
	known   bool
	unclear bool
	claims  []poolClaim
	answers map[ipam.PoolID]answerOf // so that each pool is looked up once
}

type answerOf struct{ named, on, known bool }

var _ reclaim.Networks = (*definitions)(nil)

// set replaces what is known.
func (d *definitions) set(all []*definition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.unclear, d.claims, d.answers = true, false, nil, map[ipam.PoolID]answerOf{}
	for _, one := range all {
		d.unclear = d.unclear || one.unclear
		d.claims = append(d.claims, one.claims...)
	}
}

// Protection reports whether overlap protection is on for a pool.
func (d *definitions) Protection(id ipam.PoolID) (on, known bool) {
	a := d.answer(id)
	return a.on, a.known
}

// Named reports whether a definition names a pool, or may.
func (d *definitions) Named(id ipam.PoolID) bool { return d.answer(id).named }

func (d *definitions) answer(id ipam.PoolID) answerOf {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return answerOf{named: true}
	}
	a, ok := d.answers[id]
	if !ok {
		a = d.work(id)
		d.answers[id] = a
	}
	return a
}

func (d *definitions) work(id ipam.PoolID) answerOf {
	best, on, off, open := no, false, false, false
	for i := range d.claims {
		c := &d.claims[i]
		v := c.names(id)
		best = max(best, v)
		switch {
		case v == no:
		case c.overlapOpen:
			open = true
		case c.overlap:
			on = true
		default:
			off = true
		}
	}
	known := best == yes && !open && on != off
	return answerOf{named: d.unclear || best != no, on: known && on, known: known}
}

// sliceOf finds the network and node of a pool object by its name, if it is a slice of
// a range that a definition cuts.
func (d *definitions) sliceOf(name string, slice netip.Prefix) (ipam.PoolID, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tail := nameTail(slice)
	for i := range d.claims {
		c := &d.claims[i]
		cut := func(r netip.Prefix) bool { return within(slice, r) && c.sizes[r] == slice.Bits() }
		if c.anyNetwork || !slices.ContainsFunc(c.ranges, cut) {
			continue
		}
		network := networkOf(PoolName(ipam.PoolID{Network: c.network, Range: slice}), tail)
		node := networkOf(name, tail)
		if c.network != "" {
			var ok bool
			if node, ok = strings.CutPrefix(node, network+"-"); !ok {
				continue
			}
		}
		id := ipam.PoolID{Network: network, Node: node, Range: slice}
		if node != "" && PoolName(id) == name {
			return id, true
		}
	}
	return ipam.PoolID{}, false
}
