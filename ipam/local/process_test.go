package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
)

// roleEnv makes the test binary play another process: it holds the role, the
// path of the store and the process' name.
const roleEnv = "WHEREABOUTS_LOCAL_TEST_ROLE"

func TestMain(m *testing.M) {
	role := strings.Split(os.Getenv(roleEnv), ",")
	roles := map[string]func(path, name string) error{
		"take": takeLowest, "churn": churn, "full": fillDisk, "readonly": useReadOnly,
	}
	play, ok := roles[role[0]]
	if !ok {
		os.Exit(m.Run())
	}
	if err := play(role[1], role[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// process prepares this binary to run in a role.
func process(ctx context.Context, role, path, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role+","+path+","+name)
	return cmd
}

// takeLowest is a process that takes the lowest free address, as one ADD does,
// and says which.
func takeLowest(path, name string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	for {
		p, err := s.Read(context.Background(), testPool)
		if err != nil {
			return err
		}
		a := testPool.Range.Addr().Next()
		for {
			if _, held := p.Records[a]; !held {
				break
			}
			a = a.Next()
		}
		err = s.Commit(context.Background(), []ipam.Change{take(a, testRecord(name))})[0]
		if err == nil {
			fmt.Println(a)
			return nil
		}
		if !errors.Is(err, ipam.ErrConflict) {
			return err
		}
	}
}

func TestManyProcessesAtOnceGetDifferentAddresses(t *testing.T) {
	path := newPath(t)
	const processes = 20
	said := make([]string, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			out, err := process(t.Context(), "take", path, fmt.Sprint("pod-", i)).CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v: %s", i, err, out)
			}
			said[i] = strings.TrimSpace(string(out))
		})
	}
	wg.Wait()
	s := mustOpen(t, path)
	p, err := s.Read(t.Context(), testPool)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Records) != processes {
		t.Errorf("%d addresses are recorded, want %d", len(p.Records), processes)
	}
	for i, text := range said {
		a, err := netip.ParseAddr(text)
		if want := fmt.Sprint("default/pod-", i); err != nil || p.Records[a].PodRef != want {
			t.Errorf("process %d was told %q, which is held by %q", i, text, p.Records[a].PodRef)
		}
	}
	storetest.CheckInvariants(t, s)
	checkPages(t, path)
}

// churn is a process that takes and releases addresses until it is killed, and
// says what it has, and what it is about to give back.
func churn(path, name string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	for {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + rand.N(20))})
		r := testRecord(name)
		err := s.Commit(context.Background(), []ipam.Change{take(a, r)})[0]
		if errors.Is(err, ipam.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println("has", a, r.Gen)
		if rand.N(3) == 0 {
			continue // keeps it
		}
		fmt.Println("gives", a, r.Gen)
		if err := s.Commit(context.Background(), []ipam.Change{release(a, r)})[0]; err != nil {
			return err
		}
	}
}

// TestKilledProcessesHarmNobody kills processes in the middle of their work.
// What they said they have must be recorded, and the file must be sound.
func TestKilledProcessesHarmNobody(t *testing.T) {
	const rounds, processes = 12, 3
	path := newPath(t)
	s := mustOpen(t, path)
	for round := range rounds {
		if round%3 == 0 { // dying while the file is made is of interest too
			path = newPath(t)
			s = mustOpen(t, path)
		}
		has := map[string]bool{}
		for _, lines := range killMany(t, path, processes, round) {
			follow(has, lines)
		}
		p, err := s.Read(t.Context(), testPool)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for holding := range has {
			address, gen, _ := strings.Cut(holding, " ")
			if got := p.Records[netip.MustParseAddr(address)]; got.Gen != gen {
				t.Errorf("round %d: a process had %s, but it is held by %+v", round, holding, got)
			}
		}
		storetest.CheckInvariants(t, s)
		if p.Exists {
			checkPages(t, path)
		}
		for a, r := range p.Records {
			mustCommit(t, s, release(a, r))
		}
	}
}

// killMany starts processes, kills each after it has said a few lines, and
// answers what each of them said.
func killMany(t *testing.T, path string, processes, lines int) [][]string {
	t.Helper()
	said := make([][]string, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := process(ctx, "churn", path, fmt.Sprint("pod-", i))
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			said[i] = readThenKill(cmd, out, lines)
		})
	}
	wg.Wait()
	return said
}

func readThenKill(cmd *exec.Cmd, out io.Reader, lines int) (said []string) {
	scanner := bufio.NewScanner(out)
	for len(said) < lines && scanner.Scan() {
		said = append(said, scanner.Text())
	}
	time.Sleep(rand.N(5 * time.Millisecond)) // anywhere in its work
	_ = cmd.Process.Kill()
	for scanner.Scan() {
		said = append(said, scanner.Text())
	}
	_ = cmd.Wait()
	return said
}

// follow keeps track of what a process has by what it said. A last line without
// an end does not count, but the scanner cuts none: a line is one write.
func follow(has map[string]bool, lines []string) {
	for _, line := range lines {
		verb, holding, _ := strings.Cut(line, " ")
		if verb == "has" {
			has[holding] = true
		} else {
			delete(has, holding)
		}
	}
}

// checkPages runs bbolt's own check of a file.
func checkPages(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bbolt.Tx) error {
		var found []error
		for err := range tx.Check() {
			found = append(found, err)
		}
		return errors.Join(found...)
	})
	if err != nil {
		t.Errorf("bbolt finds the file unsound: %v", err)
	}
}

// TestFullAndReadOnlyDisks runs processes in mount namespaces of their own, with
// a small file system at the store's directory.
func TestFullAndReadOnlyDisks(t *testing.T) {
	for _, role := range []string{"full", "readonly"} {
		t.Run(role, func(t *testing.T) {
			cmd := process(t.Context(), role, t.TempDir(), "pod")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), cannotMount) || errors.Is(err, syscall.EPERM) {
				t.Skipf("SKIPPED: this machine lets us make no file system: %v %s", err, out)
			}
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

const cannotMount = "cannot mount"

func mountSmall(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		return fmt.Errorf(cannotMount+": %w", err)
	}
	return nil
}

// fillDisk takes addresses until the disk is full. The error must say so, and
// what was there before must stay.
func fillDisk(dir, name string) error {
	if err := mountSmall(dir); err != nil {
		return err
	}
	s, err := Open(dir + "/whereabouts.db")
	if err != nil {
		return err
	}
	a, taken := netip.MustParseAddr("10.0.0.0"), 0
	for err == nil && taken < 250 {
		r := testRecord(name)
		r.UID = strings.Repeat("long", 1000)
		a, taken = a.Next(), taken+1
		err = s.Commit(context.Background(), []ipam.Change{take(a, r)})[0]
	}
	if !errors.Is(err, ipam.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		return fmt.Errorf("a full disk answers %w", err)
	}
	p, err := s.Read(context.Background(), testPool)
	if err != nil || len(p.Records) != taken-1 {
		return fmt.Errorf("on the full disk are %d records (%w), want %d", len(p.Records), err, taken-1)
	}
	return nil
}

// useReadOnly uses a store on a disk that became read-only.
func useReadOnly(dir, name string) error {
	if err := mountSmall(dir); err != nil {
		return err
	}
	s, err := Open(dir + "/whereabouts.db")
	if err != nil {
		return err
	}
	if err := s.Commit(context.Background(), []ipam.Change{take(testAddr, testRecord(name))})[0]; err != nil {
		return err
	}
	if err := syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf(cannotMount+" it read-only: %w", err)
	}
	err = s.Commit(context.Background(), []ipam.Change{take(testAddr.Next(), testRecord(name))})[0]
	for call, err := range map[string]error{"Commit": err, "Ready": s.Ready(context.Background())} {
		if !errors.Is(err, ipam.ErrDenied) || !strings.Contains(err.Error(), dir) {
			return fmt.Errorf("%s on a read-only disk answers %w", call, err)
		}
	}
	return nil
}
