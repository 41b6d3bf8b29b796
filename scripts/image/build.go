package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// binaryPath is where the binary lies in the image.
const binaryPath = "whereabouts"

// roleLinks are the names under which the binary has other roles: those of today, and
// those that manifests for older images call.
var roleLinks = []string{
	"install", "reconcile", "controller", "ip-control", "kubectl-whereabouts",
	"ip-control-loop", "ip-reconciler", "node-slice-controller",
}

// unprivileged is a user id that exists on no host by convention.
const unprivileged = "65532:65532"

type platform struct {
	arch   string // as in GOARCH
	binary string // path
}

// buildIndex is an image for several platforms.
func buildIndex(version string, platforms []platform) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := buildImage(version, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
	}
	return index, nil
}

func buildImage(version string, p platform) (v1.Image, error) {
	content, err := layerContent(p.binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configFile(image, version, p))
}

func configFile(image v1.Image, version string, p platform) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", p.arch
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.History = nil
	config.Config = v1.Config{
		User:       unprivileged,
		Env:        []string{"PATH=/"},
		Entrypoint: []string{"/" + binaryPath},
		Cmd:        []string{"help"},
		Labels: map[string]string{
			"org.opencontainers.image.title":   "whereabouts",
			"org.opencontainers.image.version": version,
		},
	}
	return config
}

// layerContent is the tar file of an image's only layer: the binary and its links.
func layerContent(path string) ([]byte, error) {
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if err := addFile(w, binaryPath, 0o755, binary); err != nil {
		return nil, err
	}
	for _, name := range roleLinks {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: binaryPath, Mode: 0o777, ModTime: time.Unix(0, 0)})
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
