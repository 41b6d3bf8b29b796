package ipcontrol

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
)

// localStore is a file with records.
type localStore struct {
	*testing.T
	ipam.Store
	path string
}

func newLocalStore(t *testing.T) localStore {
	path := filepath.Join(t.TempDir(), "whereabouts.db")
	store, err := local.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return localStore{t, store, path}
}

func (l localStore) take(id ipam.PoolID, overlap bool, records map[string]ipam.Record) {
	l.Helper()
	var changes []ipam.Change
	for a, r := range records {
		changes = append(changes, ipam.Change{Pool: id, Address: netip.MustParseAddr(a), After: &r, Overlap: overlap})
	}
	for _, err := range l.Commit(l.Context(), changes) {
		if err != nil {
			l.Fatal(err)
		}
	}
}

func record(pod, container string, ago time.Duration) ipam.Record {
	return ipam.Record{
		ContainerID: container, IfName: "net1", PodRef: pod, Gen: "00000001", UID: "uid-of-" + filepath.Base(pod), Node: "node1",
		Network: "storage", Since: fixedNow.Add(-ago),
	}
}

func poolID(network, cidr string) ipam.PoolID {
	return ipam.PoolID{Network: network, Range: netip.MustParsePrefix(cidr)}
}

const longID = "0123456789abcdef0123456789abcdef"

func TestLocalStoreInAllForms(t *testing.T) {
	l := newLocalStore(t)
	l.take(poolID("", "10.0.0.0/24"), true, map[string]ipam.Record{
		"10.0.0.1": record("default/web-0", longID, 3*time.Minute),
		"10.0.0.2": record("default/web-1", "c2", 50*time.Hour),
		"10.0.0.3": {ContainerID: ipam.ReservedID("the printer"), Gen: "1", Since: fixedNow.Add(-time.Hour)},
		"10.0.0.9": {ContainerID: "podman-container", IfName: "eth0", Gen: "1"},
	})
	l.take(poolID("", "10.9.0.0/30"), true, map[string]ipam.Record{"10.9.0.1": record("a/b", "c", time.Hour), "10.9.0.2": record("a/c", "d", time.Hour)})
	l.take(poolID("storage", "fd00::/64"), true, map[string]ipam.Record{"fd00::1": record("default/web-0", longID, 3*time.Minute)})
	hide := map[string]string{"$FILE": l.path}
	newShell(t).golden("local", hide,
		"show --local $FILE", "show --local $FILE -o wide", "show -o json --local $FILE", "show -o yaml --local $FILE --network storage",
		"show 10.0.0.0-24 --local $FILE", "show 10.0.0.0/24 --local $FILE -o wide", "show fd00---64 --local $FILE", "show storage-fd00---64 -o json --local $FILE",
		"show 10.9.0.0-30 --map --local $FILE", "show 10.0.0.0-24 --map --local $FILE", "show storage-fd00---64 --map --local $FILE",
		"show default/web-0 --local $FILE", "show default/web-0 --local $FILE -o yaml", "show default/nobody --local $FILE", "show nonsense --local $FILE",
		"show 10.0.0.1 --local $FILE", "show 10.0.0.3 --local $FILE", "show 10.0.0.9 --local $FILE", "show 10.0.0.77 --local $FILE", "show 10.0.0.0 --local $FILE",
		"show 192.0.2.1 --local $FILE", "show 10.0.0.1 -o json --local $FILE",
		"check --local $FILE", "check --local $FILE -o json",
	)
}

func TestEmptyStore(t *testing.T) {
	s := newSeededCluster(t).shell()
	s.golden("empty", nil, "show", "show -o json", "show -o yaml", "show 10.0.0.1", "show 10.0.0.0/24", "check", "check -o yaml", "check --fix --yes")
}

const definedNet = `{"cniVersion": "1.0.0", "name": "storage", "type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.0.0.0/24",
	"range_end": "10.0.0.200", "exclude": ["10.0.0.16/28"], "gateway": "10.0.0.254", "ipRanges": [{"range": "10.8.0.0/16", "gateway": "10.8.0.1"}]}}`

// richCluster has definitions, old objects and what cannot be read.
func richCluster(t *testing.T) *seededCluster {
	t.Helper()
	c := newSeededCluster(t)
	c.pod("default", "web-0", "Running", "10.0.0.1", "10.0.0.17", "10.8.0.2")
	c.pod("default", "web-1", "Running", "10.8.1.44", "10.244.0.3")
	c.pod("default", "old", "Running", "10.0.0.2")
	c.pod("x", "y", "Running", "10.0.0.1")
	c.pod("default", "full-0", "Running", "10.9.0.1", "fd00::1")
	c.pod("default", "full-1", "Running", "10.9.0.2")
	c.define("default", "storage", definedNet)
	entry := func(pod, id string) object { return object{"id": id, "podref": pod, "ifname": "net1", "gen": "1"} }
	c.pool("kube-system", "10.0.0.0-24", "10.0.0.0/24", object{
		"1": entry("default/web-0", longID), "2": object{"id": "old", "podref": "default/old"}, // as old versions wrote it
		"3": object{"id": "reserved:a printer", "podref": ""}, "17": entry("default/web-0", "c17"),
		"4": object{}, "seven": entry("a/b", "c"),
	})
	c.pool("kube-system", "10.8.0.0-16", "10.8.0.0/16", object{"2": entry("default/web-0", longID), "300": entry("default/web-1", "x")})
	c.pool("other", "10.0.0.0-24", "10.0.0.0/24", object{"1": entry("x/y", "z")})
	c.pool("kube-system", "10.9.0.0-30", "10.9.0.0/30", object{"1": entry("default/full-0", "f0"), "2": entry("default/full-1", "f1")})
	c.pool("kube-system", "fd00---64", "fd00::/64", object{"1": entry("default/full-0", "f0")})
	for name, spec := range map[string]object{
		"10.0.0.1":  {"podref": "default/web-0", "ifname": "net1", "containerid": longID, "uid": c.uids["default/web-0"], "node": "node1", "network": "storage", "range": "10.0.0.0/24", "since": c.ago(2 * time.Hour)},
		"10.0.0.2":  {"podref": "default/old"},
		"10.0.0.3":  {"podref": "", "containerid": "reserved:a printer", "range": "10.0.0.0/24", "since": c.ago(28 * 24 * time.Hour)},
		"10.0.0.4":  {"podref": "default/what"},
		"10.0.0.17": {"podref": "default/web-0", "ifname": "net1", "containerid": "c17"},
		"10.8.0.2":  {"podref": "default/web-0", "ifname": "net1", "containerid": longID},
		"10.8.1.44": {"podref": "default/web-1", "ifname": "net1", "containerid": "x"},
		"10.9.0.1":  {"podref": "default/full-0", "ifname": "net1", "containerid": "f0", "range": "10.9.0.0/30"},
		"10.9.0.2":  {"podref": "default/full-1", "ifname": "net1", "containerid": "f1", "range": "10.9.0.0/30"},
		"fd00--1":   {"podref": "default/full-0", "ifname": "net1", "containerid": "f0", "range": "fd00::/64"},
	} {
		c.reserve("kube-system", name, spec)
	}
	c.reserve("other", "10.0.0.1", object{"podref": "x/y", "containerid": "z", "ifname": "net1"})
	return c
}

func TestClusterInAllForms(t *testing.T) {
	c := richCluster(t)
	hide := map[string]string{"$UID": c.uids["default/web-0"], "$TWO_HOURS_AGO": c.ago(2 * time.Hour), "$FOUR_WEEKS_AGO": c.ago(28 * 24 * time.Hour)}
	c.shell().golden("cluster", hide,
		"show", "show -o wide", "show -n other", "show -o json", "show 10.0.0.0-24 -n kube-system", "show kube-system/10.0.0.0-24 -o json",
		"show 10.0.0.0-24 --map -n kube-system", "show 10.8.0.0-16 --map",
		"show 10.9.0.0-30", "show 10.9.0.0-30 --map", "show fd00::/64", "show fd00---64 --map", "show fd00::1 -o json", "show default/full-0",
		"show 10.0.0.1", "show 10.0.0.2 -n kube-system", "show 10.0.0.4 -n kube-system", "show 10.0.0.20 -n kube-system", "show 10.0.0.254 -n kube-system",
		"show 10.0.0.220 -n kube-system", "show 10.0.0.50 -n kube-system", "show 10.0.0.3 -o yaml -n kube-system", "show default/web-0 -o wide",
		"check", "check -o json -n kube-system",
	)
}

func TestAddressOutsideEveryPoolThatADefinitionHas(t *testing.T) {
	c := newSeededCluster(t)
	c.define("default", "storage", definedNet)
	s := c.shell()
	if a := s.run("show", "10.8.3.4"); a.exit != 0 || !strings.Contains(a.stdout, "outside every pool; network attachment definition default/storage") {
		t.Errorf("%+v", a)
	}
}

func TestTenThousandRecordsInSummary(t *testing.T) {
	c := newSeededCluster(t)
	allocations := object{}
	for i := range 10_000 {
		allocations[fmt.Sprint(i+1)] = object{"id": fmt.Sprint("c", i), "podref": fmt.Sprint("ns/p", i), "ifname": "net1"}
	}
	c.pool("kube-system", "10.0.0.0-16", "10.0.0.0/16", allocations)
	s := c.shell()
	s.golden("many", nil, "show", "show 10.0.0.0-16 --map", "show 10.0.0.17")
	if a := s.run("show", "10.0.0.0/16"); strings.Count(a.stdout, "\n") != 10_003 {
		t.Errorf("%d lines", strings.Count(a.stdout, "\n"))
	}
}

func TestColourOnATerminalAlone(t *testing.T) {
	c := richCluster(t)
	for name, test := range map[string]struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		"pipe":     {false, nil, false},
		"terminal": {true, nil, true},
		"NO_COLOR": {true, map[string]string{"NO_COLOR": "1"}, false},
		"dumb":     {true, map[string]string{"TERM": "dumb"}, false},
	} {
		s := newShell(t)
		s.terminal = test.terminal
		for key, value := range test.env {
			s.env[key] = value
		}
		a := s.run("show", "10.8.0.0-16", "--map", "--kubeconfig", c.kubeconfig())
		if got := strings.Contains(a.stdout, "\x1b["); a.exit != 0 || got != test.want {
			t.Errorf("%s: coloured %v, want %v (%s)", name, got, test.want, a.stderr)
		}
	}
}

func TestMapsFitAScreen(t *testing.T) {
	c := richCluster(t)
	c.pool("other", "2001-db8-1111-2222---64", "2001:db8:1111:2222::/64", object{"1": object{"id": "c", "podref": "a/b"}})
	c.pool("other", "2001-db8-1111-2222-3333-4444-5555-6600-120", "2001:db8:1111:2222:3333:4444:5555:6600/120", object{"1": object{"id": "c", "podref": "a/b"}})
	s := newShell(t)
	for _, pool := range []string{"10.0.0.0-24", "10.8.0.0-16", "2001:db8:1111:2222::/64", "2001:db8:1111:2222:3333:4444:5555:6600/120"} {
		a := s.run("show", pool, "--map", "--kubeconfig", c.kubeconfig())
		for line := range strings.Lines(a.stdout) {
			if n := len([]rune(line)) - 1; n > 80 && !strings.HasPrefix(line, "pool ") && !strings.HasPrefix(line, ". ") && !strings.HasPrefix(line, "each ") {
				t.Errorf("%s: %d columns: %s", pool, n, line)
			}
		}
		if a.exit != 0 || strings.Count(a.stdout, "#")+strings.Count(a.stdout, "1") == 0 {
			t.Errorf("%s: %+v", pool, a)
		}
	}
}

func TestNothingIsSaidToBeGoneThatCouldNotBeRead(t *testing.T) {
	for _, resource := range []string{"pods", "nodes", "network-attachment-definitions"} {
		c := richCluster(t)
		c.deny(resource)
		s := c.shell()
		a := s.run("check", "-o", "json")
		if strings.Contains(a.stdout, `"orphan"`) || !strings.Contains(a.stdout, "notLookedAt") || a.exit != 1 {
			t.Errorf("%s: %+v", resource, a)
		}
		if a := s.run("show"); a.exit != 0 {
			t.Errorf("%s: show: %+v", resource, a)
		}
	}
	c := newSeededCluster(t)
	c.deny("pods")
	s := c.shell()
	if a := s.run("check"); a.exit != 2 || !strings.Contains(a.stderr, "pods") {
		t.Errorf("nothing found, not all seen: %+v", a)
	}
	c.deny("ippools")
	if a := s.run("show"); a.exit != 2 {
		t.Errorf("no access: %+v", a)
	}
}

func TestWatchPrintsChangesAlone(t *testing.T) {
	l := newLocalStore(t)
	id := poolID("", "10.0.0.0/24")
	l.take(id, true, map[string]ipam.Record{"10.0.0.1": record("a/b", "c", time.Hour)})
	s := newShell(t)
	looks := 0
	a, err := s.watch(l.path, func() bool {
		if looks++; looks == 3 {
			l.take(id, true, map[string]ipam.Record{"10.0.0.2": record("a/c", "d", time.Hour)})
		}
		return looks < 6
	})
	if err != nil || strings.Count(a, "RANGE") != 2 || !strings.Contains(a, "   254     1") || !strings.Contains(a, "   254     2") {
		t.Errorf("%v: %s", err, a)
	}
}

func TestQueuedReleasesAreFound(t *testing.T) {
	l := newLocalStore(t)
	l.take(poolID("", "10.0.0.0/24"), true, map[string]ipam.Record{"10.0.0.1": record("a/b", "c", time.Hour)})
	state := t.TempDir()
	if err := os.MkdirAll(filepath.Join(state, "releases"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"abc@net1", "abd@net1", "x.corrupt"} {
		if err := os.WriteFile(filepath.Join(state, "releases", name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newShell(t)
	s.env["WHEREABOUTS_STATE_DIR"] = state
	a := s.run("check", "--local", l.path)
	for _, words := range []string{"2 releases wait in " + state, "1 file ending in .corrupt", "the next call of the plugin"} {
		if a.exit != 1 || !strings.Contains(a.stdout, words) {
			t.Errorf("no word of %q: %+v", words, a)
		}
	}
}
