package kube

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

// podObject is the part of a pod that is decoded. Most of a pod is never kept in
// memory.
type podObject struct {
	Metadata struct {
		Name        string         `json:"name"`
		Namespace   string         `json:"namespace"`
		UID         string         `json:"uid"`
		Version     string         `json:"resourceVersion"`
		Created     string         `json:"creationTimestamp"`
		Deleted     string         `json:"deletionTimestamp"`
		Grace       int64          `json:"deletionGracePeriodSeconds"`
		Annotations podAnnotations `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase reclaim.Phase `json:"phase"`
	} `json:"status"`
}

type podAnnotations struct {
	Networks       string `json:"k8s.v1.cni.cncf.io/networks"` // that it asks for
	NetworkStatus  string `json:"k8s.v1.cni.cncf.io/network-status"`
	NetworksStatus string `json:"k8s.v1.cni.cncf.io/networks-status"` // its older name
	ConfigHash     string `json:"kubernetes.io/config.hash"`
	ConfigMirror   string `json:"kubernetes.io/config.mirror"`
}

func (o *podObject) ident() identity {
	return identity{o.Metadata.Namespace, o.Metadata.Name, o.Metadata.Version}
}

// pod translates the object. names may be nil.
func (o *podObject) pod(names interner) *reclaim.Pod {
	m := &o.Metadata
	p := &reclaim.Pod{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Node: o.Spec.Node, Phase: o.Status.Phase,
		Created: parseTime(m.Created), Deleted: parseTime(m.Deleted), Grace: time.Duration(m.Grace) * time.Second,
	}
	for _, uid := range []string{m.Annotations.ConfigHash, m.Annotations.ConfigMirror} {
		if uid != "" {
			p.OtherUIDs = append(p.OtherUIDs, uid)
		}
	}
	status := m.Annotations.NetworkStatus
	if status == "" {
		status = m.Annotations.NetworksStatus
	}
	p.Addresses, p.Networks = parseNetworkStatus(status)
	if p.Phase == reclaim.Pending {
		p.Wants = m.Annotations.Networks
	}
	if names != nil {
		p.Namespace, p.Node = names.of(p.Namespace), names.of(p.Node)
		p.Phase = reclaim.Phase(names.of(string(p.Phase)))
	}
	return p
}

// parseNetworkStatus lists the addresses of all networks in a network status
// annotation. It answers false for one that is empty, lists no network at all, or
// has anything in it that cannot be read: then nothing is known of the pod's
// addresses, and none may be taken for unused.
func parseNetworkStatus(text string) ([]netip.Addr, bool) {
	var networks []struct {
		IPs []string `json:"ips"`
	}
	if err := json.Unmarshal([]byte(text), &networks); err != nil || len(networks) == 0 {
		return nil, false
	}
	var addresses []netip.Addr
	for _, network := range networks {
		for _, ip := range network.IPs {
			bare, _, _ := strings.Cut(ip, "/") // some write the mask with it
			address, err := ipam.ParseAddr(bare)
			if err != nil {
				return nil, false
			}
			addresses = append(addresses, address)
		}
	}
	return addresses, true
}

// ended reports whether a pod is over, or about to be.
func ended(p *reclaim.Pod) bool {
	return over(p) || !p.Deleted.IsZero()
}

func over(p *reclaim.Pod) bool { return p.Phase == reclaim.Succeeded || p.Phase == reclaim.Failed }

// podConcerns reports whether a change of a pod may leave an address to nobody. One
// that merely becomes ready does not.
func podConcerns(before, after *reclaim.Pod) bool {
	switch {
	case after == nil:
		return true
	case before == nil:
		return ended(after)
	case before.UID != after.UID:
		return true
	default:
		return !over(before) && over(after) || before.Deleted.IsZero() && !after.Deleted.IsZero()
	}
}
