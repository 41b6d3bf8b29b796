// Command plainrunc is runc for nodes of the test cluster: it takes the system call
// filter out of the container's configuration and becomes runc, which is built there
// without the C library that filters need. It finds runc beside itself.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "plainrunc:", err)
		os.Exit(1)
	}
}

func run() error {
	if i := slices.Index(os.Args, "--bundle"); i > 0 && i+1 < len(os.Args) {
		if err := dropFilter(filepath.Join(os.Args[i+1], "config.json")); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runc := filepath.Join(filepath.Dir(self), "runc")
	return syscall.Exec(runc, append([]string{runc}, os.Args[1:]...), os.Environ())
}

// dropFilter removes linux.seccomp from a container's configuration (OCI Runtime
// Specification, config-linux).
func dropFilter(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var linux map[string]json.RawMessage
	if err := json.Unmarshal(config["linux"], &linux); err != nil {
		return fmt.Errorf("%s: linux: %w", path, err)
	}
	delete(linux, "seccomp")
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if data, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
