//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/e2e/cluster"
)

// installation is what the README calls the whole of it, in kube-system.
var installation = []string{"daemonset/whereabouts", "deployment/whereabouts-reconciler", "deployment/whereabouts-controller"}

// uninstall is the README's by kubectl, command by command.
func (w *world) uninstall(t *testing.T) {
	w.command(t, "kubectl -n kube-system delete -f manifests/base/plugin.yaml")
	w.removed(t)
}

// helm goes through the README's commands of Helm.
func (w *world) helm(t *testing.T) {
	const within = "10.69.0.0/24"
	version, next := w.nextVersion(t)
	values := filepath.Join(w.manifests, "chart/values.yaml")
	replaceIn(t, values, "tag: latest", "tag: "+version)
	w.command(t, "helm install whereabouts")
	w.rolledOut(t)
	w.check(t)

	n := 4 * len(w.cluster.Nodes)
	w.create(t, network("chart", `"range": "`+within+`"`), deployment("chart", "chart", n))
	replaceIn(t, values, "tag: "+version, "tag: "+next)
	w.command(t, "helm upgrade whereabouts")
	w.rolledOut(t)
	addresses := distinct(t, w.running(t, "app=chart", n), within)
	w.noSandboxFailed(t, "chart")

	w.command(t, "helm uninstall whereabouts")
	if held := w.held(t, within); len(held) != len(addresses) {
		t.Errorf("uninstalled, %d addresses are recorded, want %d", len(held), len(addresses))
	}
	// What kubectl makes now, on top of the definitions that Helm left, Helm takes over.
	w.apply(t)
	w.command(t, "helm install whereabouts", "--take-ownership")
	w.rolledOut(t)
	if got := distinct(t, w.running(t, "app=chart", n), within); !slices.Equal(got, addresses) {
		t.Errorf("the pods have %v now, and had %v", got, addresses)
	}
	w.kubectl(t, "delete", "deployment/chart", "--wait")
	w.freed(t, within)
	w.kubectl(t, "delete", "network-attachment-definition/chart")
	w.command(t, "helm uninstall whereabouts")
	w.removed(t)
}

// nextVersion gives the image another tag, too, and answers both.
func (w *world) nextVersion(t *testing.T) (version, next string) {
	t.Helper()
	version, next = os.Getenv(versionVariable), "next"
	w.each(func(n *cluster.Node) {
		image := "ghcr.io/whereabouts-cni/whereabouts:"
		if _, err := n.Run("/tools/ctr", "-n", "k8s.io", "images", "tag", "--force", image+version, image+next); err != nil {
			t.Fatal(err)
		}
	})
	return version, next
}

// command runs the README's command that starts with some words. What the README says
// of manifests/ is true of our copy of it.
func (w *world) command(t *testing.T, first string, more ...string) {
	t.Helper()
	line, _, _ := strings.Cut(strings.ReplaceAll(readme(t, first), "\\\n", " "), "\n")
	line, _, _ = strings.Cut(line, " #")
	fields := append(strings.Fields(line), more...)
	for i, field := range fields {
		if rest, ok := strings.CutPrefix(field, "manifests/"); ok {
			fields[i] = filepath.Join(w.manifests, rest)
		}
	}
	if fields[0] != "helm" {
		w.kubectl(t, fields[1:]...)
		return
	}
	if text, err := w.cluster.Helm(fields[1:]...); err != nil {
		t.Fatalf("%v: %v\n%s", fields, err, text)
	}
}

// removed looks that nothing runs any more and the records are kept; then it cleans the
// nodes and removes the records as the README says.
func (w *world) removed(t *testing.T) {
	t.Helper()
	for _, object := range installation {
		if _, err := w.cluster.Kubectl("", "-n", "kube-system", "get", object); err == nil {
			t.Errorf("%s is left", object)
		}
	}
	w.kubectl(t, "get", "crd", "ippools.whereabouts.cni.cncf.io")
	onNode := readme(t, "CNI_BIN_DIR=")
	w.each(func(n *cluster.Node) {
		if text, err := n.Run("sh", "-c", onNode); err != nil {
			t.Errorf("uninstalling on %s: %v\n%s", n.Name, err, text)
		}
		for _, name := range []string{"opt/cni/bin/whereabouts", "opt/cni/bin/ip-control", "etc/cni/net.d/whereabouts.d"} {
			if _, err := os.Lstat(n.File(name)); err == nil {
				t.Errorf("%s is left on %s", name, n.Name)
			}
		}
		if left, _ := filepath.Glob(n.File("opt/cni/bin/.whereabouts-*")); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	})
	w.command(t, "kubectl delete -k manifests/crds")
}
