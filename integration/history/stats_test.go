package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// stats counts what happened, for the summary.
type stats struct {
	mu       sync.Mutex
	calls    map[string]int // by verb
	failures map[string]int // by verb and code
	events   map[string]int // kills, restarts and the like
	running  int
	most     int // at once
}

// What happens most, and is counted.
const (
	processesKilled = "processes killed"
	lateWrites      = "late writes"
)

func newStats() *stats {
	return &stats{calls: map[string]int{}, failures: map[string]int{}, events: map[string]int{}}
}

func (s *stats) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.most = max(s.most, s.running)
}

func (s *stats) end(verb string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.calls[verb]++
	switch {
	case a.killed:
		s.events[processesKilled]++
	case !a.ok():
		s.failures[fmt.Sprintf("%s %d%s", verb, a.code, a.reason())]++
	}
}

func (s *stats) happened(what string, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[what] += times
}

func (s *stats) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[what]
}

func (s *stats) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, calls := range s.calls {
		n += calls
	}
	return n
}

// String is the counters in three lines.
func (s *stats) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("calls: %s; at most %d at once\nfailures by code: %s\nwhat happened: %s",
		list(s.calls), s.most, list(s.failures), list(s.events))
}

// list is counters in words, in the order of their names.
func list(counts map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d %s", counts[name], name))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// summary is the state of affairs.
func (w *world) summary() string {
	checked, held, findings := w.ledger.counts()
	requests, faults := w.wire.counts()
	elapsed := w.ledger.now()
	return fmt.Sprintf("after %s, seed %d: %.0f calls/s\n%s\nrequests: %d; faults: %s\nholdings: %d checked, %d open; audits: %d records looked at; findings: %d",
		elapsed.Round(time.Second), w.seed, float64(w.stats.total())/elapsed.Seconds(), w.stats, requests, list(faults),
		checked, held, w.audited.Load(), findings)
}
