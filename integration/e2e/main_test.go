//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/e2e/cluster"
)

// Settings of `make e2e`.
const (
	versionVariable = "E2E_VERSION" // of the image in dist/
	nodesVariable   = "E2E_NODES"   // 1 to 9; 3 if not set
)

const repository = "../.."

func TestMain(m *testing.M) {
	cluster.RunNode()
	os.Exit(m.Run())
}

// TestCluster goes through the life of an installation, in one cluster. The parts
// build on the first; each ends with a look at what is recorded.
func TestCluster(t *testing.T) {
	w := newWorld(t)
	if !t.Run("install", w.install) {
		return
	}
	w.run("the network of the quick start", w.quickStart)
	w.run("20 pods at once on each node", w.crowd)
	w.run("pods of StatefulSets and Jobs", w.workloads)
	w.run("node slices", w.slices)
	w.run("node slices of another size", w.resliced)
	w.run("scaling while everything is replaced", w.replaced)
	w.run("the power of a node is cut", w.powerCut)
	w.run("upgrade", w.upgrade)
	w.run("what only runtimes do", w.verbs)
	w.run("records that were damaged", w.damaged)
	w.run("a bad definition", w.badDefinition)
	w.run("what nobody uses any more", w.unused)
	w.run("what service accounts did", w.audit)
	w.run("a node's shell", w.shell)
	w.run("uninstall", w.uninstall)
	w.run("by Helm", w.helm)
	w.run("from an older installation, and back", w.guided)
}

// world is the cluster of the tests.
type world struct {
	t         *testing.T
	cluster   *cluster.Cluster
	manifests string // a copy in which the image has its tag
}

func newWorld(t *testing.T) *world {
	if err := cluster.Needs(); err != nil {
		t.Fatalf("this machine cannot run a cluster:\n%v", err)
	}
	programs, err := cluster.Build(t.Context(), repository, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "whereabouts-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.cluster, err = cluster.Start(cluster.Options{Nodes: nodes(t), Dir: dir, Programs: programs})
	t.Cleanup(func() {
		w.cluster.Close()
		if t.Failed() {
			t.Logf("logs of the control plane and of the nodes are in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func nodes(t *testing.T) int {
	text := os.Getenv(nodesVariable)
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%s is no number of nodes", nodesVariable, text)
	}
	return n
}

// run is a part of the test, which nothing is left of afterwards.
func (w *world) run(name string, part func(t *testing.T)) {
	w.t.Run(name, func(t *testing.T) {
		part(t)
		if t.Failed() {
			w.tell(t)
		}
	})
}

// tell logs what helps to understand a failure.
func (w *world) tell(t *testing.T) {
	for _, args := range [][]string{
		{"get", "pods", "--all-namespaces", "-o", "wide"},
		{"get", "events", "--all-namespaces", "--field-selector", "type=Warning", "--sort-by", "lastTimestamp"},
	} {
		text, err := w.cluster.Kubectl("", args...)
		t.Logf("kubectl %v: %v\n%s", args, err, text)
	}
}

// install brings the image to every node, since there is no registry, and applies the
// manifests, in which only the image's tag is set.
func (w *world) install(t *testing.T) {
	version := os.Getenv(versionVariable)
	if version == "" {
		t.Fatalf("%s is not set: run this by `make e2e`", versionVariable)
	}
	if err := w.cluster.Load(filepath.Join(repository, "dist/whereabouts-image.tar")); err != nil {
		t.Fatal(err)
	}
	w.manifests = filepath.Join(w.t.TempDir(), "manifests")
	if err := os.CopyFS(w.manifests, os.DirFS(filepath.Join(repository, "manifests"))); err != nil {
		t.Fatal(err)
	}
	w.tag(t, "latest", version)
	w.apply(t)
	w.check(t)
}

func (w *world) each(f func(*cluster.Node)) {
	for _, n := range w.cluster.Nodes {
		f(n)
	}
}

// tag names another tag of the image.
func (w *world) tag(t *testing.T, from, to string) {
	t.Helper()
	replaceIn(t, filepath.Join(w.manifests, "base/kustomization.yaml"), "newTag: "+from, "newTag: "+to)
}

// apply is the command of the README, and the wait after it.
func (w *world) apply(t *testing.T) {
	t.Helper()
	w.kubectl(t, "apply", "-k", filepath.Join(w.manifests, "base"))
	w.rolledOut(t)
}

func (w *world) rolledOut(t *testing.T) {
	t.Helper()
	for _, name := range installation {
		w.kubectl(t, "-n", "kube-system", "rollout", "status", name, "--timeout", patience)
	}
}

// patience is how long something may take. It takes seconds; the rest is for machines
// that are busy.
const patience = "5m"

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	text, err := w.cluster.Kubectl("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// create makes objects of YAML documents.
func (w *world) create(t *testing.T, documents ...string) {
	t.Helper()
	for _, document := range documents {
		if _, err := w.cluster.Kubectl(document, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
}
