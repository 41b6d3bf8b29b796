package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustTake(t *testing.T, tally *Tally) []Call {
	t.Helper()
	calls, err := tally.Take()
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func TestCallsAreToldOnce(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	tally := NewTally(run)
	tally.Note(Call{"ADD", "ok", time.Second}) // nobody has asked yet
	if files := filesIn(t, run); len(files) > 0 {
		t.Errorf("it makes %v", files)
	}
	if calls := mustTake(t, tally); len(calls) > 0 {
		t.Errorf("got %v", calls)
	}
	want := []Call{{"ADD", "ok", 1500 * time.Microsecond}, {"DEL", "failed", time.Minute}}
	for _, c := range want {
		tally.Note(c)
	}
	if calls := mustTake(t, tally); !slices.Equal(calls, want) {
		t.Errorf("got %v, want %v", calls, want)
	}
	if calls := mustTake(t, tally); len(calls) > 0 {
		t.Errorf("got %v again", calls)
	}
}

func TestTallyIsBounded(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	tally := NewTally(run)
	path := filepath.Join(run, "calls")
	for size, want := range map[int]int{maxTally - 1: maxTally - 1 + len("ADD ok 0\n"), maxTally: maxTally} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		tally.Note(Call{"ADD", "ok", 0})
		if data, err := os.ReadFile(path); err != nil || len(data) != want {
			t.Errorf("%d bytes became %d, want %d, %v", size, len(data), want, err)
		}
	}
}

func TestLinesThatCannotBeUnderstoodAreSkipped(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	text := strings.Join([]string{"ADD ok 7", "ADD ok", "ADD ok x", "ADD ok -1", "", "DEL ok 8 9", "DEL ok 8"}, "\n")
	if err := os.WriteFile(filepath.Join(run, "calls"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []Call{{"ADD", "ok", 7 * time.Microsecond}, {"DEL", "ok", 8 * time.Microsecond}}
	if calls := mustTake(t, NewTally(run)); !slices.Equal(calls, want) {
		t.Errorf("got %v, want %v", calls, want)
	}
}

func TestTallyWithoutADirectory(t *testing.T) {
	t.Parallel()
	tally := NewTally("/does/not/exist")
	tally.Note(Call{"ADD", "ok", 0})
	if calls, err := tally.Take(); err == nil {
		t.Errorf("got %v and no error", calls)
	}
}
