package reclaim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the path of the program under test.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	moreParallel()
	dir, err := os.MkdirTemp("", "whereabouts-reclaim-")
	if err == nil {
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "whereabouts")
		err = build(binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reclaim:", err)
		return 1
	}
	return m.Run()
}

// moreParallel lets more tests run at once than there are processors: most of them
// wait for clean-up. What was asked for on the command line stays.
func moreParallel() {
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", "4")
	}
}

// build takes another program if WHEREABOUTS_BINARY names one: to see that the
// tests find what is wrong with it.
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
