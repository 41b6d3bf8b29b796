//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// slices is the README's example, which is the manual's.
func (w *world) slices(t *testing.T) {
	const within = "10.5.0.0/20"
	ipam := strings.TrimPrefix(readme(t, `"ipam": {"type": "whereabouts", "range": "10.5.0.0/20"`), `"ipam": {"type": "whereabouts", `)
	n := 2 * len(w.cluster.Nodes)
	w.create(t, network("fast", strings.TrimSuffix(ipam, "}")), deployment("fast", "fast", n))
	pods := w.running(t, "app=fast", n)
	addresses := distinct(t, pods, within)
	w.reachable(t, pods, addresses)

	ranges := w.sliced(t, "fast", 16)
	for _, p := range pods {
		own := p.addresses()
		if len(own) != 1 || !ranges[p.Spec.NodeName].Contains(own[0]) {
			t.Errorf("%s on %s has %v, not in the node's slice %s", p.Metadata.Name, p.Spec.NodeName, own, ranges[p.Spec.NodeName])
		}
	}
	if len(addresses) == 0 || addresses[0].String() != "10.5.0.1" {
		t.Errorf("the lowest address is not 10.5.0.1: %v", addresses)
	}
	w.firstHasMask(t, pods, "10.5.0.1/20")
	w.check(t)
	w.kubectl(t, "delete", "deployment/fast", "--wait")
	w.freed(t, within)
	w.kubectl(t, "delete", "network-attachment-definition/fast")
}

// firstHasMask looks at the interface itself: Multus does not tell the mask.
func (w *world) firstHasMask(t *testing.T, pods []pod, want string) {
	t.Helper()
	address, _, _ := strings.Cut(want, "/")
	for _, p := range pods {
		if own := p.addresses(); len(own) != 1 || own[0].String() != address {
			continue
		}
		if text := w.kubectl(t, "exec", p.Metadata.Name, "--", "pod", "addresses"); !strings.Contains(text, "net1 "+want+"\n") {
			t.Errorf("the first pod has not %s on net1 but\n%s", want, text)
		}
		return
	}
	t.Errorf("no pod has %s", address)
}

// resliced changes the size of slices before anybody uses them: no pool of a node is
// there yet that could be closed.
func (w *world) resliced(t *testing.T) {
	const within = "10.6.0.0/20"
	of := func(size string) string {
		return network("resliced", `"range": "`+within+`", "node_slice_size": "`+size+`"`)
	}
	w.create(t, of("/23"))
	w.sliced(t, "resliced", 8)
	w.create(t, of("/24"))
	ranges := w.sliced(t, "resliced", 16)

	n := len(w.cluster.Nodes)
	w.create(t, deployment("resliced", "resliced", n))
	pods := w.running(t, "app=resliced", n)
	distinct(t, pods, within)
	for _, p := range pods {
		if own := p.addresses(); len(own) != 1 || !ranges[p.Spec.NodeName].Contains(own[0]) {
			t.Errorf("%s on %s has %v, not in the node's slice %s", p.Metadata.Name, p.Spec.NodeName, own, ranges[p.Spec.NodeName])
		}
	}
	w.kubectl(t, "delete", "deployment/resliced", "--wait")
	w.freed(t, within)
	w.kubectl(t, "delete", "network-attachment-definition/resliced")
}

// sliced waits until a network has so many slices and each node has one, and answers
// which.
func (w *world) sliced(t *testing.T, network string, n int) map[string]netip.Prefix {
	t.Helper()
	var ranges map[string]netip.Prefix
	eventually(t, fmt.Sprintf("each node has one of %d slices of %s", n, network), func() error {
		var slice struct {
			Status struct {
				Allocations []struct{ NodeName, SliceRange string }
			}
		}
		text, err := w.cluster.Kubectl("", "get", "-o", "json", "-n", "kube-system", "nodeslicepool", network)
		if err != nil {
			return err
		}
		if err := unmarshal(text, &slice); err != nil {
			return err
		}
		ranges = map[string]netip.Prefix{}
		for _, a := range slice.Status.Allocations {
			if a.NodeName != "" {
				ranges[a.NodeName] = netip.MustParsePrefix(a.SliceRange)
			}
		}
		if len(slice.Status.Allocations) != n || len(ranges) != len(w.cluster.Nodes) {
			return fmt.Errorf("there are %d slices, and %d nodes have one", len(slice.Status.Allocations), len(ranges))
		}
		return nil
	})
	return ranges
}
