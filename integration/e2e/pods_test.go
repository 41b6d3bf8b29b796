//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/e2e/cluster"
)

// pod is what the tests look at of a pod.
type pod struct {
	Metadata struct {
		Name              string
		Annotations       map[string]string
		DeletionTimestamp *time.Time
	}
	Spec   struct{ NodeName string }
	Status struct{ Phase string }
}

// pods are those with a label, in the default namespace.
func (w *world) pods(t *testing.T, label string) []pod {
	t.Helper()
	var list struct{ Items []pod }
	w.get(t, &list, "pods", "-l", label)
	return list.Items
}

// get decodes what kubectl gets.
func (w *world) get(t *testing.T, out any, args ...string) {
	t.Helper()
	text := w.kubectl(t, append([]string{"get", "-o", "json"}, args...)...)
	if err := unmarshal(text, out); err != nil {
		t.Fatalf("kubectl get %v: %v", args, err)
	}
}

func unmarshal(text string, out any) error { return json.Unmarshal([]byte(text), out) }

// addresses are a pod's on its second interface, as Multus tells them.
func (p pod) addresses() (addresses []netip.Addr) {
	var status []struct {
		Interface string
		IPs       []netip.Addr
	}
	// A pod without an interface yet has no such annotation.
	_ = json.Unmarshal([]byte(p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status)
	for _, s := range status {
		if s.Interface == "net1" {
			addresses = append(addresses, s.IPs...)
		}
	}
	return addresses
}

// distinct checks that each of the pods has one address of the range and no other has
// it, and answers the addresses.
func distinct(t *testing.T, pods []pod, within string) []netip.Addr {
	t.Helper()
	network := netip.MustParsePrefix(within)
	holders := map[netip.Addr]string{}
	for _, p := range pods {
		own := p.addresses()
		if len(own) != 1 || !network.Contains(own[0]) {
			t.Errorf("%s has %v on net1, want one address of %s", p.Metadata.Name, own, within)
			continue
		}
		if other := holders[own[0]]; other != "" {
			t.Errorf("%s and %s both have %s", other, p.Metadata.Name, own[0])
		}
		holders[own[0]] = p.Metadata.Name
	}
	var all []netip.Addr
	for address := range holders {
		all = append(all, address)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// running waits until so many pods with a label run.
func (w *world) running(t *testing.T, label string, n int) []pod {
	t.Helper()
	var found []pod
	eventually(t, fmt.Sprintf("%d pods %s run", n, label), func() error {
		found = w.pods(t, label)
		running := 0
		for _, p := range found {
			if p.Status.Phase == "Running" && p.Metadata.DeletionTimestamp == nil {
				running++
			}
		}
		if running != n || len(found) != n {
			return fmt.Errorf("%d of %d run", running, len(found))
		}
		return nil
	})
	return found
}

// eventually waits until there is no error.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	limit, err := time.ParseDuration(patience)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(limit); ; time.Sleep(300 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
	}
}

// held are the addresses that are recorded in a range's pools, with the pods' names.
func (w *world) held(t *testing.T, within string) map[netip.Addr]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ PodRef string }
		}
	}
	w.get(t, &list, "-n", "kube-system", "overlappingrangeipreservations")
	found := map[netip.Addr]string{}
	for _, item := range list.Items {
		address, err := netip.ParseAddr(item.Metadata.Name)
		if err == nil && netip.MustParsePrefix(within).Contains(address) {
			found[address] = item.Spec.PodRef
		}
	}
	return found
}

// freed waits until no address of a range is recorded.
func (w *world) freed(t *testing.T, within string) {
	t.Helper()
	eventually(t, "addresses of "+within+" are free", func() error {
		if held := w.held(t, within); len(held) > 0 {
			return fmt.Errorf("held: %v", held)
		}
		return nil
	})
	w.check(t)
}

// check looks for faults in the records on a node's shell, as a person would.
func (w *world) check(t *testing.T) {
	t.Helper()
	n := w.cluster.Nodes[0]
	if err := copyFile(w.cluster.Kubeconfig(), n.File("root/admin.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	if text, err := n.Run("/opt/cni/bin/ip-control", "check", "--kubeconfig", "/root/admin.kubeconfig"); err != nil {
		t.Errorf("ip-control check: %v\n%s", err, text)
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// reachable lets one pod of each node call all addresses.
func (w *world) reachable(t *testing.T, pods []pod, addresses []netip.Addr) {
	t.Helper()
	callers := map[string]string{}
	for _, p := range pods {
		callers[p.Spec.NodeName] = p.Metadata.Name
	}
	if len(callers) != len(w.cluster.Nodes) {
		t.Errorf("pods are on %d of %d nodes", len(callers), len(w.cluster.Nodes))
	}
	var texts []string
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	for node, caller := range callers {
		text, err := w.cluster.Kubectl("", append([]string{"exec", caller, "--", "pod", "call"}, texts...)...)
		if err != nil {
			t.Errorf("%s on %s calls the others: %v", caller, node, err)
			continue
		}
		greetings := strings.Fields(text)
		slices.Sort(greetings)
		if n := len(slices.Compact(greetings)); n != len(addresses) {
			t.Errorf("%s on %s was greeted by %d pods, want %d", caller, node, n, len(addresses))
		}
	}
}

// network is a NetworkAttachmentDefinition of a macvlan on the nodes' second
// interface.
func network(name, ipam string) string {
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": {"type": "whereabouts", %s}}`, name, ipam)
	return fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: %s}\nspec: {config: '%s'}\n", name, config)
}

// deployment keeps pods with a label app and a network, no more than its share on any
// node.
func deployment(name, network string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {k8s.v1.cni.cncf.io/networks: %[2]s}
    spec:
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: %[1]s}}
          matchLabelKeys: [pod-template-hash] # those that are being replaced do not count
      containers: [{name: pod, image: "%[4]s", imagePullPolicy: Never}]
`, name, network, replicas, cluster.PodImage)
}
