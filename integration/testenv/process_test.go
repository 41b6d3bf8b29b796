package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServersEndWithTheirTest(t *testing.T) {
	var dir string
	var pid int
	t.Run("inner", func(t *testing.T) {
		etcd := StartEtcd(t, 1)
		dir, pid = etcd.dir.path, etcd.Members[0].server.current().cmd.Process.Pid
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is left: %v", pid, err)
	}
}

// childVariable makes this test binary the process that is killed.
const childVariable = "WHEREABOUTS_TESTENV_CHILD"

func TestServersEndWithAKilledProcess(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		etcd := StartEtcd(t, 1)
		fmt.Println("child:", etcd.Members[0].client.address(), etcd.dir.path)
		select {}
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childVariable+"=1", BinaryVariable+"="+Binary(t))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var address, dir string
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "child: %s %s", &address, &dir)
	}
	if err := errors.Join(dial(t.Context(), address), child.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	err = poll(time.Minute, func() bool { return true }, func() error {
		if err := dial(t.Context(), address); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("etcd at %s has survived: want a refused connection, got %v", address, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("no data was left behind, so nothing is there to clear up: %v", err)
	}
	next, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next process did not clear up %s: %v", dir, err)
	}
	if err := next.remove(); err != nil {
		t.Error(err)
	}
}

func dial(ctx context.Context, address string) error {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

func TestScratchInUseIsNotSwept(t *testing.T) {
	first, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	second, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	if !isFile(first.file("lock")) {
		t.Error("the second swept the first away")
	}
	if err := errors.Join(first.remove(), second.remove()); err != nil {
		t.Error(err)
	}
}

func TestReservedPortRefusesUntilSomebodyListens(t *testing.T) {
	reserved, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer reserved.release()
	if err := dial(t.Context(), reserved.address()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("want a refused connection, got %v", err)
	}
	if listener, err := net.Listen("tcp", reserved.address()); err == nil {
		listener.Close()
		t.Error("a stranger could take the port")
	}
	for range 2 {
		config := net.ListenConfig{Control: sharePort}
		listener, err := config.Listen(t.Context(), "tcp", reserved.address())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dial(t.Context(), reserved.address()), listener.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestBinaryOfTheEnvironmentMustBeAProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	t.Setenv(BinaryVariable, path)
	if _, err := Build(t.Context(), os.Stderr); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("want an error that names %s, got %v", path, err)
	}
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := Build(t.Context(), os.Stderr); got != path || err != nil {
		t.Errorf("want %s, got %s, %v", path, got, err)
	}
}
