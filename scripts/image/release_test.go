package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// compressedLimit is the size, in bytes, that the part of a node's platform may have.
const compressedLimit = 25_000_000

// What `make image` makes: in two copies of the repository, at two paths, the same to
// the bit; small; and of one static binary, in which each role starts.
func TestReleasedImage(t *testing.T) {
	first, second := makeImage(t), makeImage(t)
	if !bytes.Equal(first, second) {
		t.Error("two copies of the repository make different images")
	}
	platforms, err := unpack(t, first).IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := unpack(t, first).ImageIndex(platforms.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image := imageFor(t, index, arch)
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, layer := range layers {
			size, err := layer.Size()
			if err != nil {
				t.Fatal(err)
			}
			total += size
		}
		if t.Logf("%s: %d bytes compressed", arch, total); total >= compressedLimit {
			t.Errorf("the image for %s has %d bytes, want less than %d", arch, total, compressedLimit)
		}
		root := t.TempDir()
		extract(t, mutate.Extract(image), root)
		static(t, filepath.Join(root, binaryPath))
		if arch == runtime.GOARCH {
			rolesStart(t, root)
		}
	}
}

// makeImage is the archive that a copy of the repository makes.
func makeImage(t *testing.T) []byte {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	clone := t.TempDir()
	for _, name := range []string{"main.go", "go.mod", "go.sum", "Makefile", "commands", "ipam", "kube", "scripts"} {
		if err := copyTree(filepath.Join(repository, name), filepath.Join(clone, name)); err != nil {
			t.Fatal(err)
		}
	}
	made := exec.CommandContext(t.Context(), "make", "-C", clone, "image", "VERSION=v1.2.3")
	if text, err := made.CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, text)
	}
	data, err := os.ReadFile(filepath.Join(clone, "dist/whereabouts-image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode())
}

// extract writes the files and links of an image.
func extract(t *testing.T, content io.ReadCloser, root string) {
	t.Helper()
	defer content.Close()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeSymlink {
			err = os.Symlink(header.Linkname, path)
		} else {
			err = write(path, r, header.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string, content io.Reader, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	return file.Close()
}

// static fails if a program asks for an interpreter, which loads libraries.
func static(t *testing.T, path string) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if program.Section(".interp") != nil || program.Section(".dynamic") != nil {
		t.Errorf("%s is not static", path)
	}
}

// rolesStart calls the binary by each of its names, with nothing around it but the image.
func rolesStart(t *testing.T, root string) {
	if os.Geteuid() != 0 {
		t.Log("SKIPPED: starting the roles in the image takes root")
		return
	}
	inside := func(name string, env []string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Env, c.Dir = env, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		text, err := c.CombinedOutput()
		return string(text), err
	}
	// The plugin answers without arguments, as runtimes call it.
	text, err := inside("/whereabouts", []string{"CNI_COMMAND=VERSION"})
	if err != nil || !strings.Contains(text, `"supportedVersions"`) {
		t.Errorf("the plugin: %v\n%s", err, text)
	}
	roles := map[string]string{
		"install": "install", "reconcile": "reconcile", "controller": "controller", "ip-control": "ip-control",
		"kubectl-whereabouts": "ip-control", "ip-control-loop": "reconcile", "ip-reconciler": "reconcile",
		"node-slice-controller": "controller",
	}
	if want := slices.Sorted(maps.Keys(roles)); !slices.Equal(slices.Sorted(slices.Values(roleLinks)), want) {
		t.Errorf("the image's links are %v, want %v", roleLinks, want)
	}
	for link, role := range roles {
		_, want, _ := strings.Cut(help(t, inside, role), " - ")
		want, _, _ = strings.Cut(want, "\n")
		if got := help(t, inside, link); want == "" || !strings.Contains(got, want) {
			t.Errorf("%s --help says\n%s\nwant %q, as %s does", link, got, want, role)
		}
	}
}

func help(t *testing.T, inside func(name string, env []string, args ...string) (string, error), link string) string {
	t.Helper()
	text, err := inside("/"+link, nil, "--help")
	if err != nil {
		t.Errorf("%s --help: %v\n%s", link, err, text)
	}
	return text
}
