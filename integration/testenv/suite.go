package testenv

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// otherBinary names a program to test in place of the repository's: to see that the tests
// find what is wrong with it.
const otherBinary = "WHEREABOUTS_BINARY"

// Suite is the tests of a package that run the built program, on a control plane that they
// share if they want:
//
//	var suite = testenv.Suite{Repository: "..", Shared: testenv.Shared{CRDs: "../manifests/crds"}}
//
//	func TestMain(m *testing.M) { suite.Main(m) }
type Suite struct {
	Shared
	Repository string // path
	Parallel   int    // tests at once if the command line does not say; 0 is Go's default
	Binary     string // path of the program, from Main on
}

// Main builds the program, runs the tests, cleans up and exits the process.
func (s *Suite) Main(m *testing.M) {
	code, err := s.run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func (s *Suite) run(m *testing.M) (code int, err error) {
	flag.Parse()
	s.moreParallel()
	dir, err := os.MkdirTemp("", "whereabouts-suite-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s.Binary = filepath.Join(dir, "whereabouts") // as runtimes call it
	if other := os.Getenv(otherBinary); other != "" {
		err = os.Symlink(other, s.Binary)
	} else {
		err = BuildProgram(s.Repository, s.Binary)
	}
	if err != nil {
		return 0, err
	}
	code = m.Run()
	return code, s.close()
}

// moreParallel lets more tests run at once than there are processors, where most of them
// wait for a pause to pass. What was asked for on the command line stays.
func (s *Suite) moreParallel() {
	asked := s.Parallel == 0
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", strconv.Itoa(s.Parallel))
	}
}

// BuildProgram builds the program of a repository. It also reads the source directories,
// though it has no need to: results of tests are cached by what the test process itself
// has opened, and without that a change of the program would leave them "(cached)".
func BuildProgram(repository, file string) error {
	err := filepath.WalkDir(repository, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "integration") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("looking at the sources: %w", err)
	}
	cmd := exec.Command("go", "build", "-o", file, ".")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program under test: %w\n%s", err, out)
	}
	return nil
}
