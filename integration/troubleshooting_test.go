package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const troubleshooting = "../docs/troubleshooting.md"

// Each message that the page on troubleshooting quotes is one that the plugin gives in
// that trouble, and is quoted word for word.
func TestTroubleshootingQuotesRealMessages(t *testing.T) {
	t.Parallel()
	page := readPage(t)
	for name, trouble := range map[string]struct {
		provoke func(t *testing.T, c *cluster) string
		quoted  []string // in the page
	}{
		"a full pool": {func(t *testing.T, c *cluster) string {
			n, full := newNode(t, "node-1"), c.ranged("10.17.0.0/30")
			n.add(t, pod("a"), full).ok(t)
			n.add(t, pod("b"), full).ok(t)
			return n.add(t, pod("c"), full).fails(t, 11)
		}, []string{"no free address"}},
		"an address that is held": {func(t *testing.T, c *cluster) string {
			n, net := newNode(t, "node-1"), c.ranged("10.17.0.0/24")
			n.add(t, pod("a"), net).gets(t, "10.17.0.1/24")
			return n.run(t, call{command: "ADD", sandbox: pod("b"), config: net, args: []string{"IP=10.17.0.1"}}).fails(t, 11)
		}, []string{"is held by"}},
		"a node without a slice": {func(t *testing.T, c *cluster) string {
			return newNode(t, "node-1").add(t, pod("a"), c.fast(nil)).fails(t, 11)
		}, []string{"no slice"}},
		"a mistake in the network": {func(t *testing.T, c *cluster) string {
			return newNode(t, "node-1").add(t, pod("a"), c.config("net-a", Object{"range": "10.17.0.0"})).fails(t, 7)
		}, []string{"invalid network configuration"}},
		"no API server": {func(t *testing.T, c *cluster) (text string) {
			n, net := newNode(t, "node-1"), c.ranged("10.17.0.0/24")
			n.add(t, pod("a"), net).ok(t)
			c.withoutServer(t, func() { text = n.add(t, pod("b"), net).fails(t, 11) })
			return text
		}, []string{"datastore is not available"}},
		"no rights": {func(t *testing.T, c *cluster) string {
			denied := c.cp.Kubeconfig(t, testenv.Options{Namespace: c.namespace, User: testenv.User2})
			return newNode(t, "node-1").add(t, pod("a"), withIPAM(c.ranged("10.17.0.0/24"), Object{"kubernetes": Object{"kubeconfig": denied}})).fails(t, 102)
		}, []string{"datastore refuses"}},
		"no installation": {func(t *testing.T, c *cluster) string {
			lost := Object{"kubernetes": Object{"kubeconfig": "/nowhere/kubeconfig"}}
			return newNode(t, "node-1").add(t, pod("a"), withIPAM(c.ranged("10.17.0.0/24"), lost)).fails(t, 7)
		}, []string{"is whereabouts installed on this node?"}},
		"a pool that cannot be read": {func(t *testing.T, c *cluster) string {
			c.seedPool("10.17.0.0-24", "10.17.0.0", Object{})
			t.Cleanup(func() { c.cp.Must(t).Delete(c.path("ippools") + "/10.17.0.0-24") })
			return newNode(t, "node-1").add(t, pod("a"), c.ranged("10.17.0.0/24")).fails(t, 101)
		}, []string{"cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := trouble.provoke(t, newCluster(t))
			for _, quoted := range trouble.quoted {
				if !strings.Contains(text, quoted) {
					t.Errorf("the message is %q, want one with %q", text, quoted)
				}
				if !strings.Contains(page, quoted) {
					t.Errorf("the page does not quote %q", quoted)
				}
			}
			t.Log(text)
		})
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(troubleshooting)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// Each command of ip-control on the page is one that there is, with what is named there:
// it finds something or nothing, and is not misunderstood.
func TestTroubleshootingCommands(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, net := newNode(t, "node-1"), c.ranged("10.5.0.0/24")
	c.cp.Must(t).Create("/api/v1/namespaces/"+c.namespace+"/pods", Object{
		"metadata": Object{"name": "web-0"}, "spec": Object{"containers": []Object{{"name": "c", "image": "none"}}},
	})
	for range 3 {
		n.add(t, pod("web-0"), net).ok(t)
	}
	file := filepath.Join(t.TempDir(), "ip-control")
	if err := os.Symlink(suite.Binary, file); err != nil {
		t.Fatal(err)
	}
	tried := []string{}
	for line := range strings.Lines(readPage(t)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "   ") // what is explained beside it
		rest, ok := strings.CutPrefix(line, "ip-control ")
		if !ok || slices.Contains(tried, line) {
			continue
		}
		tried = append(tried, line)
		// Other tests have namespaces of their own in this cluster.
		arguments := append(strings.Fields(rest), "--kubeconfig", c.kubeconfig, "-n", c.namespace)
		out, err := exec.Command(file, arguments...).CombinedOutput()
		if exit, failed := err.(*exec.ExitError); failed && exit.ExitCode() != 1 {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		t.Logf("%s\n%s", line, out)
	}
	if len(tried) < 8 {
		t.Errorf("the page has only the commands %q", tried)
	}
}
