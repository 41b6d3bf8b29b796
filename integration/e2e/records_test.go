//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/e2e/cluster"
)

// verbs calls the plugin on a node as a runtime does in cases that are rare: a
// container that takes over its predecessor's address, and the questions of CNI 1.1.
func (w *world) verbs(t *testing.T) {
	const within = "10.65.0.0/24"
	w.create(t, network("byhand", `"range": "`+within+`"`))
	n := w.cluster.Nodes[0]
	first := w.call(t, n, "ADD", "sandbox-1", within)
	second := w.call(t, n, "ADD", "sandbox-2", within)
	if !strings.Contains(first, "10.65.0.1/24") || !strings.Contains(second, "10.65.0.1/24") {
		t.Errorf("the pod's sandboxes got\n%s\nand\n%s\nwant 10.65.0.1/24 for both", first, second)
	}
	w.call(t, n, "STATUS", "", within)
	w.call(t, n, "GC", "", within)
	if held := w.held(t, within); len(held) != 1 {
		t.Errorf("held after GC, which keeps what is young: %v", held)
	}
	w.call(t, n, "DEL", "sandbox-1", within)
	if held := w.held(t, within); len(held) != 1 {
		t.Errorf("held after the DEL of the first sandbox: %v", held)
	}
	w.call(t, n, "DEL", "sandbox-2", within)
	w.freed(t, within)
	w.kubectl(t, "delete", "network-attachment-definition/byhand")
}

// call calls the plugin on a node and answers what it prints.
func (w *world) call(t *testing.T, n *cluster.Node, verb, container, within string) string {
	t.Helper()
	cmd := n.Command("/opt/cni/bin/whereabouts")
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_NETNS=/run/netns/byhand", "CNI_IFNAME=net1", "CNI_PATH=/opt/cni/bin",
		"CNI_ARGS=K8S_POD_NAMESPACE=default;K8S_POD_NAME=byhand;K8S_POD_UID=5b0d9c6e-6d50-4f0e-9d0e-0f8f3b7a9f11",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.1.0", "name": "byhand", "type": "macvlan", "cni.dev/valid-attachments": [], "ipam": {"type": "whereabouts", "range": %q}}`, within))
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s on %s: %v\n%s", verb, n.Name, err, text)
	}
	return string(text)
}

// damaged takes away records of pods that live. reconcile makes them again; those of a
// whole pool when somebody has written to it again, since only then it is known to be no
// slice of a node.
func (w *world) damaged(t *testing.T) {
	const within, pool = "10.66.0.0/24", "ippool/10.66.0.0-24"
	w.create(t, network("damaged", `"range": "`+within+`"`), deployment("damaged", "damaged", 4))
	addresses := distinct(t, w.running(t, "app=damaged", 4), within)
	w.kubectl(t, "-n", "kube-system", "delete", "overlappingrangeipreservation/"+addresses[0].String())
	w.restored(t, within, addresses)
	w.kubectl(t, "-n", "kube-system", "patch", pool, "--type=json", "-p", `[{"op": "remove", "path": "/spec/allocations/2"}]`)
	w.restored(t, within, addresses)
	w.kubectl(t, "-n", "kube-system", "delete", pool)
	w.kubectl(t, "scale", "deployment/damaged", "--replicas", "5")
	w.restored(t, within, distinct(t, w.running(t, "app=damaged", 5), within))
	w.kubectl(t, "delete", "deployment/damaged", "--wait")
	w.freed(t, within)
	w.kubectl(t, "delete", "network-attachment-definition/damaged")
}

// restored waits until addresses have both their records.
func (w *world) restored(t *testing.T, within string, addresses []netip.Addr) {
	t.Helper()
	eventually(t, "the records are whole again", func() error {
		var pool struct {
			Spec struct{ Allocations map[string]any }
		}
		if text, err := w.cluster.Kubectl("", "-n", "kube-system", "get", "ippool", strings.ReplaceAll(within, "/", "-"), "-o", "json"); err != nil {
			return err
		} else if err := unmarshal(text, &pool); err != nil {
			return err
		}
		held := w.held(t, within)
		if len(held) != len(addresses) || len(pool.Spec.Allocations) != len(addresses) {
			return fmt.Errorf("there are %d reservations and %d entries, want %d of each", len(held), len(pool.Spec.Allocations), len(addresses))
		}
		return nil
	})
	w.check(t)
}

// badDefinition is told to who made it.
func (w *world) badDefinition(t *testing.T) {
	w.create(t, network("bad", `"range": "10.67.0.0/24", "node_slice_size": "/20"`))
	eventually(t, "an event says what is wrong", func() error {
		text, err := w.cluster.Kubectl("", "describe", "network-attachment-definition", "bad")
		if err == nil && !strings.Contains(text, "node_slice_size") {
			err = fmt.Errorf("not in\n%s", text)
		}
		return err
	})
	w.kubectl(t, "delete", "network-attachment-definition/bad")
}

// unused waits until the pools are removed that no definition names.
func (w *world) unused(t *testing.T) {
	w.kubectl(t, "delete", "network-attachment-definition", "--all")
	eventually(t, "pools that nobody uses are removed", func() error {
		text, err := w.cluster.Kubectl("", "-n", "kube-system", "get", "ippools", "-o", "name")
		for name := range strings.Lines(text) {
			if !strings.Contains(name, "node") { // those of slices stay for a while
				return fmt.Errorf("there is %s", strings.TrimSpace(name))
			}
		}
		return err
	})
}

// shell is a person on a node, with the credentials that lie there.
func (w *world) shell(t *testing.T) {
	const within = "10.68.0.0/24"
	w.create(t, network("who", `"range": "`+within+`"`), deployment("who", "who", 1))
	p := w.running(t, "app=who", 1)[0]
	own := distinct(t, []pod{p}, within)
	w.each(func(n *cluster.Node) {
		text, err := n.Run("/opt/cni/bin/ip-control", "show", own[0].String())
		if err != nil || !strings.Contains(text, p.Metadata.Name) {
			t.Errorf("who has %s, asked on %s: %v\n%s\nwant %s", own[0], n.Name, err, text, p.Metadata.Name)
		}
	})
	w.kubectl(t, "delete", "deployment/who", "--wait")
	w.freed(t, within)
}
