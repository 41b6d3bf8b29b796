package mixed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// binary is the path of the program under test, and oldBinary that of the test itself,
// which is the older plugin too.
var binary, oldBinary string

func TestMain(m *testing.M) {
	if os.Getenv(oldVariable) != "" {
		os.Exit(oldMain())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "whereabouts-mixed-")
	if err == nil {
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "whereabouts")
		err = build(binary)
	}
	if err == nil {
		oldBinary, err = os.Executable()
	}
	if err != nil {
		return complain(err)
	}
	code := m.Run()
	if shared.cp != nil {
		if err := shared.cp.Close(); err != nil {
			code = max(code, complain(err))
		}
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "mixed:", err)
	return 1
}

// build takes another program if WHEREABOUTS_BINARY names one: to see that the tests
// find what is wrong with it.
func build(path string) error {
	if other := os.Getenv("WHEREABOUTS_BINARY"); other != "" {
		return os.Symlink(other, path)
	}
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program under test: %w\n%s", err, out)
	}
	return nil
}

// shared is the control plane of the tests in which no reconcile runs, which would look
// at the records of all. It is not testenv.Shared because that ends the process before
// the built binary could be removed.
var shared struct {
	sync.Once
	cp  *testenv.ControlPlane
	err error
}

func sharedControlPlane(t testing.TB) *testenv.ControlPlane {
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
	return cp, cp.InstallCRDs(ctx, "../../manifests/crds")
}
