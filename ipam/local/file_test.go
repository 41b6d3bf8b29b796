package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
)

func TestFilesThatAreNoStoreAreRefusedAndLeftAlone(t *testing.T) {
	newer := func(t *testing.T, path string) {
		mustCommit(t, mustOpen(t, path), take(testAddr, testRecord("a")))
		withBolt(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(keyMeta).Put(keyLayout, []byte("2")) })
	}
	foreign := func(t *testing.T, path string) {
		withBolt(t, path, func(tx *bbolt.Tx) error { return errors.Join(createBucket(tx, "theirs")) })
	}
	write := func(content string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want error
		text string
	}{
		{"an empty file", write(""), ipam.ErrCorrupt, "empty"},
		{"a text file", write("hello"), ipam.ErrCorrupt, "invalid"},
		{"a longer text file", write(strings.Repeat("hello\n", 10000)), ipam.ErrCorrupt, "invalid"},
		{"another program's database", foreign, ipam.ErrCorrupt, "not one of Whereabouts"},
		{"a newer layout", newer, ipam.ErrCorrupt, `layout "2"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := newPath(t)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			tt.make(t, path)
			before, _ := os.ReadFile(path)
			for call, err := range everyCall(t, mustOpen(t, path)) {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%s answers %v, want %v with %q and the path", call, err, tt.want, tt.text)
				}
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func createBucket(tx *bbolt.Tx, name string) error {
	_, err := tx.CreateBucket([]byte(name))
	return err
}

// everyCall calls every method and answers their errors.
func everyCall(t *testing.T, s *Store) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, read := s.Read(ctx, testPool)
	_, reservation := s.Reservation(ctx, testPool.Network, testAddr)
	_, snapshot := s.Snapshot(ctx)
	r := testRecord("everyCall")
	return map[string]error{
		"Read": read, "Reservation": reservation, "Snapshot": snapshot, "Ready": s.Ready(ctx),
		"take":    s.Commit(ctx, []ipam.Change{take(testAddr.Next(), r)})[0],
		"release": s.Commit(ctx, []ipam.Change{release(testAddr.Next(), r)})[0],
	}
}

func TestPathsThatCannotBeUsedAreDenied(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a directory":             dir,
		"below a file":            filepath.Join(file, "whereabouts.db"),
		"a name that is too long": filepath.Join(dir, strings.Repeat("x", 300)),
		"a device":                "/dev/null",
	} {
		for call, err := range everyCall(t, mustOpen(t, path)) {
			if !errors.Is(err, ipam.ErrDenied) || !strings.Contains(err.Error(), "local_path "+path) {
				t.Errorf("%s: %s answers %v, want ErrDenied with the path", name, call, err)
			}
		}
	}
}

// TestDamagedFilesAreErrors spoils one page after the other. Whatever comes of
// it, it must be no panic, and the file must be usable again once it is repaired.
func TestDamagedFilesAreErrors(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	a := netip.MustParseAddr("10.0.0.10")
	for i := range 60 {
		mustCommit(t, s, ipam.Change{Pool: testPool, Address: a, After: new(testRecord(fmt.Sprint(i)))})
		a = a.Next()
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page, failed := os.Getpagesize(), 0
	for damage, spoil := range map[string]func(page []byte){
		"ones":   func(p []byte) { copy(p, bytes.Repeat([]byte{0xff}, len(p))) },
		"noise":  func(p []byte) { noise(p) },
		"header": func(p []byte) { copy(p[8:16], bytes.Repeat([]byte{0xff}, 8)) },
		"body":   func(p []byte) { noise(p[16:]) },
	} {
		for at := 0; at+page <= len(good); at += page {
			bad := bytes.Clone(good)
			spoil(bad[at : at+page])
			failed += useDamaged(t, fmt.Sprintf("%s in page %d", damage, at/page), path, bad)
		}
	}
	for _, length := range []int{1, page - 1, page, 2 * page, 3 * page, len(good) / 2, len(good) - 1} {
		failed += useDamaged(t, fmt.Sprintf("cut to %d bytes", length), path, good[:length])
	}
	if failed == 0 {
		t.Error("no damage was noticed: the test does not test anything")
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for call, err := range everyCall(t, s) {
		if err != nil {
			t.Errorf("after the repair %s answers %v", call, err)
		}
	}
}

func noise(p []byte) {
	source := rand.New(rand.NewPCG(1, 2)) // the same in each run
	for i := range p {
		p[i] = byte(source.Uint32())
	}
}

// useDamaged uses a damaged file and counts the calls that fail.
func useDamaged(t *testing.T, damage, path string, content []byte) (failed int) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for call, err := range everyCall(t, mustOpen(t, path)) {
		if err == nil {
			continue
		}
		failed++
		if !errors.Is(err, ipam.ErrCorrupt) && !errors.Is(err, ipam.ErrUnavailable) {
			t.Errorf("%s: %s answers %v", damage, call, err)
		}
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error of %s does not name the path: %v", damage, call, err)
		}
	}
	return failed
}

func TestUnreadableEntriesCountAsHeldAndAreLeftAlone(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	bad := map[string]string{
		"10.0.0.1": "no JSON", "10.0.0.2": "{}", "10.0.0.3": `{"id":7}`, "10.0.0.4": " ", "10.0.0.5": `{"id":"c","since":"x"}`,
		"010.0.0.6": `{"id":"c"}`, "junk": `{"id":"c"}`,
	}
	var keys []string
	for key, value := range bad {
		seed(t, path, step{poolPath(testPool), []byte(key), []byte(value)})
		keys = append(keys, key)
	}
	slices.Sort(keys)
	before := dump(t, path)
	p, err := s.Read(t.Context(), testPool)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Bad, keys) {
		t.Errorf("Bad is %q, want %q", p.Bad, keys)
	}
	for i := range 5 {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		if r, held := p.Records[a]; !held || r != (ipam.Record{}) {
			t.Errorf("%s is held: %v by %+v, want it held by nobody known", a, held, r)
		}
		var conflict *ipam.ConflictError
		if err := commit(t, s, take(a, testRecord("a"))); !errors.As(err, &conflict) || conflict.Holder != (ipam.Record{}) {
			t.Errorf("taking %s answers %v, want a conflict with nobody known", a, err)
		}
		mustCommit(t, s, release(a, ipam.Record{}))
	}
	if after := dump(t, path); !slices.Equal(before, after) {
		t.Errorf("the file changed from %q to %q", before, after)
	}
	all, err := s.Snapshot(t.Context())
	if err != nil || len(all.Pools) != 1 || !slices.Equal(all.Pools[0].Bad, keys) {
		t.Errorf("the snapshot is %+v, %v; want the unreadable entries in it", all, err)
	}
}

func TestUnreadableReservationsBlockTheirAddress(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	seed(t, path, step{reservationPath(testPool), addressKey(testAddr), []byte("no JSON")})
	if _, err := s.Reservation(t.Context(), testPool.Network, testAddr); !errors.Is(err, ipam.ErrCorrupt) {
		t.Errorf("Reservation answers %v, want ErrCorrupt", err)
	}
	var conflict *ipam.ConflictError
	if err := commit(t, s, take(testAddr, testRecord("a"))); !errors.As(err, &conflict) || !conflict.Reserved {
		t.Errorf("taking it answers %v, want a conflict with a reservation", err)
	}
	mustCommit(t, s, release(testAddr, testRecord("a")))
	all, err := s.Snapshot(t.Context())
	if err != nil || len(all.Reservations) != 1 || all.Reservations[0].Record != (ipam.Record{}) {
		t.Errorf("the snapshot is %+v, %v; want a reservation of nobody known", all, err)
	}
}

func TestWaitingEndsWithTheContextAndLeavesNothingOpen(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path)
	mustCommit(t, s, take(testAddr, testRecord("a")))
	holdLockFile := func() (unlock func()) {
		unlock, err := mustOpen(t, path).lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return unlock
	}
	holdTurn := func() (unlock func()) {
		unlock, err := s.lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return unlock
	}
	holdDatabase := func() (unlock func()) {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		return func() { _ = db.Close() }
	}
	for name, hold := range map[string]func() func(){
		"another process has the lock":            holdLockFile,
		"another call of this process has it":     holdTurn,
		"another program has the database itself": holdDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			unlock := hold()
			files, goroutines := openFiles(t), runtime.NumGoroutine()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := s.Read(ctx, testPool)
			wantGaveUp(t, path, err)
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			wantGaveUp(t, path, s.Commit(ctx, []ipam.Change{take(testAddr.Next(), testRecord("b"))})[0])
			if got := openFiles(t); got > files {
				t.Errorf("%d files are open, before it were %d", got, files)
			}
			goroutinesComeDownTo(t, goroutines)
			unlock()
			if p, err := s.Read(t.Context(), testPool); err != nil || len(p.Records) != 1 {
				t.Errorf("after it got free Read answers %+v, %v", p, err)
			}
		})
	}
}

func wantGaveUp(t *testing.T, path string, err error) {
	t.Helper()
	if !errors.Is(err, ipam.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want ErrUnavailable and DeadlineExceeded with the path", err)
	}
}

// goroutinesComeDownTo waits for the goroutines that end a context to be gone.
func goroutinesComeDownTo(t *testing.T, want int) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > want {
		if time.Now().After(end) {
			t.Errorf("%d goroutines are left, before it were %d", runtime.NumGoroutine(), want)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestALeftoverOfAnUnfinishedCreationIsReplaced(t *testing.T) {
	path := newPath(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	mustCommit(t, s, take(testAddr, testRecord("a")))
	storetest.CheckInvariants(t, s)
}

func TestAFileThatVanishesIsNotMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "whereabouts.db")
	s := mustOpen(t, path)
	err := s.use(t.Context(), path, &bbolt.Options{}, func(*bbolt.DB) error { return nil })
	if !errors.Is(err, ipam.ErrUnavailable) {
		t.Errorf("got error %v, want ErrUnavailable", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file (%v)", err)
	}
}

func TestErrorsOfTheFileSystemAreSorted(t *testing.T) {
	s := mustOpen(t, "/somewhere/whereabouts.db")
	for errno, want := range map[syscall.Errno]error{
		syscall.EACCES: ipam.ErrDenied, syscall.EPERM: ipam.ErrDenied, syscall.EROFS: ipam.ErrDenied,
		syscall.ENOTDIR: ipam.ErrDenied, syscall.ENOSPC: ipam.ErrUnavailable, syscall.EDQUOT: ipam.ErrUnavailable,
		syscall.EIO: ipam.ErrUnavailable, syscall.EMFILE: ipam.ErrUnavailable,
	} {
		err := s.explain(&os.PathError{Op: "write", Path: "x", Err: errno})
		if !errors.Is(err, want) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "local_path /somewhere/whereabouts.db") {
			t.Errorf("%v becomes %v, want %v with the path", errno, err, want)
		}
	}
	if s.explain(nil) != nil {
		t.Error("nil becomes an error")
	}
}
