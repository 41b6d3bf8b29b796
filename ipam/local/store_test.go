package local

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		path := newPath(t)
		return storetest.Harness{
			Store:   mustOpen(t, path),
			Other:   func(t *testing.T) ipam.Store { return mustOpen(t, path) },
			Details: true,
			SeedReservation: func(t *testing.T, r ipam.Reservation) {
				value := encode(r.Record, r.Range)
				seed(t, path, step{reservationPath(ipam.PoolID{Network: r.Space}), addressKey(r.Address), value})
			},
			SeedRecord: func(t *testing.T, id ipam.PoolID, a netip.Addr, r ipam.Record) {
				seed(t, path, step{poolPath(id), addressKey(a), encodeRecord(r)})
			},
		}
	})
}

var (
	testPool = ipam.PoolID{Network: "blue", Range: netip.MustParsePrefix("10.0.0.0/24")}
	testAddr = netip.MustParseAddr("10.0.0.5")
)

// newPath is a path for a store whose directory does not exist yet.
func newPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state", "whereabouts.db")
}

func mustOpen(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seed writes an entry past the rules.
func seed(t *testing.T, path string, st step) {
	t.Helper()
	err := mustOpen(t, path).update(t.Context(), true, st.perform)
	if err != nil {
		t.Fatal(err)
	}
}

func testRecord(pod string) ipam.Record {
	return ipam.NewRecord(ipam.Owner{ContainerID: "container-" + pod, IfName: "net1", PodRef: "default/" + pod},
		time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))
}

func take(a netip.Addr, r ipam.Record) ipam.Change {
	return ipam.Change{Pool: testPool, Address: a, After: &r, Overlap: true}
}

func release(a netip.Addr, r ipam.Record) ipam.Change {
	return ipam.Change{Pool: testPool, Address: a, Before: &r, Overlap: true}
}

func commit(t *testing.T, s *Store, c ipam.Change) error {
	t.Helper()
	return s.Commit(t.Context(), []ipam.Change{c})[0]
}

func mustCommit(t *testing.T, s *Store, c ipam.Change) {
	t.Helper()
	if err := commit(t, s, c); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesRelativePaths(t *testing.T) {
	for _, path := range []string{"", "whereabouts.db", "./x/whereabouts.db"} {
		_, err := Open(path)
		if !errors.Is(err, ipam.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) {
			t.Errorf("Open(%q) answers %v, want ErrInvalid with the path", path, err)
		}
	}
}

func TestNothingIsCreatedBeforeTheFirstRecord(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	if _, err := s.Read(t.Context(), testPool); err != nil {
		t.Error(err)
	}
	if _, err := s.Snapshot(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	mustCommit(t, s, release(testAddr, testRecord("a")))
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory exists (%v)", err)
	}
}

func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	r := testRecord("a")
	mustCommit(t, s, take(testAddr, r))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, take(testAddr, r))
	mustCommit(t, s, release(testAddr.Next(), r))
	mustCommit(t, s, release(testAddr, testRecord("b")))
	if err := commit(t, s, take(testAddr, testRecord("b"))); !errors.Is(err, ipam.ErrConflict) {
		t.Errorf("taking a held address answers %v, want a conflict", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was written")
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	path := newPath(t)
	mustCommit(t, mustOpen(t, path), take(testAddr, testRecord("a")))
	for name, want := range map[string]os.FileMode{
		filepath.Dir(path): os.ModeDir | 0o700, path: 0o600, path + ".lock": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file is still there (%v)", err)
	}
}

// TestLayout holds the file to what layout.go says about it.
func TestLayout(t *testing.T) {
	path := newPath(t)
	r := testRecord("a")
	r.Gen, r.UID, r.Node, r.Network = "9f86d081", "u", "node1", "mynet"
	s := mustOpen(t, path)
	slice := ipam.PoolID{Node: "node1", Range: netip.MustParsePrefix("fd00::/64")}
	old := ipam.Record{ContainerID: "c", PodRef: "default/old"}
	mustCommit(t, s, take(testAddr, r))
	mustCommit(t, s, ipam.Change{Pool: slice, Address: netip.MustParseAddr("fd00::1"), After: &old})
	const owner = `"id":"container-a","ifname":"net1","podref":"default/a",`
	const details = `"uid":"u","node":"node1","network":"mynet","since":"2026-01-02T15:04:05Z"`
	want := []string{
		`networks/network_name=/pools/fd00::/64 node1/fd00::1 {"id":"c","podref":"default/old"}`,
		`networks/network_name=blue/pools/10.0.0.0/24/10.0.0.5 {` + owner + `"gen":"9f86d081",` + details + `}`,
		`networks/network_name=blue/reservations/10.0.0.5 {` + owner + details + `,"range":"10.0.0.0/24"}`,
		`whereabouts/layout 1`,
	}
	if got := dump(t, path); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the file holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// dump lists all keys of a file with their values.
func dump(t *testing.T, path string) []string {
	t.Helper()
	var lines []string
	var walk func(prefix string, b *bbolt.Bucket) error
	walk = func(prefix string, b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if value == nil {
				return walk(prefix+string(key)+"/", b.Bucket(key))
			}
			lines = append(lines, fmt.Sprintf("%s%s %s", prefix, key, value))
			return nil
		})
	}
	withBolt(t, path, func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name)+"/", b) })
	})
	return lines
}

// withBolt changes a file as another program would.
func withBolt(t *testing.T, path string, fn func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestAReservationWithoutARangeBelongsToThePoolThatHasTheRecord(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	r := testRecord("a")
	wide := ipam.PoolID{Network: testPool.Network, Range: netip.MustParsePrefix("10.0.0.0/16")}
	seed(t, path, step{poolPath(wide), addressKey(testAddr), encodeRecord(r)})
	seed(t, path, step{reservationPath(wide), addressKey(testAddr), encode(r, "")})

	var conflict *ipam.ConflictError
	if err := commit(t, s, take(testAddr, r)); !errors.As(err, &conflict) || conflict.Range != wide.Range.String() {
		t.Errorf("taking it through another range answers %v (%+v), want a conflict with the wide range", err, conflict)
	}
	mustCommit(t, s, release(testAddr, r))
	if got, err := s.Reservation(t.Context(), wide.Network, testAddr); got == nil || err != nil {
		t.Errorf("releasing it through another range freed the reservation (%v)", err)
	}
	mustCommit(t, s, ipam.Change{Pool: wide, Address: testAddr, Before: &r})
	if got, err := s.Reservation(t.Context(), wide.Network, testAddr); got != nil || err != nil {
		t.Errorf("after the release the reservation is %+v (%v), want none", got, err)
	}
}

func TestAReservationThatWasWrittenAgainJustAsItWasStaysBesideItsRecord(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	r := testRecord("a")
	mustCommit(t, s, take(testAddr, r))
	seen, err := s.Reservation(t.Context(), testPool.Network, testAddr)
	if err != nil {
		t.Fatal(err)
	}
	alone := ipam.Change{Pool: ipam.PoolID{Network: testPool.Network}, Address: testAddr, Seen: seen}
	mustCommit(t, s, alone)
	storetest.CheckInvariants(t, s)
	alone.Strict = true
	if err := commit(t, s, alone); !errors.Is(err, ipam.ErrConflict) {
		t.Errorf("releasing it strictly answers %v, want a conflict", err)
	}
	seed(t, path, step{poolPath(testPool), addressKey(testAddr), []byte("unreadable")})
	mustCommit(t, s, ipam.Change{Pool: alone.Pool, Address: testAddr, Seen: seen})
	if got, err := s.Reservation(t.Context(), testPool.Network, testAddr); got == nil || err != nil {
		t.Errorf("beside an unreadable record the reservation is %v (%v), want it to stay", got, err)
	}
}

func TestChangesThatCouldNotBeReadAgainAreRefused(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	long := testPool
	long.Network = strings.Repeat("n", bbolt.MaxKeySize)
	r, future := testRecord("a"), testRecord("a")
	future.Since = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]ipam.Change{
		"a name that is too long": {Pool: long, Address: testAddr, After: &r},
		"a record of nobody":      {Pool: testPool, Address: testAddr, After: &ipam.Record{IfName: "net1"}},
		"a year that is too far":  {Pool: testPool, Address: testAddr, After: &future},
		"no record at all":        {Pool: testPool, Address: testAddr},
	} {
		if err := commit(t, s, c); !errors.Is(err, ipam.ErrInvalid) {
			t.Errorf("%s answers %v, want ErrInvalid", name, err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written (%v)", err)
	}
}
