package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestMarkTellsAnAddBeforeTheDelFromOneAfterIt(t *testing.T) {
	t.Parallel()
	run := filepath.Join(shm(t), "run")
	owner := ipam.Owner{ContainerID: "c", IfName: "eth0"}
	if err := NewMarks(run).Set(owner, testNow); err != nil {
		t.Fatal(err)
	}
	m := NewMarks(run) // another process
	for name, c := range map[string]struct {
		owner ipam.Owner
		since time.Time
		want  bool
	}{
		"an ADD before the DEL":    {owner, testNow.Add(-1), true},
		"an ADD after the DEL":     {owner, testNow.Add(1), false},
		"at the very same moment":  {owner, testNow, false},
		"an ADD long ago":          {owner, testNow.Add(-time.Hour), true},
		"another interface":        {ipam.Owner{ContainerID: "c", IfName: "net1"}, testNow.Add(-1), false},
		"another container":        {ipam.Owner{ContainerID: "d", IfName: "eth0"}, testNow.Add(-1), false},
		"whatever pod and network": {ipam.Owner{ContainerID: "c", IfName: "eth0", PodRef: "a/b", Network: "n"}, testNow.Add(-1), true},
	} {
		if got := m.After(c.owner, c.since); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if err := m.Set(owner, testNow.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !m.After(owner, testNow.Add(time.Second)) {
		t.Error("a second DEL does not count")
	}
}

func TestMarkThatCannotBeReadIsNone(t *testing.T) {
	t.Parallel()
	m := NewMarks(shm(t))
	owner := ipam.Owner{ContainerID: "c", IfName: "eth0"}
	if err := m.Set(owner, testNow); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "x", "99999999999999999999999999"} {
		if err := os.WriteFile(m.path(owner), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if m.After(owner, time.Time{}) {
			t.Errorf("%q says that the container has been released", content)
		}
	}
}

func TestMarksAreClearedAwayWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	m := NewMarks(shm(t))
	now := time.Now()
	swept := time.Unix(0, now.UnixNano()/16*16)
	old, young := ipam.Owner{ContainerID: "old", IfName: "eth0"}, ipam.Owner{ContainerID: "young", IfName: "eth0"}
	for owner, age := range map[ipam.Owner]time.Duration{old: 2 * markAge, young: markAge / 2} {
		if err := m.Set(owner, now); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(m.path(owner), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Set(ipam.Owner{ContainerID: "next", IfName: "eth0"}, swept); err != nil {
		t.Fatal(err)
	}
	if files := filesIn(t, m.directory); len(files) != 2 || files[0] != "next@eth0" || files[1] != "young@eth0" {
		t.Errorf("marks: %v", files)
	}
}

func TestMarksAreForRootAlone(t *testing.T) {
	t.Parallel()
	run := filepath.Join(shm(t), "run")
	m := NewMarks(run)
	owner := ipam.Owner{ContainerID: "c", IfName: "eth0"}
	if err := m.Set(owner, testNow); err != nil {
		t.Fatal(err)
	}
	if modeOf(t, run) != 0o700 || modeOf(t, m.directory) != 0o700 || modeOf(t, m.path(owner)) != 0o600 {
		t.Error("others can read marks")
	}
	file := filepath.Join(shm(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := NewMarks(file).Set(owner, testNow); err == nil {
		t.Error("a mark below a file")
	}
}
