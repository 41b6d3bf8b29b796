package integration

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// binary is the path of the program under test, called as runtimes call it.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	moreParallel()
	dir, err := os.MkdirTemp("", "whereabouts-integration-")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "whereabouts")
	if err := build(binary); err != nil {
		return complain(err)
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		return max(code, complain(err))
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "integration:", err)
	return 1
}

// moreParallel lets more tests run at once than there are processors: most of
// them wait for a pause of the plugin to pass. What was asked for on the command
// line stays.
func moreParallel() {
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", "8")
	}
}

// build also reads the source directories, though it has no need to: results of
// tests are cached by what the test process itself has opened, and without that a
// change of the program would leave them "(cached)".
func build(path string) error {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "integration") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("looking at the sources: %w", err)
	}
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program under test: %w\n%s", err, out)
	}
	return nil
}

// shared is the control plane of all tests that do not need their own. It is not
// testenv.Shared because that ends the process before the built binary could be
// removed.
var shared struct {
	sync.Once
	cp  *testenv.ControlPlane
	err error
}

func controlPlane(t testing.TB) *testenv.ControlPlane {
	t.Helper()
	shared.Do(func() { shared.cp, shared.err = launch() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cp
}

func launch() (*testenv.ControlPlane, error) {
	ctx := context.Background() // the first test's ends before the others
	servers, err := testenv.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	cp, err := testenv.Launch(servers)
	if err != nil {
		return nil, err
	}
	return cp, cp.InstallCRDs(ctx, "../manifests/crds")
}

func closeShared() error {
	if shared.cp == nil {
		return nil
	}
	return shared.cp.Close()
}
