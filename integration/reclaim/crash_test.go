package reclaim

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// crash is a moment in a pass at which the API server dies.
type crash struct {
	name string
	at   testenv.Match
	nth  int
	both bool // clean-up dies too
}

func crashes() []crash {
	write := testenv.Match{Method: http.MethodPatch, Path: "/" + pools + "/"}
	deletion := testenv.Match{Method: http.MethodDelete, Path: "/" + reservations + "/"}
	look := testenv.Match{Method: http.MethodGet, Path: "/pods/[^/]+$"}
	return []crash{
		{"at the write of a pool", write, 1, false},
		{"at the second look at a pod, clean-up too", look, 2, true},
		{"at the first deletion of a reservation, clean-up too", deletion, 1, true},
		{"at the last deletion of a reservation, clean-up too", deletion, 4, true},
	}
}

// The API server dies in the middle of a pass: nothing wrong is freed, and what is
// left is done by the run itself, or by the next one if that died too.
func TestServerDiesInAPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, crash := range crashes() {
		t.Run(crash.name, func(t *testing.T) {
			s := w.in(t).newScene(i, situation{name: crash.name, keeps: []int{2, 4, 6, 8}})
			s.fillWithDead()
			s.dieInAPass(crash)
			entries, reserved := s.held(w.namespace, s.net)
			for _, nth := range s.about.keeps {
				if !slices.Contains(entries, nth) || !slices.Contains(reserved, nth) {
					t.Errorf("a live address was freed: left are %v and %v", entries, reserved)
				}
			}
			if crash.both {
				if len(entries)+len(reserved) == 8 {
					t.Error("nothing is left for the next run")
				}
				s.onceWell("1s")
			}
			if wrong := s.check(); wrong != "" {
				t.Error(wrong)
			}
		})
	}
	for _, text := range w.contradictions(w.namespace) {
		t.Error(text)
	}
}

// fillWithDead makes eight pods, of which the odd ones are gone.
func (s *scene) fillWithDead() {
	s.Helper()
	var dead []*pod
	for i := range 8 {
		if p, _ := s.runner(fmt.Sprint("p", i)); i%2 == 0 {
			dead = append(dead, p)
		}
	}
	for _, p := range dead {
		p.vanishes()
	}
}

// dieInAPass kills the API server at a request of a run, and starts it again.
func (s *scene) dieInAPass(at crash) {
	s.Helper()
	died := make(chan struct{})
	rule := s.proxy.Inject(testenv.Rule{Match: at.at, Nth: at.nth, Action: testenv.Before(func(testenv.Request) {
		defer close(died)
		s.cp.KillAPIServer()
	})})
	defer s.proxy.Reset()
	c := s.start("--once", "--grace", "1s")
	select {
	case <-died:
	case <-c.done:
		s.proxy.Log(s)
		s.Fatalf("there was no such request; hits: %d\n%s", rule.Hits(), c.log.String())
	}
	if at.both {
		c.kill()
	}
	if err := s.cp.StartAPIServer(); err != nil {
		s.Fatal(err)
	}
	<-c.done
	s.Logf("the run ended with %d", c.cmd.ProcessState.ExitCode())
}
