package reclaim

import "testing"

// The status of a pool is counted from its records.
func TestPoolHasAStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newScene(0, situation{name: "two of three live", keeps: []int{1, 3}})
	s.runner("a")
	p, _ := s.runner("b")
	s.runner("c")
	p.vanishes()
	w.onceWell("1s")
	if wrong := s.check(); wrong != "" {
		t.Error(wrong)
	}
	pool := w.must().Get(w.path(pools) + "/" + s.net.pool())
	if used := pool.Field("status", "used"); used != 2.0 {
		t.Errorf("used is %v, want 2", used)
	}
	for field, want := range map[string]string{"total": "14", "free": "12", "excluded": "0"} {
		if got := pool.String("status", field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
}
