package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Programs are those that a cluster is made of.
type Programs struct {
	ControlPlane string // see testenv.Build
	Tools        string // directory: kubelet, kubectl, helm, containerd, runc and the like
	Plugins      string // directory: Multus and the reference CNI plugins
}

// target is one call of go build.
type target struct {
	module string // directory, from the repository's root
	into   string // directory or file, from the cache's
	what   string // package, or tool for all of the module's tools
	cgo    bool
}

// The versions are in the modules.
var targets = []target{
	{module: "integration/e2e/parts", into: "tools/parts", what: "."},
	{module: "integration/e2e/runtime", into: "tools/", what: "tool"},
	{module: "manifests/render", into: "tools/", what: "tool"},
	{module: "integration/e2e/runc", into: "tools/runc", what: "github.com/opencontainers/runc", cgo: true},
	{module: ".", into: "tools/", what: "./integration/e2e/plainrunc"},
	{module: ".", into: "tools/", what: "./integration/e2e/pod"},
	{module: "integration/e2e/multus", into: "plugins/multus", what: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"},
	{module: "integration/cniplugins", into: "plugins/", what: "tool"},
}

// Build builds the programs from Go modules, into the user's cache directory: a quarter
// of an hour or longer the first time, some seconds later. The repository's root is given;
// progress goes to log.
func Build(ctx context.Context, repository string, log io.Writer) (Programs, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Programs{}, fmt.Errorf("no place to keep programs (set XDG_CACHE_HOME): %w", err)
	}
	cache = filepath.Join(cache, "whereabouts", "e2e")
	p := Programs{Tools: filepath.Join(cache, "tools"), Plugins: filepath.Join(cache, "plugins")}
	if p.ControlPlane, err = testenv.Build(ctx, log); err != nil {
		return p, err
	}
	if err := errors.Join(os.MkdirAll(p.Tools, 0o755), os.MkdirAll(p.Plugins, 0o755)); err != nil {
		return p, err
	}
	fmt.Fprintln(log, "e2e: building kubelet, containerd, Multus and others into", cache)
	for _, t := range targets {
		if err := t.build(ctx, repository, cache, log); err != nil {
			return p, fmt.Errorf("building %s of %s: %w", t.what, t.module, err)
		}
	}
	for _, name := range []string{"kubelet", "kubectl", "kube-scheduler"} {
		if err := relink("parts", filepath.Join(p.Tools, name)); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (t target) build(ctx context.Context, repository, cache string, log io.Writer) error {
	into := filepath.Join(cache, t.into)
	if strings.HasSuffix(t.into, "/") {
		into += "/" // go build takes it for a directory then
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", into, t.what)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(repository, t.module), log, log
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if t.cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	return cmd.Run()
}

func relink(to, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(to, path)
}
