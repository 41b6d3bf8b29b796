package mixed

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const statusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// define makes the definitions of networks, which reconcile looks at.
func (w *world) define(nets ...network) {
	w.Helper()
	for _, n := range nets {
		w.must().Create("/apis/"+definitionsVersion+"/namespaces/"+w.namespace+"/network-attachment-definitions", Object{
			"apiVersion": definitionsVersion, "kind": "NetworkAttachmentDefinition",
			"metadata": Object{"name": n.name}, "spec": Object{"config": encode(n.config("/unused"))},
		})
	}
}

// makePod makes a pod object, which is Pending, and answers its first container. It may
// be called from any goroutine.
func (w *world) makePod(ctx context.Context, name, node string) (sandbox, error) {
	var made Object
	err := w.cp.Client().Create(ctx, w.podPath(""), Object{"metadata": Object{"name": name}, "spec": Object{
		"nodeName": node, "containers": []any{Object{"name": "c", "image": "i"}},
	}}, &made)
	return sandbox{namespace: w.namespace, pod: name, uid: made.String("metadata", "uid"), container: name + "-c1"}, err
}

func (w *world) podPath(name string) string {
	return strings.TrimSuffix("/api/v1/namespaces/"+w.namespace+"/pods/"+name, "/")
}

// runs has the pod object say that the pod runs and shows an address.
func (w *world) runs(ctx context.Context, s sandbox, a netip.Addr) error {
	status := encode([]Object{{"name": "default-net", "interface": "eth0", "ips": []string{"10.244.0.17"}, "default": true, "dns": Object{}}, {"name": "default/net", "interface": ifName, "ips": []string{a.String()}, "dns": Object{}}})
	err := w.cp.Client().Patch(ctx, w.podPath(s.pod), testenv.MergePatch, Object{"metadata": Object{"annotations": Object{statusAnnotation: status}}}, nil)
	if err != nil {
		return err
	}
	return w.cp.Client().Patch(ctx, w.podPath(s.pod)+"/status", testenv.MergePatch, Object{"status": Object{"phase": "Running"}}, nil)
}

// child is a reconcile that runs until the test ends, or is killed.
type child struct {
	world *world
	proxy *testenv.Proxy
	cmd   *exec.Cmd
	done  chan struct{}
	log   testenv.Buffer
}

// reconcile starts the built program.
func (w *world) reconcile(args ...string) *child {
	w.Helper()
	c := &child{world: w, proxy: w.cp.Proxy(w.TB), done: make(chan struct{})}
	kubeconfig := w.cp.Kubeconfig(w.TB, testenv.Options{Namespace: w.namespace, Via: c.proxy})
	flat := filepath.Join(w.TempDir(), "whereabouts.conf")
	if err := os.WriteFile(flat, []byte(encode(Object{"kubernetes": Object{"kubeconfig": kubeconfig}})), 0o600); err != nil {
		w.Fatal(err)
	}
	c.cmd = exec.Command(suite.Binary, append([]string{
		"reconcile", "--kubeconfig", kubeconfig, "--listen", "", "--schedule-file", "/nonexistent", "--flat-file", flat,
	}, args...)...)
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // how it ended is in the state
	}()
	w.Cleanup(c.kill)
	return c
}

// watches is a reconcile that acts on changes alone, and has made its first pass.
func (w *world) watches() *child {
	w.Helper()
	c := w.reconcile("--schedule", "0 0 1 1 *", "--grace", "5s")
	w.eventually("the first pass of reconcile", func() string {
		if strings.Contains(c.log.String(), "reconciler success") {
			return ""
		}
		return c.log.String()
	})
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended
	<-c.done
}

func (w *world) dropPod(ctx context.Context, s sandbox) error {
	return w.cp.Client().Delete(ctx, w.podPath(s.pod), Object{"gracePeriodSeconds": 0})
}

// cleans makes one whole run of reconcile, which must succeed.
func (w *world) cleans() {
	w.Helper()
	c := w.reconcile("--once", "--grace", "1s")
	<-c.done
	if exit := c.cmd.ProcessState.ExitCode(); exit != 0 {
		w.Fatalf("reconcile --once ended with %d\n%s", exit, c.log.String())
	}
}
