package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is one control plane for all tests of a package, started when the
// first of them asks for it:
//
//	var shared = testenv.Shared{CRDs: "../manifests/crds"}
//
//	func TestMain(m *testing.M) { shared.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		cp := shared.ControlPlane(t)
//		namespace := cp.Namespace(t)
//
// Tests keep apart by namespaces and may run in parallel. A test that stops
// processes of the control plane, or changes what all share, starts its own.
type Shared struct {
	CRDs           string   // directory of definitions to install; "" for none
	APIServerFlags []string // more flags for the API server

	once sync.Once
	cp   *ControlPlane
	err  error
}

// Main runs the tests, ends the control plane and exits the process.
func (s *Shared) Main(m *testing.M) {
	code := m.Run()
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func (s *Shared) close() error {
	if s.cp == nil {
		return nil
	}
	return s.cp.Close()
}

// ControlPlane answers the package's control plane.
func (s *Shared) ControlPlane(tb testing.TB) *ControlPlane {
	tb.Helper()
	s.once.Do(s.start)
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.cp
}

// start runs once: a machine on which it fails does not get better by trying it
// for each test.
func (s *Shared) start() {
	ctx := context.Background() // the first test's ends before the others
	binary, err := Build(ctx, os.Stderr)
	if err != nil {
		s.err = err
		return
	}
	if s.cp, s.err = Launch(binary, s.APIServerFlags...); s.err != nil || s.CRDs == "" {
		return
	}
	s.err = s.cp.InstallCRDs(ctx, s.CRDs)
}
