package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// longestDel is what a DEL may take when the datastore is out of reach.
const longestDel = 8 * time.Second

// delWithoutStore has containers released while the store is out of reach. Their
// DELs succeed, in time.
func (h *host) delWithoutStore(containers ...string) {
	h.t.Helper()
	release := h.occupyStore()
	defer release()
	began := time.Now()
	h.delAtOnce(containers...)
	if took := time.Since(began); took > longestDel+hang/4 { // the machine may be slow
		h.t.Errorf("took %v", took)
	}
}

// delLater has containers released while other calls hold up theirs. Their releases
// are queued.
func (h *host) delLater(containers ...string) {
	h.t.Helper()
	goOn := h.holdUp()
	defer goOn()
	h.delAtOnce(containers...)
	if queued := h.queued(); len(queued) != len(containers) {
		h.t.Errorf("queued: %v", queued)
	}
}

func (h *host) delAtOnce(containers ...string) {
	h.t.Helper()
	var calls []*plugin
	for _, container := range containers {
		calls = append(calls, h.start("DEL", container))
	}
	for _, p := range calls {
		p.ok()
	}
}

func TestReleaseThatCannotReachTheStoreIsMadeUpForByTheNextCall(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("c", "10.0.0.1")
	h.add("d", "10.0.0.2")
	h.delWithoutStore("c", "d")
	h.holds("10.0.0.1", "c", "10.0.0.2", "d")
	if queued := h.queued(); len(queued) != 2 || queued[0] != "c@eth0" || queued[1] != "d@eth0" {
		t.Errorf("queued: %v", queued)
	}
	h.start("ADD", "e").ok()
	if queued := h.queued(); len(queued) != 0 {
		t.Errorf("still queued: %v", queued)
	}
	h.del("e")
	h.holds()
}

func TestReleaseFileIsPrivateAndHasNoSecret(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange+`, "etcd_password": "secret-word"`)
	h.add("c", "10.0.0.1")
	h.delLater("c")
	directory := filepath.Join(h.state, "releases")
	data, err := os.ReadFile(filepath.Join(directory, "c@eth0"))
	if err != nil || strings.Contains(string(data), "secret-word") {
		t.Errorf("release file: %s, %v", data, err)
	}
	for path, mode := range map[string]os.FileMode{directory: 0o700, filepath.Join(directory, "c@eth0"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestQueuedReleaseFreesNothingOfTheContainerStartedAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("lower", "10.0.0.1")
	h.add("c", "10.0.0.2")
	h.add("d", "10.0.0.3")
	h.del("lower")
	h.delLater("c", "d")
	h.add("c", "10.0.0.2") // what it had, although a lower one is free
	h.holds("10.0.0.2", "c")
	if queued := h.queued(); len(queued) != 0 {
		t.Errorf("still queued: %v", queued)
	}
	h.del("c")
	h.holds()
}

// An ADD of the same container drops the queued release and fails. The DEL that
// follows frees all the same.
func TestReleaseAfterAnAddThatDroppedAQueuedOne(t *testing.T) {
	t.Parallel()
	h := newHost(t, `"range": "10.0.0.1/32"`)
	h.add("c", "10.0.0.1")
	h.delLater("c")
	full := h.configOf(`"range": "10.0.0.1/32", "ipRanges": [{"range": "10.0.1.1/32", "exclude": ["10.0.1.1"]}]`)
	h.startWith(full, "ADD", "c").fails(11, "10.0.1.1/32")
	h.del("c")
	h.holds()
}

func TestQueuedReleaseThatIsDamagedStopsNobody(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("c", "10.0.0.1")
	h.add("d", "10.0.0.2")
	h.delLater("c", "d")
	damaged := filepath.Join(h.state, "releases", "c@eth0")
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := h.start("ADD", "e").ok()
	if !strings.Contains(e.stderr.String(), damaged) {
		t.Errorf("the log does not name the file: %s", e.stderr.String())
	}
	if f := h.start("ADD", "f").ok(); strings.Contains(f.stderr.String(), damaged) {
		t.Errorf("reported twice: %s", f.stderr.String())
	}
	if _, held := h.stored()["10.0.0.1"]; !held {
		t.Error("the damaged release was carried out")
	}
}

func TestDelFailsIfItsReleaseCannotBeKept(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	h.add("c", "10.0.0.1")
	if err := os.WriteFile(filepath.Join(h.state, "releases"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	goOn := h.holdUp()
	h.start("DEL", "c").fails(11, "still being carried out")
	goOn()
	h.start("DEL", "c").ok() // the runtime tries again
	h.holds()
}

// Neither directory can be made: every call works alone.
func TestNodeWithoutDirectories(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	file := filepath.Join(filepath.Dir(h.run), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.run, h.state = filepath.Join(file, "run"), filepath.Join(file, "state")
	h.add("c", "10.0.0.1")
	h.add("d", "10.0.0.2")
	h.add("c", "10.0.0.1")
	h.del("c")
	h.holds("10.0.0.2", "d")
}

// A long container id and one with dots are as good as others.
func TestOddContainerIDs(t *testing.T) {
	t.Parallel()
	h := newHost(t, oneRange)
	ids := []string{strings.Repeat("a", 300), "c..d", "c.new", "c.request", "c.corrupt", "c_d-e"}
	for i, id := range ids {
		h.add(id, fmt.Sprintf("10.0.0.%d", i+1))
	}
	h.delLater(ids...)
	h.del("nobody")
	h.holds()
}
