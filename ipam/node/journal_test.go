package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func holdingOf(container string) ipam.Holding {
	return ipam.Holding{
		Pool:    ipam.PoolID{Network: "net", Node: "n", Range: netip.MustParsePrefix("10.0.0.0/24")},
		Address: netip.MustParseAddr("10.0.0.7"),
		Record:  ipam.Record{ContainerID: container, IfName: "net1", PodRef: "a/b", Gen: "x"},
	}
}

func TestJournalRemembersByPodAndInterface(t *testing.T) {
	j := NewJournal(filepath.Join(t.TempDir(), "state"))
	owner := ipam.Owner{ContainerID: "c2", IfName: "net1", PodRef: "a/b"}
	want := []ipam.Holding{holdingOf("c1"), holdingOf("c2")}
	if err := j.Save(owner, want); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		owner ipam.Owner
		want  []ipam.Holding
	}{
		"another container of the pod": {ipam.Owner{ContainerID: "c1", IfName: "net1", PodRef: "a/b"}, want},
		"another interface":            {ipam.Owner{ContainerID: "c2", IfName: "net2", PodRef: "a/b"}, nil},
		"another pod":                  {ipam.Owner{ContainerID: "c2", IfName: "net1", PodRef: "a/bb"}, nil},
		"no pod":                       {ipam.Owner{ContainerID: "c2", IfName: "net1"}, nil},
	} {
		got, err := j.Load(c.owner)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, c.want)
		}
	}
	if err := j.Save(owner, nil); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(j.directory); len(files) != 0 {
		t.Errorf("files left after nothing is held: %v", files)
	}
}

func TestJournalStaysInItsDirectory(t *testing.T) {
	j := NewJournal(t.TempDir())
	for _, ref := range []string{"../../etc/passwd", "a/../b", "/", "a/" + string(make([]byte, 300))} {
		path := j.path(ipam.Owner{ContainerID: "c", IfName: "eth0", PodRef: ref})
		if filepath.Dir(path) != j.directory {
			t.Errorf("pod %q: file %s lies outside of %s", ref, path, j.directory)
		}
	}
}

func TestJournalDoesNotBelieveABrokenPage(t *testing.T) {
	j := NewJournal(t.TempDir())
	owner := ipam.Owner{ContainerID: "c1", IfName: "net1", PodRef: "a/b"}
	if err := j.Save(owner, []ipam.Holding{holdingOf("c1")}); err != nil {
		t.Fatal(err)
	}
	bad := holdingOf("c1")
	bad.Pool.Range = netip.Prefix{}
	bad.Address = netip.Addr{}
	// A page cut short, as by a full disk, is not believed.
	if err := os.WriteFile(j.path(owner), []byte(`{"holdings": [{"ran`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Load(owner); err == nil || got != nil {
		t.Errorf("half a page was read as %v, %v", got, err)
	}
	if err := j.Save(owner, []ipam.Holding{bad}); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Load(owner); err != nil || got != nil {
		t.Errorf("a holding without an address was read as %v, %v", got, err)
	}
}
