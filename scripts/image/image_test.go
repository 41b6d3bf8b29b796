package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func build(t *testing.T, output string) []byte {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, bytes.Repeat([]byte("binary "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-version", "v1.2.3", "-output", output, "amd64=" + binary, "arm64=" + binary}, t.Output()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSameImageFromSameBinaries(t *testing.T) {
	directory := t.TempDir()
	first := build(t, filepath.Join(directory, "first.tar"))
	if second := build(t, filepath.Join(directory, "second.tar")); !bytes.Equal(first, second) {
		t.Error("two builds of the same binary differ")
	}
	if left, _ := filepath.Glob(filepath.Join(directory, ".image-*")); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestImageHoldsOneBinaryAndItsLinks(t *testing.T) {
	archive := build(t, filepath.Join(t.TempDir(), "image.tar"))
	index := unpack(t, archive)
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != imageName+":v1.2.3" {
		t.Errorf("the image is called %q", got)
	}
	platforms, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image := imageFor(t, platforms, arch)
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch || config.Config.User != unprivileged {
			t.Errorf("%s: architecture %s, user %s", arch, config.Architecture, config.Config.User)
		}
		checkContent(t, image)
	}
}

func checkContent(t *testing.T, image v1.Image) {
	t.Helper()
	content := tar.NewReader(mutate.Extract(image))
	var links []string
	files := 0
	for {
		header, err := content.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch header.Typeflag {
		case tar.TypeSymlink:
			links = append(links, header.Name)
			if header.Linkname != binaryPath {
				t.Errorf("%s leads to %s", header.Name, header.Linkname)
			}
		case tar.TypeReg:
			files++
			if header.Name != binaryPath || header.Mode != 0o755 {
				t.Errorf("%s has mode %o", header.Name, header.Mode)
			}
		}
	}
	slices.Sort(links)
	if want := slices.Sorted(slices.Values(roleLinks)); files != 1 || !slices.Equal(links, want) {
		t.Errorf("%d files and links %v, want 1 and %v", files, links, want)
	}
}

func imageFor(t *testing.T, index v1.ImageIndex, arch string) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Architecture == arch {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("there is no image for %s", arch)
	return nil
}

func unpack(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	directory := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(directory, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"-version", "v1", "-output", "x"},
		{"-version", "v1", "-output", "x", "binary"},
		{"-version", "v1", "-output", filepath.Join(t.TempDir(), "x"), "amd64=/nowhere"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
