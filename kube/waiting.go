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

// From reports whether the network takes addresses from a pool. Of a node's slices,
// and of what the definition leaves to files on the nodes, it is false.
func (w Waiting) From(id ipam.PoolID) bool {
	return id.Node == "" && slices.ContainsFunc(w.claims, func(c poolClaim) bool {
		if c.sizes[id.Range] > 0 || !slices.Contains(c.ranges, id.Range) {
			return false
		}
		// Where the flat file is not known, it is taken to name no network.
		return c.names(id) == yes || c.anyNetwork && id.Network == ""
	})
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
