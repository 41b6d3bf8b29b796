// Command image puts the built binaries into one container image for all roles, as
// an OCI archive: a tar file of an OCI image layout (OCI Image Format Specification
// 1.1), which containerd, Podman, skopeo and Docker (25 or later) load. It needs no
// container engine and no network, and makes the same file of the same binaries,
// bit for bit.
//
// Usage:
//
//	image -version VERSION -output FILE amd64=BINARY [arm64=BINARY]...
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	version := flags.String("version", "", "of the binaries")
	output := flags.String("output", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || *output == "" || flags.NArg() == 0 {
		return errors.New("usage: image -version VERSION -output FILE amd64=BINARY [arm64=BINARY]")
	}
	var platforms []platform
	for _, arg := range flags.Args() {
		arch, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not like amd64=BINARY", arg)
		}
		platforms = append(platforms, platform{arch, path})
	}
	index, err := buildIndex(*version, platforms)
	if err != nil {
		return err
	}
	return writeArchive(index, imageName+":"+*version, *output)
}
