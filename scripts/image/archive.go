package main

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is the name that an engine gives the image when it loads the archive.
const imageName = "ghcr.io/whereabouts-cni/whereabouts"

// writeArchive writes a tar file of an OCI image layout, whole or not at all. Engines
// that load it call the image by the reference.
func writeArchive(index v1.ImageIndex, reference, path string) (err error) {
	directory, err := os.MkdirTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	content := filepath.Join(directory, "layout")
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          reference,
			"org.opencontainers.image.ref.name": reference,
		}},
	})
	if _, err := layout.Write(content, outer); err != nil {
		return fmt.Errorf("image layout: %w", err)
	}
	file, err := os.Create(filepath.Join(directory, "archive"))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := tarDirectory(file, content); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// tarDirectory writes the files below a directory in the order of their names.
func tarDirectory(file *os.File, directory string) error {
	w := tar.NewWriter(file)
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return addFile(w, filepath.ToSlash(name), 0o644, data)
	})
	if err != nil {
		return err
	}
	return w.Close()
}
