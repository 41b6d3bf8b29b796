package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

func testLostConnections(s *scene) {
	s.watch()
	for name, lose := range map[string]func(){
		"broken":  func() { s.proxy.Break(testenv.Match{}) },
		"refused": s.proxy.Down,
	} {
		s.makePod("before-"+name, nil)
		s.eventually("a pod", func() bool { return s.hasPod("before-" + name) })
		s.signalled()
		s.proxy.ResetRequests()
		lose()
		s.makePod("meanwhile-"+name, nil)
		s.killPod("before-" + name)
		if err := s.proxy.Up(); err != nil {
			s.Fatal(err)
		}
		s.eventually("what happened meanwhile", func() bool { return s.hasPod("meanwhile-"+name) && !s.hasPod("before-"+name) })
		s.eventually("a signal", s.signalled)
		if n := s.proxy.Count(testenv.Match{Path: "/pods$", Func: isList}); n != 0 {
			s.Errorf("%s: pods were listed %d times where the watch could go on", name, n)
		}
	}
}

func isList(r testenv.Request) bool { return r.Query.Get("watch") == "" }

// testTooOld lets the server say that it has forgotten where the watch stood.
func testTooOld(s *scene) {
	s.watch()
	s.makePod("aged", nil)
	s.eventually("a pod", func() bool { return s.hasPod("aged") })
	s.proxy.ResetRequests()
	gone := s.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Path: "/pods$", Func: func(r testenv.Request) bool { return !isList(r) }}, Action: testenv.Answer(http.StatusGone),
	})
	s.proxy.Down()
	s.killPod("aged")
	if err := s.proxy.Up(); err != nil {
		s.Fatal(err)
	}
	s.eventually("a pod that went", func() bool { return !s.hasPod("aged") })
	if n := s.proxy.Count(testenv.Match{Path: "/pods$", Func: isList}); gone.Hits() != 1 || n != 1 {
		s.Errorf("%d answers that the watch is too old, %d lists", gone.Hits(), n)
	}
	s.eventually("a signal", s.signalled)
}

func testInterruptedList(s *scene) {
	for i := range 5 {
		s.makePod(fmt.Sprintf("page-%d", i), nil)
	}
	podCount := func() int { n := 0; s.watcher.cluster.pods.each(func(objectKey, *reclaim.Pod) { n++ }); return n }
	expired := s.proxy.Inject(testenv.Rule{
		Match:  testenv.Match{Path: "/pods$", Func: func(r testenv.Request) bool { return r.Query.Get("continue") != "" }},
		Nth:    2,
		Action: testenv.Answer(http.StatusGone),
	})
	s.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Path: "/pods$", Func: func(r testenv.Request) bool { return r.Query.Get("continue") != "" }},
		Nth:   4, Action: testenv.CutAnswer(),
	})
	w := NewWatcher(s.open(testenv.Options{Namespace: s.namespace, Via: s.proxy}), nil)
	from := podCollection
	from.page = 2
	if err := listAgain(s.Context(), w.client, from, w.cluster.pods); err != nil {
		s.Fatal(err)
	}
	s.watcher = w
	want := len(s.cp.Must(s).List("/api/v1/pods"))
	if got := podCount(); got != want || want < 5 || expired.Hits() != 1 {
		s.Errorf("got %d pods, want %d; %d hits", got, want, expired.Hits())
	}
}

// testRestart compacts the history away while the watcher cannot see it, and starts the
// API server again, so that it has none in memory either.
func testRestart(s *scene) {
	s.watch()
	s.makePod("lost", nil)
	s.eventually("a pod", func() bool { return s.hasPod("lost") })
	s.proxy.Down()
	s.killPod("lost")
	s.makePod("found", nil)
	s.signalled()
	s.cp.KillAPIServer()
	s.compact()
	if err := s.cp.StartAPIServer(); err != nil {
		s.Fatal(err)
	}
	s.makePod("later", nil)
	s.proxy.ResetRequests()
	if err := s.proxy.Up(); err != nil {
		s.Fatal(err)
	}
	s.eventually("what happened meanwhile", func() bool { return !s.hasPod("lost") && s.hasPod("found") && s.hasPod("later") })
	s.eventually("a signal", s.signalled)
	if n := s.proxy.Count(testenv.Match{Path: "/pods$", Func: isList}); n == 0 {
		s.Error("pods were not listed again although their history is gone")
	}
	s.makePod("afterwards", nil)
	s.eventually("a watch that goes on", func() bool { return s.hasPod("afterwards") })
	s.eventually("to be ready", func() bool { return s.watcher.Ready() == nil })
}

// compact makes etcd forget all but the present.
func (s *scene) compact() {
	s.Helper()
	member := s.cp.Etcd.Members[0].ClientURL
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	post := func(path, body string, into any) {
		s.Helper()
		resp, err := http.Post(member+path, "application/json", bytes.NewReader([]byte(body)))
		if err != nil {
			s.Fatal(err)
		}
		defer resp.Body.Close()
		if err := decode(resp, into); err != nil {
			s.Fatal(err)
		}
	}
	post("/v3/maintenance/status", `{}`, &status)
	post("/v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, status.Header.Revision), nil)
}

func decode(resp *http.Response, into any) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Request.URL, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
