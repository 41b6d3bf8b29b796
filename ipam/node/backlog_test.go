package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBacklogCountsWhatIsQueued(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	q := NewReleases(state, "store")
	if b, err := q.Backlog(); err != nil || b != (Backlog{}) {
		t.Errorf("before anything is queued: %+v, %v", b, err)
	}
	mustPut(t, q, removalOf("a", "eth0"))
	mustPut(t, NewReleases(state, "another"), removalOf("b", "eth0"))
	old := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(state, "releases", "a@eth0"), old, old); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".new-123", "c@eth0" + corruptSuffix} {
		if err := os.WriteFile(filepath.Join(state, "releases", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := q.Backlog()
	if err != nil || b.Length != 2 || b.Corrupt != 1 || !b.Oldest.Equal(old) {
		t.Errorf("got %+v, %v", b, err)
	}
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := q.Backlog(); err == nil {
		t.Errorf("where no directory can be: %+v and no error", b)
	}
}
