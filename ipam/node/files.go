package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// maxFileName is below the limit of all usual file systems (255 bytes).
const maxFileName = 200

// podFile is a file name for a pod's interface; for a container's when there is no
// pod.
func podFile(owner ipam.Owner) string {
	if namespace, pod, ok := strings.Cut(owner.PodRef, "/"); ok {
		return safeName(namespace + "_" + pod + "@" + owner.IfName)
	}
	return safeName("container_" + owner.ContainerID + "@" + owner.IfName)
}

// containerFile is a file name for a container's interface.
func containerFile(owner ipam.Owner) string { return safeName(owner.ContainerID + "@" + owner.IfName) }

// safeName makes sure that a name is one: it comes from the runtime, which had it
// from a pod.
func safeName(name string) string {
	if len(name) > maxFileName || strings.ContainsFunc(name, unsafe) || strings.HasPrefix(name, ".") {
		sum := sha256.Sum256([]byte(name))
		return hex.EncodeToString(sum[:])
	}
	return name
}

func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@", r))
}

// replace writes a file whole or not at all, readable by root alone. It makes the
// directory if need be. With sync it survives a power cut.
func replace(path string, data []byte, sync bool) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(directory, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // fails once it has been renamed
	_, err = temporary.Write(data)
	if err == nil && sync {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil || !sync {
		return err
	}
	return syncDirectory(directory)
}

// syncDirectory makes a renamed file survive a power cut under its new name.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
