package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pluginName is how a runtime calls our plugin.
const pluginName = "whereabouts"

// programs are the paths of what is run.
type programs struct {
	ours, peer     string // peer is "" without one
	empty, request string // the floors
}

// repository is the directory of the module that the bench belongs to.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	if _, err := os.Stat(filepath.Join(root, "scripts", "bench", "floor")); err != nil {
		return "", errors.New("not in the repository of Whereabouts: run the bench there")
	}
	return root, nil
}

// buildPrograms builds all programs alike, as a release is built: static, without
// symbols.
func buildPrograms(ctx context.Context, root, dir string, o options) (programs, error) {
	p := programs{
		ours:    filepath.Join(dir, pluginName),
		empty:   filepath.Join(dir, "empty"),
		request: filepath.Join(dir, "request"),
	}
	sources := map[string]string{p.empty: "./scripts/bench/floor/empty", p.request: "./scripts/bench/floor/request"}
	if o.binary == "" {
		sources[p.ours] = "."
	}
	for target, source := range sources {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", target, source)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return p, fmt.Errorf("building %s: %w\n%s", source, err, out)
		}
	}
	var err error
	if o.binary != "" {
		p.ours, err = program(o.binary)
	}
	if err == nil && o.peer != "" {
		p.peer, err = program(o.peer)
	}
	return p, err
}

// program is the absolute path of a file that can be run.
func program(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not a program that can be run", path)
	}
	return path, nil
}
