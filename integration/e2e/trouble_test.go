//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/e2e/cluster"
)

// replaced scales up while a kubelet is killed, the DaemonSet's pods are replaced, and
// with them the tokens, which end with the pod that they belong to.
func (w *world) replaced(t *testing.T) {
	const within = "10.62.0.0/24"
	n := 10 * len(w.cluster.Nodes)
	tokens := w.tokens(t)
	w.create(t, network("moving", `"range": "`+within+`"`), deployment("moving", "moving", 0))
	w.kubectl(t, "scale", "deployment/moving", "--replicas", fmt.Sprint(n))
	w.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/whereabouts")
	if err := w.cluster.Nodes[0].KillKubelet(); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/whereabouts", "--timeout", patience)
	w.kubectl(t, "scale", "deployment/moving", "--replicas", fmt.Sprint(2*n))
	pods := w.running(t, "app=moving", 2*n)
	addresses := distinct(t, pods, within)
	w.reachable(t, pods, addresses)
	for node, token := range w.tokens(t) {
		if token == tokens[node] {
			t.Errorf("%s has the token that it had before its DaemonSet's pod was replaced", node)
		}
	}
	w.noSandboxFailed(t, "moving")
	w.kubectl(t, "delete", "deployment/moving", "--wait")
	w.freed(t, within)
}

// tokens are the nodes' credentials of the plugin.
func (w *world) tokens(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	w.each(func(n *cluster.Node) {
		data, err := os.ReadFile(n.File("etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		found[n.Name] = string(data)
	})
	return found
}

// noSandboxFailed looks for pods that were told no, even if they ran later. Multus gives
// the API server a second, which this machine may not have.
func (w *world) noSandboxFailed(t *testing.T, prefix string) {
	t.Helper()
	var events struct {
		Items []struct {
			Message        string
			InvolvedObject struct{ Name string }
		}
	}
	w.get(t, &events, "events", "--field-selector", "reason=FailedCreatePodSandBox")
	for _, event := range events.Items {
		if strings.HasPrefix(event.InvolvedObject.Name, prefix) && !strings.Contains(event.Message, "error waiting for pod") {
			t.Errorf("%s could not start at first: %s", event.InvolvedObject.Name, event.Message)
		}
	}
}

// powerCut cuts the last node's power and brings it back.
func (w *world) powerCut(t *testing.T) {
	if len(w.cluster.Nodes) < 2 {
		t.Skip("SKIPPED: it takes two nodes")
	}
	const within = "10.63.0.0/24"
	dead := w.cluster.Nodes[len(w.cluster.Nodes)-1]
	n := 5 * len(w.cluster.Nodes)
	w.create(t, network("power", `"range": "`+within+`"`), leaving(t, deployment("power", "power", n)))
	lost := map[string]bool{}
	for _, p := range w.running(t, "app=power", n) {
		if p.Spec.NodeName == dead.Name {
			lost["default/"+p.Metadata.Name] = true
		}
	}
	if len(lost) == 0 {
		t.Fatalf("no pod is on %s", dead.Name)
	}
	dead.CutPower()

	eventually(t, "the pods of the dead node are marked", func() error {
		for _, p := range w.pods(t, "app=power") {
			if lost["default/"+p.Metadata.Name] && p.Metadata.DeletionTimestamp == nil {
				return fmt.Errorf("%s is not", p.Metadata.Name)
			}
		}
		return nil
	})
	marked := time.Now()
	eventually(t, "their addresses are free", func() error {
		for address, pod := range w.held(t, within) {
			if lost[pod] {
				return fmt.Errorf("%s holds %s", pod, address)
			}
		}
		return nil
	})
	took := time.Since(marked)
	t.Logf("the %d addresses of the dead node were free %s after its pods were marked", len(lost), took.Round(100*time.Millisecond))
	if took > time.Minute {
		t.Errorf("it took %s until the addresses were free, want at most a minute", took)
	}

	if err := dead.PowerOn(); err != nil {
		t.Fatal(err)
	}
	if err := dead.Ready(); err != nil {
		t.Fatal(err)
	}
	w.rolledOut(t)
	pods := w.running(t, "app=power", n)
	distinct(t, pods, within)
	for _, p := range pods {
		if lost["default/"+p.Metadata.Name] {
			t.Errorf("%s lives again", p.Metadata.Name)
		}
	}
	if held := w.held(t, within); len(held) != n {
		t.Errorf("recorded are %v, want %d", held, n)
	}
	// Those on the node that came back can be new ones only.
	w.kubectl(t, "rollout", "restart", "deployment/power")
	w.kubectl(t, "rollout", "status", "deployment/power", "--timeout", patience)
	pods = w.running(t, "app=power", n)
	if addresses := distinct(t, pods, within); len(addresses) == n {
		w.reachable(t, pods, addresses)
	}
	w.check(t)
	w.kubectl(t, "delete", "deployment/power", "--wait")
	w.freed(t, within)
}

// leaving lets pods leave a dead node as soon as Kubernetes marks it.
func leaving(t *testing.T, deployment string) string {
	t.Helper()
	deployment = replaced(t, deployment, "DoNotSchedule", "ScheduleAnyway")
	return replaced(t, deployment, "      terminationGracePeriodSeconds", `      tolerations:
        - {key: node.kubernetes.io/unreachable, effect: NoExecute, operator: Exists, tolerationSeconds: 0}
        - {key: node.kubernetes.io/not-ready, effect: NoExecute, operator: Exists, tolerationSeconds: 0}
      terminationGracePeriodSeconds`)
}

// upgrade is the README's, to another tag of the image, while pods start.
func (w *world) upgrade(t *testing.T) {
	const within = "10.64.0.0/24"
	version, next := w.nextVersion(t)
	n := 10 * len(w.cluster.Nodes)
	w.create(t, network("upgrade", `"range": "`+within+`"`), deployment("upgrade", "upgrade", n))
	w.tag(t, version, next)
	w.apply(t)
	distinct(t, w.running(t, "app=upgrade", n), within)
	w.noSandboxFailed(t, "upgrade")
	w.apart(t, "app=whereabouts-reconciler")
	w.apart(t, "app=whereabouts-controller")
	w.kubectl(t, "delete", "deployment/upgrade", "--wait")
	w.freed(t, within)
}

// apart looks that both replicas of a Deployment are not on one node: what frees the
// addresses of a dead node must not die with it.
func (w *world) apart(t *testing.T, label string) {
	t.Helper()
	var list struct{ Items []pod }
	w.get(t, &list, "-n", "kube-system", "pods", "-l", label)
	nodes := map[string]bool{}
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp == nil {
			nodes[p.Spec.NodeName] = true
		}
	}
	if len(nodes) < min(2, len(w.cluster.Nodes)) {
		t.Errorf("all pods of %s are on %v", label, nodes)
	}
}
