package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BinaryVariable is the environment variable that may name a ready control
// plane binary; nothing is built then.
const BinaryVariable = "WHEREABOUTS_CONTROL_PLANE"

// Binary is Build for a test, which fails if there is no binary to be had.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := Build(tb.Context(), os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Build returns the path of the control plane's binary: etcd and kube-apiserver
// in one, from integration/controlplane. It is built once for each content of
// that module and each version of Go, which takes about seven minutes with a
// cold build cache, and kept in the user's cache directory. Concurrent callers,
// also in other processes, build it once. Messages about progress go to log.
func Build(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		if err := unix.Access(path, unix.X_OK); err != nil {
			return "", fmt.Errorf("%s=%s is not a program that can be run: %w; unset it to build one", BinaryVariable, path, err)
		}
		return path, nil
	}
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	target, err := cachePath(ctx, source)
	if err != nil {
		return "", err
	}
	if isFile(target) {
		return target, nil
	}
	return target, buildLocked(ctx, log, source, target)
}

// buildLocked builds the target unless somebody else has done so meanwhile.
func buildLocked(ctx context.Context, log io.Writer, source, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("making the cache directory: %w", err)
	}
	lock, err := waitForLock(ctx, log, target+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if isFile(target) {
		return nil
	}
	fmt.Fprintf(log, "testenv: building the control plane for tests into %s: about 7 minutes, once\n", target)
	begin := time.Now()
	if err := build(ctx, log, source, target); err != nil {
		return fmt.Errorf("building the control plane in %s (set %s to use a ready one): %w", source, BinaryVariable, err)
	}
	fmt.Fprintf(log, "testenv: built the control plane in %s\n", time.Since(begin).Round(time.Second))
	return nil
}

// waitForLock says so when it has to wait, and gives up with the context.
func waitForLock(ctx context.Context, log io.Writer, path string) (*os.File, error) {
	for told := false; ; told = true {
		lock, err := lockFile(path, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return lock, err
		}
		if !told {
			fmt.Fprintln(log, "testenv: waiting for another process that builds the control plane")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another process that builds the control plane: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func build(ctx context.Context, log io.Writer, source, target string) error {
	unfinished := target + ".unfinished" // the lock is ours, so is this name
	cmd := goCommand(ctx, source, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Stderr = log
	version, err := cmd.Output()
	if err != nil {
		return err
	}
	flags := linkFlags + strings.TrimSpace(string(version))
	cmd = goCommand(ctx, source, "build", "-buildvcs=false", "-ldflags", flags, "-o", unfinished, ".")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return err
	}
	return os.Rename(unfinished, target)
}

// linkFlags end in a version: what the API server says of itself, which clients like
// Helm look at. By itself, it does not know.
const linkFlags = "-s -w -X k8s.io/component-base/version.gitVersion="

// goCommand is one in the module, independent of how the tests themselves are built.
func goCommand(ctx context.Context, source string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return cmd
}

// cachePath names the binary after everything that goes into it.
func cachePath(ctx context.Context, source string) (string, error) {
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n", name, len(data))
		hash.Write(data)
	}
	version, err := goCommand(ctx, source, "version").Output() // go.mod may choose the toolchain
	if err != nil {
		return "", fmt.Errorf("go version: %w", err)
	}
	hash.Write(version)
	hash.Write([]byte(linkFlags))
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep the control plane's binary (set XDG_CACHE_HOME or %s): %w", BinaryVariable, err)
	}
	return filepath.Join(cache, "whereabouts", "controlplane-"+hex.EncodeToString(hash.Sum(nil))[:16]), nil
}

// sourceDir finds the control plane's module: beside this file, or, if the
// binary was built with trimmed paths, from the working directory upwards.
func sourceDir() (string, error) {
	_, self, _, _ := runtime.Caller(0)
	if dir := filepath.Join(filepath.Dir(self), "..", "controlplane"); isFile(filepath.Join(dir, "go.mod")) {
		return filepath.Clean(dir), nil
	}
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		found := filepath.Join(dir, "integration", "controlplane")
		if isFile(filepath.Join(found, "go.mod")) {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no integration/controlplane in %s or above it: run this inside the repository", start)
		}
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
