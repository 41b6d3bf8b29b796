package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
)

// Images that every node has. Pods have to say so: imagePullPolicy Never or
// IfNotPresent.
const (
	PodImage     = "localhost/e2e/pod:1" // see package main in ../pod; it is sleep and true, too
	sandboxImage = "localhost/e2e/sandbox:1"
)

// writeImages writes the archives of both images, which are one program.
func writeImages(tools, directory string) ([]string, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(filepath.Join(tools, "pod"))
	if err != nil {
		return nil, err
	}
	pods, sandboxes := filepath.Join(directory, "pod.tar"), filepath.Join(directory, "sandbox.tar")
	if err := writeImage(pods, PodImage, "/bin/pod", program); err != nil {
		return nil, err
	}
	return []string{pods, sandboxes}, writeImage(sandboxes, sandboxImage, "/bin/sleep", program)
}

// writeImage writes an archive as `docker save` does, which containerd imports. The
// image has one layer: the program as /bin/pod, and links to it.
func writeImage(path, name, entrypoint string, program []byte) error {
	layer, err := tarOf([]tar.Header{
		{Name: "bin/pod", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
		{Name: "bin/sleep", Typeflag: tar.TypeSymlink, Linkname: "pod", Mode: 0o777},
		{Name: "bin/true", Typeflag: tar.TypeSymlink, Linkname: "pod", Mode: 0o777},
	}, program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(object{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": object{"Entrypoint": []string{entrypoint}, "Env": []string{"PATH=/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var headers []tar.Header
	files := [][]byte{config, layer, manifest}
	for i, name := range []string{"config.json", "layer.tar", "manifest.json"} {
		headers = append(headers, tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[i]))})
	}
	archive, err := tarOf(headers, files...)
	if err != nil {
		return err
	}
	return os.WriteFile(path, archive, 0o644)
}

// tarOf is a tar file of the headers; the contents are those of its regular files.
func tarOf(headers []tar.Header, contents ...[]byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, header := range headers {
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := w.Write(contents[0]); err != nil {
			return nil, err
		}
		contents = contents[1:]
	}
	return archive.Bytes(), w.Close()
}
