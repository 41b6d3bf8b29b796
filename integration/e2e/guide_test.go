//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// guide is the one for those who come from an older implementation.
const guide = "docs/upgrade.md"

// guided goes through the guide's commands, as they are printed, in a cluster that has
// an older installation, while pods start; and then back.
func (w *world) guided(t *testing.T) {
	const within = "10.70.0.0/24"
	older := w.older(t)
	w.kubectl(t, "apply", "-k", filepath.Join(w.manifests, "crds"))
	w.kubectl(t, "apply", "-f", older)
	w.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/whereabouts", "--timeout", patience)
	n := 2 * len(w.cluster.Nodes)
	w.create(t, network("guided", `"range": "`+within+`"`), deployment("guided", "guided", n))
	addresses := distinct(t, w.running(t, "app=guided", n), within)
	scale := func(more int) {
		n += more
		w.kubectl(t, "scale", "deployment/guided", "--replicas", strconv.Itoa(n))
	}

	commands := printed(t, "Step by step")
	if len(commands) < 10 {
		t.Fatalf("the guide has the commands %q", commands)
	}
	for _, line := range commands {
		if strings.Contains(line, "apply") {
			scale(1)
		}
		w.printed(t, line)
	}
	w.rolledOut(t)
	w.ours(t)
	pods := w.running(t, "app=guided", n)
	for _, address := range addresses {
		if !slices.ContainsFunc(pods, func(p pod) bool { return slices.Contains(p.addresses(), address) }) {
			t.Errorf("no pod has %s any more", address)
		}
	}
	distinct(t, pods, within)
	w.check(t)

	for _, line := range printed(t, "Back") {
		w.printed(t, line)
		if strings.Contains(line, "older-plugin") {
			w.kubectl(t, "-n", "kube-system", "delete", "deployment/whereabouts-controller")
			w.kubectl(t, "apply", "-f", older)
			w.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/whereabouts", "--timeout", patience)
			scale(len(w.cluster.Nodes))
		}
	}
	distinct(t, w.running(t, "app=guided", n), within)
	w.noSandboxFailed(t, "guided")
	w.kubectl(t, "delete", "deployment/guided", "--wait")
	w.freed(t, within)
	w.kubectl(t, "delete", "network-attachment-definition/guided")
}

// older is an older installation, of our image.
func (w *world) older(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(w.t.TempDir(), "older.yaml") // kubectl takes a comma in a path for the end of it
	if err := copyFile("testdata/older.yaml", file); err != nil {
		t.Fatal(err)
	}
	replaceIn(t, file, "VERSION", os.Getenv(versionVariable))
	return file
}

// ours looks that nothing is left of the older installation.
func (w *world) ours(t *testing.T) {
	t.Helper()
	text := w.kubectl(t, "-n", "kube-system", "get", "daemonset/whereabouts", "-o", "yaml")
	for _, left := range []string{"privileged: true", "cron-scheduler-configmap", "cpu: 100m"} {
		if strings.Contains(strings.ReplaceAll(text, `"privileged":true`, ""), left) {
			t.Errorf("the DaemonSet still has %q:\n%s", left, text)
		}
	}
	for _, object := range []string{"cronjob/ip-reconciler", "clusterrolebinding/whereabouts", "role/whereabouts-older-plugin"} {
		if _, err := w.cluster.Kubectl("", "-n", "kube-system", "get", object); err == nil {
			t.Errorf("%s is left", object)
		}
	}
}

// printed are the lines of a section of the guide that call kubectl.
func printed(t *testing.T, section string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, guide))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    kubectl ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// printed runs a line of the guide.
func (w *world) printed(t *testing.T, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " > ")
	args := strings.Fields(line)[1:]
	for i, arg := range args {
		args[i] = strings.Trim(arg, "'")
		if rest, ok := strings.CutPrefix(arg, "manifests/"); ok {
			args[i] = filepath.Join(w.manifests, rest)
		}
	}
	w.kubectl(t, args...)
}
