package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestQueueIsForRootAlone(t *testing.T) {
	t.Parallel()
	run := filepath.Join(shm(t), "run")
	q, err := OpenQueue(run, "test")
	if err != nil {
		t.Fatal(err)
	}
	unlock := lockQueue(t, q)
	ended := wait(t.Context(), q, []byte("x"), hang, workingAlone("own"))
	listed(t, q, ended)
	for _, directory := range []string{run, q.directory} {
		if mode := modeOf(t, directory); mode != 0o700 {
			t.Errorf("%s has mode %o, want 700", directory, mode)
		}
	}
	files, _ := filepath.Glob(filepath.Join(q.directory, "*"))
	if len(files) != 3 {
		t.Errorf("%v instead of lock, request and answer", files)
	}
	for _, file := range files {
		if mode := modeOf(t, file); mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", file, mode)
		}
	}
	unlock()
	<-ended
}

func TestQueueThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shm(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if q, err := OpenQueue(filepath.Join(file, "run"), "test"); err == nil {
		t.Errorf("a queue below a file: %v", q)
	}
	gone := openTestQueue(t)
	if err := os.RemoveAll(gone.directory); err != nil {
		t.Fatal(err)
	}
	if answer, err := gone.Do(t.Context(), []byte("x"), upTo(hang), noWork(t)); err == nil || errors.Is(err, ErrWaited) {
		t.Errorf("a queue that is gone told %q, %v", answer, err)
	}
}

// What killed processes leave is cleared away once nobody can be waiting for it;
// what is of a process that waits stays.
func TestLeftoversAreClearedAway(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	name := func(age time.Duration) string { return fmt.Sprintf("%019d-%d", time.Now().Add(-age).UnixNano(), 4711) }
	old, young := name(2*abandonedAge), name(0)
	files := map[string]bool{
		q.path(old, "new"): false, q.path(old, "answer"): false, q.path(name(3*time.Hour), "request"): false,
		q.path(name(time.Second), "request"): false, // nobody holds it
		q.path(young, "new"):                 true, q.path(young, "answer"): true,
		filepath.Join(q.directory, "lock"): true, filepath.Join(q.directory, "README"): true,
	}
	for path := range files {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := q.Do(t.Context(), []byte("x"), upTo(hang), func(waiting []Request, _ Deliver) []byte {
		if len(waiting) != 0 {
			t.Errorf("requests nobody holds are carried out: %v", waiting)
		}
		return []byte("own")
	})
	if err != nil || string(answer) != "own" {
		t.Errorf("told %q, %v", answer, err)
	}
	for path, keep := range files {
		if _, err := os.Stat(path); (err == nil) != keep {
			t.Errorf("%s: %v, want it kept: %v", filepath.Base(path), err, keep)
		}
	}
}

func TestQueuesWithOtherKeysAreApart(t *testing.T) {
	t.Parallel()
	run := shm(t)
	for _, key := range []string{"a", "b"} {
		q, err := OpenQueue(run, key)
		if err != nil {
			t.Fatal(err)
		}
		defer lockQueue(t, q)()
	}
	q, err := OpenQueue(run, "c")
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := q.Do(t.Context(), nil, upTo(0), workingAlone("own")); err != nil || string(answer) != "own" {
		t.Errorf("told %q, %v", answer, err)
	}
}
