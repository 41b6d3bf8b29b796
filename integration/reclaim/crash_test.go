package reclaim

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// crashes are moments in a pass at which the API server dies.
func crashes() map[string]testenv.Match {
	return map[string]testenv.Match{
		"at a write of a pool":               {Method: http.MethodPatch, Path: "/" + pools + "/"},
		"at the deletion of a reservation":   {Method: http.MethodDelete, Path: "/" + reservations + "/"},
		"at the last look at a pod":          {Method: http.MethodGet, Path: "/pods/[^/]+$"},
		"at the list of the reservations":    {Method: http.MethodGet, Path: "/" + reservations + "$"},
		"at a late deletion of reservations": {Method: http.MethodDelete, Path: "/" + reservations + "/", Func: nil},
	}
}

// The API server dies in the middle of a pass: nothing wrong is freed, and the next
// pass does what is left.
func TestServerDiesInAPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	number := 0
	for name, match := range crashes() {
		t.Run(name, func(t *testing.T) {
			number++
			s := w.in(t).newScene(number, situation{name: name})
			var dead []*pod
			for i := range 8 {
				p, _ := s.runner(fmt.Sprint("p", i))
				if i%2 == 0 {
					dead = append(dead, p)
				}
			}
			for _, p := range dead {
				p.vanishes()
			}
			nth := 1
			if name == "at a late deletion of reservations" {
				nth = 3
			}
			w.dieInAPass(t, testenv.Rule{Match: match, Nth: nth})
			s.about.keeps = []int{2, 4, 6, 8}
			entries, reserved := s.held(w.namespace, s.net)
			for _, nth := range s.about.keeps {
				if !slices.Contains(entries, nth) || !slices.Contains(reserved, nth) {
					t.Errorf("a live address was freed: left are %v and %v", entries, reserved)
				}
			}
			w.in(t).onceWell("1s")
			if wrong := s.check(); wrong != "" {
				t.Error(wrong)
			}
		})
	}
	for _, text := range w.contradictions(w.namespace) {
		t.Error(text)
	}
}

// dieInAPass kills the API server at a request of a run, and starts it again when the
// run has ended.
func (w *world) dieInAPass(t *testing.T, at testenv.Rule) {
	t.Helper()
	died := make(chan struct{})
	at.Action = testenv.Before(func(testenv.Request) {
		defer close(died)
		w.cp.KillAPIServer()
	})
	rule := w.proxy.Inject(at)
	defer w.proxy.Reset()
	c := w.in(t).start("--once", "--grace", "1s")
	select {
	case <-died:
	case <-c.done:
		w.proxy.Log(t)
		t.Fatalf("there was no such request; hits: %d\n%s", rule.Hits(), c.log.String())
	}
	if err := w.cp.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	<-c.done
	t.Logf("the run ended with %d", c.cmd.ProcessState.ExitCode())
}
