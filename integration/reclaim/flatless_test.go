package reclaim

import (
	"os"
	"os/exec"
	"testing"
)

// Clean-up runs in a pod, where there is no flat file unless somebody mounts one. What
// definitions leave open, such as whether a network has a name, it then cannot know;
// but the entry of a new version without details says that it was taken with overlap
// protection.
func TestReservationIsMadeAgainWithoutAFlatFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &child{world: w, done: make(chan struct{})}
	c.cmd = exec.Command(suite.Binary, "reconcile", "--kubeconfig", w.viaProxy(), "--listen", "", "--schedule", rarely, "--grace", "2s")
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.run()
	c.passes()
	s := w.newScene(0, situation{name: "an older plugin deletes the reservation of a live pod"})
	_, a := s.runner("a")
	s.dropReservation(s.net, a)
	s.comesTo(1)
}
