package reclaim

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// rarely is a schedule that does not come while a test runs.
const rarely = "0 0 1 1 *"

// child is a run of clean-up.
type child struct {
	world *world
	cmd   *exec.Cmd
	done  chan struct{}
	log   testenv.Buffer
}

// viaProxy is the kubeconfig of clean-up.
func (w *world) viaProxy() string {
	w.Helper()
	return w.cp.Kubeconfig(w.TB, testenv.Options{Namespace: w.namespace, Via: w.proxy})
}

// flatFile is the nodes' flat file: without it clean-up cannot know what definitions
// leave open, such as whether a network has a name.
func (w *world) flatFile() string {
	w.Helper()
	path := filepath.Join(w.TempDir(), "whereabouts.conf")
	if err := os.WriteFile(path, []byte(encode(w, Object{"kubernetes": Object{"kubeconfig": w.kubeconfig}})), 0o600); err != nil {
		w.Fatal(err)
	}
	return path
}

// start starts clean-up, which ends with the test.
func (w *world) start(args ...string) *child {
	w.Helper()
	return w.startWith(w.viaProxy(), args...)
}

func (w *world) startWith(kubeconfig string, args ...string) *child {
	w.Helper()
	full := append([]string{"reconcile", "--kubeconfig", kubeconfig, "--listen", "", "--schedule-file", "/nonexistent", "--flat-file", w.flatFile()}, args...)
	c := &child{world: w, cmd: exec.Command(suite.Binary, full...), done: make(chan struct{})}
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.run()
	return c
}

// run lets it run until the test ends.
func (c *child) run() {
	c.world.Helper()
	if err := c.cmd.Start(); err != nil {
		c.world.Fatal(err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // how it ended is in the state
	}()
	c.world.Cleanup(c.kill)
}

// daemon is a clean-up that acts on changes alone.
func (w *world) daemon(grace string) *child {
	w.Helper()
	return w.start("--schedule", rarely, "--grace", grace)
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended
	<-c.done
}

// signal sends a signal, such as SIGSTOP for one that is slow to notice.
func (c *child) signal(s syscall.Signal) {
	c.world.Helper()
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.world.Error(err)
	}
}

// passes waits until a pass has ended well.
func (c *child) passes() *child {
	c.world.Helper()
	c.world.eventually("the first pass", func() string {
		if strings.Contains(c.log.String(), "reconciler success") {
			return ""
		}
		return "log: " + c.log.String()
	})
	return c
}

// once is one whole run; it answers the log and the exit code.
func (w *world) once(grace string, more ...string) (log string, exit int) {
	w.Helper()
	c := w.start(append([]string{"--once", "--grace", grace}, more...)...)
	<-c.done
	return c.log.String(), c.cmd.ProcessState.ExitCode()
}

// onceWell is once that must end with success.
func (w *world) onceWell(grace string) string {
	w.Helper()
	log, exit := w.once(grace)
	if exit != 0 {
		w.Fatalf("clean-up ended with %d\n%s", exit, log)
	}
	if testing.Verbose() {
		w.Logf("clean-up said\n%s", log)
	}
	return log
}
