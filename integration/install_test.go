package integration

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// installation is a node on which the installer runs, in place of a pod's container.
type installation struct {
	cmd  *exec.Cmd
	said bytes.Buffer // to be read once it has ended
	root string
}

// install runs it with the rights of the administrator.
func (c *cluster) install(t *testing.T, n node) *installation {
	t.Helper()
	account := t.TempDir()
	c.writeAccount(t, account, c.cp.Token(testenv.Admin))
	return c.installAs(t, n, account)
}

// writeAccount makes what the kubelet mounts of a service account.
func (c *cluster) writeAccount(t *testing.T, directory, token string) {
	t.Helper()
	for name, content := range map[string][]byte{
		"token": []byte(token), "ca.crt": c.proxy.CA, "namespace": []byte(c.namespace),
	} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// installAs runs it with the service account in a directory.
func (c *cluster) installAs(t *testing.T, n node, account string) *installation {
	t.Helper()
	i := &installation{root: t.TempDir()}
	server, err := url.Parse(c.proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	i.cmd = exec.Command(suite.Binary, "install", "--listen=", "--service-account", account)
	i.cmd.Env = []string{
		"CNI_BIN_DIR=" + filepath.Join(i.root, "bin"), "CNI_CONF_DIR=" + filepath.Join(i.root, "net.d"), "NODENAME=" + n.name,
		"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
		"WHEREABOUTS_RUN_DIR=" + n.runDir, "WHEREABOUTS_STATE_DIR=" + n.stateDir,
	}
	i.cmd.Stderr = &i.said
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = i.cmd.Process.Signal(syscall.SIGTERM)
		if err := i.cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("installer: %v, log: %s", err, i.said.String())
		}
	})
	return i
}

// wait until the plugin and all that it needs are there.
func (i *installation) wait(t *testing.T) {
	t.Helper()
	for _, name := range []string{"bin/whereabouts", "bin/ip-control", "net.d/whereabouts.d/whereabouts.conf", "net.d/whereabouts.d/whereabouts.kubeconfig"} {
		soon(t, name, func() bool {
			_, err := os.Stat(filepath.Join(i.root, name))
			return err == nil
		})
	}
}

// config is a network that leaves the cluster to the flat file.
func (i *installation) config(ipam Object) Object {
	full := Object{"type": "whereabouts", "configuration_path": filepath.Join(i.root, "net.d", "whereabouts.d")}
	for key, value := range ipam {
		full[key] = value
	}
	return Object{"cniVersion": "1.0.0", "name": "net-a", "type": "macvlan", "ipam": full}
}

// soon waits for what has to come about without any further call.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A node may be without a further call of the plugin for long.
func TestInstallerMakesUpForReleasesWithoutAnotherCall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	i := c.install(t, n)
	i.wait(t)
	config := i.config(Object{"range": "10.19.0.0/24"})
	n.add(t, pod("a"), config).gets(t, "10.19.0.1/24")
	n.add(t, pod("b"), config).gets(t, "10.19.0.2/24")
	c.withoutServer(t, func() { n.del(t, pod("a"), config).ok(t) })
	c.holds(t, map[string]string{"10.19.0.0-24/1": "a-c1", "10.19.0.0-24/2": "b-c1"})
	soon(t, "the release", func() bool { return len(n.queued(t)) == 0 })
	c.holds(t, map[string]string{"10.19.0.0-24/2": "b-c1"})
	if queues, _ := filepath.Glob(filepath.Join(n.runDir, "queue-*")); len(queues) != 1 {
		t.Errorf("the installer does not share the lock of the plugin: %v", queues)
	}
	n.del(t, pod("b"), config).ok(t)
	c.empty(t)
}
