package kube

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// Waiting is a pod that has a node and does not run, and a network that it asks for.
type Waiting struct {
	Pod     *reclaim.Pod // shared: not to be changed
	Network string       // namespace/name of the definition
	Asked   []netip.Addr // addresses that it asks for by number

	claims []poolClaim
}

// From reports whether the network takes the pod's addresses from a pool: one of its
// ranges, or a slice of its node. Of what the definition leaves to files on the nodes it
// is false.
func (w Waiting) From(id ipam.PoolID) bool {
	return slices.ContainsFunc(w.claims, func(c poolClaim) bool { return w.draws(c, id) })
}

func (w Waiting) draws(c poolClaim, id ipam.PoolID) bool {
	if id.Node != "" {
		own := ipam.PoolID{Network: id.Network, Node: w.Pod.Node, Range: id.Range}
		return PoolName(own) == PoolName(id) && c.names(id) == yes
	}
	if c.sizes[id.Range] > 0 || !slices.Contains(c.ranges, id.Range) {
		return false
	}
	// Where the flat file is not known, it is taken to name no network.
	return c.names(id) == yes || c.anyNetwork && id.Network == ""
}

// Pool is the one that an address asked for by number is taken from, whether it has been
// written yet or not. Of a slice it is not known here.
func (w Waiting) Pool(a netip.Addr) (id ipam.PoolID, ok bool) {
	for _, c := range w.claims {
		for _, r := range c.ranges {
			if id := (ipam.PoolID{Network: c.network, Range: r}); r.Contains(a) && w.draws(c, id) {
				return id, true
			}
		}
	}
	return ipam.PoolID{}, false
}

// Instead reports whether an address of one pool does for the pod as well as one of
// another: both are slices of one range, of its node.
func (w Waiting) Instead(a, b ipam.PoolID) bool {
	return a.Node != "" && b.Node != "" && slices.ContainsFunc(w.claims, func(c poolClaim) bool {
		return w.draws(c, a) && w.draws(c, b) && slices.ContainsFunc(c.ranges, func(r netip.Prefix) bool {
			return within(a.Range, r) && within(b.Range, r)
		})
	})
}

// Alone reports whether the pod gets an address of a pool only if no other pool of the
// network_name has it.
func (w Waiting) Alone(id ipam.PoolID) bool {
	return slices.ContainsFunc(w.claims, func(c poolClaim) bool { return w.draws(c, id) && c.overlap && !c.overlapOpen })
}

// Waiting lists the pods that wait, once for each network that their annotation asks
// for and that takes addresses from us, in no order.
func (w *Watcher) Waiting() []Waiting {
	if w.pods.synced() != nil || w.defined.synced() != nil {
		return nil
	}
	var pods []*reclaim.Pod
	w.cluster.pods.each(func(_ objectKey, p *reclaim.Pod) {
		if p.Wants != "" && p.Node != "" && p.Deleted.IsZero() {
			pods = append(pods, p)
		}
	})
	var all []Waiting
	for _, p := range pods {
		for _, s := range parseSelections(p.Wants) {
			namespace := s.Namespace
			if namespace == "" {
				namespace = p.Namespace
			}
			if d, ok := w.cluster.definitions.get(namespace, s.Name); ok && len(d.claims) > 0 {
				all = append(all, Waiting{Pod: p, Network: namespace + "/" + s.Name, Asked: s.addresses(), claims: d.claims})
			}
		}
	}
	return all
}

// selection is one network in a pod's annotation.
type selection struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	IPs       []string `json:"ips"`
}

// parseSelections reads either form of the annotation: a JSON list, or names between
// commas, each as [namespace/]name[@interface]. What cannot be read is left out.
func parseSelections(text string) []selection {
	var all []selection
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		if json.Unmarshal([]byte(text), &all) != nil {
			return nil
		}
		return all
	}
	for part := range strings.SplitSeq(text, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), "@")
		namespace, bare, found := strings.Cut(name, "/")
		if !found {
			namespace, bare = "", name
		}
		if bare != "" {
			all = append(all, selection{Name: bare, Namespace: namespace})
		}
	}
	return all
}

func (s selection) addresses() []netip.Addr {
	var all []netip.Addr
	for _, ip := range s.IPs {
		bare, _, _ := strings.Cut(ip, "/")
		if a, err := ipam.ParseAddr(bare); err == nil {
			all = append(all, a)
		}
	}
	return all
}
