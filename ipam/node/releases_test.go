package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var testNow = time.Date(2030, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))

func removalOf(container, ifName string) *ipam.Removal {
	four := ipam.PoolID{Network: "net", Node: "n", Range: netip.MustParsePrefix("10.0.0.0/24")}
	six := ipam.PoolID{Range: netip.MustParsePrefix("fd00::/64")}
	record := ipam.Record{ContainerID: container, IfName: ifName, PodRef: "a/b", Gen: "x"}
	return &ipam.Removal{
		Owner:    ipam.Owner{ContainerID: container, IfName: ifName, PodRef: "a/b"},
		Pools:    []ipam.PoolID{four, six},
		Previous: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
		Holdings: []ipam.Holding{
			{Pool: four, Address: netip.MustParseAddr("10.0.0.7"), Record: record},
			{Pool: six, Address: netip.MustParseAddr("fd00::7"), Record: record},
		},
	}
}

func mustPut(t *testing.T, q *Releases, r *ipam.Removal) {
	t.Helper()
	if err := q.Put(r, testNow); err != nil {
		t.Fatal(err)
	}
}

func mustPending(t *testing.T, q *Releases) []*ipam.Removal {
	t.Helper()
	pending, err := q.Pending()
	if err != nil {
		t.Fatal(err)
	}
	return pending
}

func filesIn(t *testing.T, directory string) []string {
	t.Helper()
	files, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, file := range files {
		list = append(list, file.Name())
	}
	return list
}

func TestQueuedReleasesComeBackWhole(t *testing.T) {
	t.Parallel()
	bare := &ipam.Removal{Owner: ipam.Owner{ContainerID: "bare", IfName: "eth0"}}
	full := removalOf("full", "net1")
	q := NewReleases(shm(t), "store")
	if pending := mustPending(t, q); pending != nil {
		t.Errorf("pending before anything was queued: %v", pending)
	}
	mustPut(t, q, full)
	mustPut(t, q, bare)
	again := NewReleases(filepath.Dir(q.directory), "store") // another process
	bare.Late, full.Late = true, true                        // whatever they were when they were queued
	if got, want := mustPending(t, again), []*ipam.Removal{bare, full}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := again.Drop(full.Owner); err != nil {
		t.Fatal(err)
	}
	if got, want := mustPending(t, q), []*ipam.Removal{bare}; !reflect.DeepEqual(got, want) {
		t.Errorf("after a drop: %+v", got)
	}
	if err := q.Drop(full.Owner); err != nil {
		t.Errorf("dropped twice: %v", err)
	}
}

func TestQueuedReleaseIsOneForEachInterfaceOfEachContainer(t *testing.T) {
	t.Parallel()
	q := NewReleases(shm(t), "store")
	odd := []string{"c", "c.d", "c.", "-c", "_", "..", ".hidden", "c/../../d", strings.Repeat("a", 64), strings.Repeat("b", 300), "ü", "c\n"}
	for _, container := range odd {
		for _, ifName := range []string{"eth0", "net1"} {
			mustPut(t, q, removalOf(container, ifName))
			mustPut(t, q, removalOf(container, ifName))
		}
	}
	var got, want []string
	for _, r := range mustPending(t, q) {
		got = append(got, r.Owner.ContainerID+" "+r.Owner.IfName)
	}
	for _, container := range odd {
		want = append(want, container+" eth0", container+" net1")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, container := range odd {
		for _, ifName := range []string{"eth0", "net1"} {
			if err := q.Drop(ipam.Owner{ContainerID: container, IfName: ifName}); err != nil {
				t.Error(err)
			}
		}
	}
	if left := filesIn(t, q.directory); len(left) != 0 {
		t.Errorf("files left: %q", left)
	}
}

func TestQueuedReleasesOfAnotherStoreStay(t *testing.T) {
	t.Parallel()
	state := shm(t)
	mine, other := NewReleases(state, "mine"), NewReleases(state, "other")
	mustPut(t, other, removalOf("c", "eth0"))
	if pending := mustPending(t, mine); pending != nil {
		t.Errorf("another store's: %v", pending)
	}
	if pending := mustPending(t, other); len(pending) != 1 {
		t.Errorf("the store's own: %v", pending)
	}
}

// A cluster of which one address is known is the same cluster.
func TestSameStore(t *testing.T) {
	t.Parallel()
	const queued = "etcd 10.0.0.1:2379,10.0.0.2:2379"
	for now, want := range map[string]bool{
		queued:                             true,
		"etcd 10.0.0.2:2379,10.0.0.3:2379": true,
		"etcd 10.0.0.3:2379":               false,
		"etcd 10.0.0.1:23790":              false,
		"kubernetes 10.0.0.1:2379":         false,
		"etcd":                             false,
	} {
		if got := sameStore(queued, now); got != want {
			t.Errorf("queued for %q, now %q: same store: %t, want %t", queued, now, got, want)
		}
	}
}

// Another store's releases are in nobody's way.
func TestQueuedReleasesOfAnotherStoreDoNotHideOurs(t *testing.T) {
	t.Parallel()
	state := shm(t)
	mine, other := NewReleases(state, "mine"), NewReleases(state, "other")
	for i := range 2 * maxReplay {
		mustPut(t, other, removalOf(fmt.Sprintf("a%d", i), "eth0"))
	}
	mustPut(t, mine, removalOf("z", "eth0"))
	if pending := mustPending(t, mine); len(pending) != 1 || pending[0].Owner.ContainerID != "z" {
		t.Errorf("pending: %v", pending)
	}
}

func TestReleaseQueueIsBounded(t *testing.T) {
	t.Parallel()
	q := NewReleases(shm(t), "store")
	mustPut(t, q, removalOf("first", "eth0"))
	for i := range maxReleases - 1 {
		if err := os.Link(q.path(ipam.Owner{ContainerID: "first", IfName: "eth0"}), filepath.Join(q.directory, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	err := q.Put(removalOf("last", "eth0"), testNow)
	if err == nil || !strings.Contains(err.Error(), q.directory) || !strings.Contains(err.Error(), "full") {
		t.Errorf("one too many: %v", err)
	}
	if pending := mustPending(t, q); len(pending) != maxReplay {
		t.Errorf("%d at once, want %d", len(pending), maxReplay)
	}
}

func TestReleasesThatCannotBeUnderstoodAreSetAsideAndReportedOnce(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty, as after a power cut": "",
		"cut short":                   `{"format": 1, "id": "c", "po`,
		"no JSON":                     "\x00\x00\x00",
		"no container":                `{"format": 1, "store": "store"}`,
		"a newer format":              `{"format": 2, "store": "store", "id": "c"}`,
		"a bad address":               `{"format": 1, "store": "store", "id": "c", "previous": ["10.0.0.999"]}`,
		"a bad range":                 `{"format": 1, "store": "store", "id": "c", "pools": [{"range": "10.0.0.0/33"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := NewReleases(shm(t), "store")
			mustPut(t, q, removalOf("good", "eth0"))
			bad := filepath.Join(q.directory, "bad@eth0")
			if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			pending, err := q.Pending()
			if err == nil || !strings.Contains(err.Error(), bad+corruptSuffix) {
				t.Errorf("the report does not name the file: %v", err)
			}
			if len(pending) != 1 || pending[0].Owner.ContainerID != "good" {
				t.Errorf("pending: %v", pending)
			}
			if pending := mustPending(t, q); len(pending) != 1 {
				t.Errorf("pending the second time: %v", pending)
			}
			if data, err := os.ReadFile(bad + corruptSuffix); err != nil || string(data) != content {
				t.Errorf("set aside: %q, %v", data, err)
			}
		})
	}
}

// A range without a valid address in it is no holding.
func TestQueuedReleaseDoesNotInventHoldings(t *testing.T) {
	t.Parallel()
	q := NewReleases(shm(t), "store")
	mustPut(t, q, removalOf("c", "eth0"))
	path := q.path(ipam.Owner{ContainerID: "c", IfName: "eth0"})
	content := `{"format": 1, "store": "store", "id": "c", "ifname": "eth0", "holdings": [
		{"range": "10.0.0.0/24", "address": "10.0.1.1", "id": "c"}, {"range": "", "address": "", "id": "c"}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if pending := mustPending(t, q); len(pending) != 1 || pending[0].Holdings != nil {
		t.Errorf("pending: %+v", pending)
	}
}

func TestHalfWrittenReleasesAreNotRead(t *testing.T) {
	t.Parallel()
	q := NewReleases(shm(t), "store")
	mustPut(t, q, removalOf("c", "eth0"))
	half := filepath.Join(q.directory, ".new-1234")
	if err := os.WriteFile(half, []byte(`{"format`), 0o600); err != nil {
		t.Fatal(err)
	}
	if pending := mustPending(t, q); len(pending) != 1 {
		t.Errorf("pending: %v", pending)
	}
	if _, err := os.Stat(half); err != nil {
		t.Errorf("somebody is still writing it: %v", err)
	}
}

func TestReleaseQueueThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shm(t), "file")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q := NewReleases(state, "store")
	if err := q.Put(removalOf("c", "eth0"), testNow); err == nil {
		t.Error("queued below a file")
	}
	if pending, err := q.Pending(); err == nil || pending != nil {
		t.Errorf("pending below a file: %v, %v", pending, err)
	}
	if err := q.Drop(ipam.Owner{ContainerID: "c", IfName: "eth0"}); err == nil {
		t.Error("dropped below a file")
	}
}

func TestReleaseQueueIsForRootAlone(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shm(t), "state")
	q := NewReleases(state, "store")
	mustPut(t, q, removalOf("c", "eth0"))
	for _, directory := range []string{state, q.directory} {
		if mode := modeOf(t, directory); mode != 0o700 {
			t.Errorf("%s has mode %o, want 700", directory, mode)
		}
	}
	if mode := modeOf(t, q.path(ipam.Owner{ContainerID: "c", IfName: "eth0"})); mode != 0o600 {
		t.Errorf("mode %o, want 600", mode)
	}
	if files := filesIn(t, q.directory); len(files) != 1 {
		t.Errorf("files: %v", files)
	}
}

// What is on the disk is a promise to later versions: names and meaning of the
// fields stay.
func TestReleaseFile(t *testing.T) {
	t.Parallel()
	q := NewReleases(shm(t), "local /x.db")
	mustPut(t, q, removalOf("c", "eth0"))
	data, err := os.ReadFile(q.path(ipam.Owner{ContainerID: "c", IfName: "eth0"}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"format": 1, "store": "local /x.db", "queued": "2030-01-02T02:04:05.000000006Z",
		"id": "c", "ifname": "eth0", "podref": "a/b",
		"pools": [{"network": "net", "node": "n", "range": "10.0.0.0/24"}, {"range": "fd00::/64"}],
		"previous": ["10.0.0.7", "fd00::7"],
		"holdings": [
			{"network": "net", "node": "n", "range": "10.0.0.0/24", "address": "10.0.0.7", "id": "c", "podref": "a/b", "ifname": "eth0", "gen": "x"},
			{"range": "fd00::/64", "address": "fd00::7", "id": "c", "podref": "a/b", "ifname": "eth0", "gen": "x"}]}`
	var gotFields, wantFields any
	if err := json.Unmarshal(data, &gotFields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wantFields); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(gotFields, wantFields) {
		t.Errorf("got %s", data)
	}
}
