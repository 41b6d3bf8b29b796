//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/e2e/cluster"
)

// replaceIn replaces text of a file, which has to be there.
func replaceIn(t *testing.T, path, from, to string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := replaced(t, string(data), from, to)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replaced(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("there is no %q in\n%s", from, text)
	}
	return strings.ReplaceAll(text, from, to)
}

// readme is the README's block of indented lines that starts with a line, without the
// indentation.
func readme(t *testing.T, first string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var block []string
	for line := range strings.Lines(string(data)) {
		inside := strings.TrimPrefix(line, "    ")
		if inside == line && strings.TrimSpace(line) != "" {
			if block != nil {
				break
			}
			continue
		}
		if block != nil || strings.HasPrefix(inside, first) {
			block = append(block, inside)
		}
	}
	if block == nil {
		t.Fatalf("README.md has no block that starts with %q", first)
	}
	return strings.TrimSpace(strings.Join(block, ""))
}

// quickStart is the README's example as printed, but for an image that is there.
func (w *world) quickStart(t *testing.T) {
	text := readme(t, "kubectl apply -f - <<END")
	text = strings.TrimSuffix(strings.TrimPrefix(text, "kubectl apply -f - <<END\n"), "\nEND")
	w.create(t, replaced(t, text, "image: busybox", `image: "`+cluster.PodImage+`"`))
	pods := w.running(t, "app=hello", 3)
	addresses := distinct(t, pods, "192.168.50.0/24")
	lowest, highest := netip.MustParseAddr("192.168.50.100"), netip.MustParseAddr("192.168.50.109")
	if len(addresses) != 3 || addresses[0] != lowest || addresses[2].Compare(highest) > 0 {
		t.Errorf("the pods have %v, and the README promises the first from .100 on", addresses)
	}
	if held := w.held(t, "192.168.50.0/24"); len(held) != 3 {
		t.Errorf("recorded are %v, want the three addresses", held)
	}
	w.kubectl(t, "-n", "kube-system", "get", "ippool", "192.168.50.0-24", "-o", "yaml")
	w.check(t)
	w.kubectl(t, "delete", "deployment/hello", "network-attachment-definition/storage", "--wait")
	w.freed(t, "192.168.50.0/24")
}

func (w *world) crowd(t *testing.T) {
	const within, perNode = "10.60.0.0/24", 20
	n := perNode * len(w.cluster.Nodes)
	w.create(t, network("crowd", `"range": "`+within+`"`), deployment("crowd", "crowd", n))
	pods := w.running(t, "app=crowd", n)
	addresses := distinct(t, pods, within)
	w.reachable(t, pods, addresses)
	if held := w.held(t, within); len(held) != n {
		t.Errorf("%d addresses are recorded, want %d", len(held), n)
	}
	w.check(t)
	w.kubectl(t, "scale", "deployment/crowd", "--replicas", "5")
	kept := distinct(t, w.running(t, "app=crowd", 5), within)
	eventually(t, "the others' addresses are free", func() error {
		if held := w.held(t, within); len(held) != len(kept) {
			return fmt.Errorf("%d are held", len(held))
		}
		return nil
	})
	w.kubectl(t, "delete", "deployment/crowd", "--wait")
	w.freed(t, within)
}

func (w *world) workloads(t *testing.T) {
	const within = "10.61.0.0/29" // five addresses: one that is lost is missed
	set := replaced(t, deployment("db", "san", 3), "kind: Deployment", "kind: StatefulSet")
	set = replaced(t, set, "spec:\n  replicas", "spec:\n  serviceName: db\n  podManagementPolicy: Parallel\n  replicas")
	w.create(t, network("san", `"range": "`+within+`"`), set)
	before := distinct(t, w.running(t, "app=db", 3), within)

	w.kubectl(t, "delete", "pod", "db-1", "--wait")
	distinct(t, w.running(t, "app=db", 3), within)
	w.create(t, job("first"), job("second"))
	for _, name := range []string{"first", "second"} {
		w.kubectl(t, "wait", "--for=condition=complete", "job/"+name, "--timeout", patience)
	}
	// The pods of the jobs are still there, and hold nothing.
	if left := len(w.pods(t, "app=job")); left != 2 {
		t.Errorf("%d pods of the two jobs are left, want 2", left)
	}
	eventually(t, "finished jobs hold no address", func() error {
		if held := w.held(t, within); len(held) != len(before) {
			return fmt.Errorf("held: %v", held)
		}
		return nil
	})
	w.kubectl(t, "scale", "statefulset/db", "--replicas", "5")
	distinct(t, w.running(t, "app=db", 5), within)
	w.check(t)
	w.kubectl(t, "delete", "statefulset/db", "job/first", "job/second", "--wait", "--cascade=foreground")
	w.freed(t, within)
}

// job is one that ends at once.
func job(name string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  template:
    metadata:
      labels: {app: job}
      annotations: {k8s.v1.cni.cncf.io/networks: san}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      containers: [{name: pod, image: "%s", imagePullPolicy: Never, command: ["true"]}]
`, name, cluster.PodImage)
}
