package installer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever moment a process is killed at, the plugin can be called at all times, and
// the next process completes the installation.
func TestKilledAtAnyPoint(t *testing.T) {
	points := 0
	for n := 1; ; n++ {
		h := newHost(t)
		h.write(t, "bin/whereabouts", "older")
		whole := map[string]bool{"older": true, h.read(t, "binary"): true}
		killed := h.die(t, n)
		if got := h.read(t, "bin/whereabouts"); !whole[got] {
			t.Fatalf("killed at %d: whereabouts has %d bytes, %.20q", n, len(got), got)
		}
		for _, name := range []string{"whereabouts.kubeconfig", "whereabouts.conf"} {
			data, err := os.ReadFile(h.path("net.d/whereabouts.d/" + name))
			if err == nil && !strings.HasSuffix(string(data), "\n") {
				t.Errorf("killed at %d: half of %s: %q", n, name, data)
			}
		}
		i := h.installer()
		h.apply(t, i)
		h.now = h.now.Add(2 * graceTime)
		h.apply(t, i)
		h.complete(t)
		if got := h.list(t, "bin"); len(got) != 3 {
			t.Errorf("killed at %d: bin has %v", n, got)
		}
		if !killed {
			break
		}
		points++
	}
	if points < 25 {
		t.Errorf("%d points, fewer than there are changes", points)
	}
}

func TestUnfinishedFilesAreRemovedUnlessSomebodyIsAtWork(t *testing.T) {
	h := newHost(t)
	h.write(t, "bin/"+temporaryPrefix+"dead", "x")
	h.write(t, "net.d/whereabouts.d/"+temporaryPrefix+"dead", "x")
	h.write(t, "bin/"+temporaryPrefix+"alive", "x")
	alive, err := os.Open(h.path("bin/" + temporaryPrefix + "alive"))
	if err == nil {
		err = syscall.Flock(int(alive.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	h.apply(t, h.installer())
	h.complete(t)
	if got := fmt.Sprint(h.list(t, "bin")); strings.Contains(got, "dead") || !strings.Contains(got, "alive") {
		t.Errorf("bin has %s", got)
	}
}

// smallDisk mounts one where the binaries go.
func (h *host) smallDisk(t *testing.T, size int, flags uintptr) {
	t.Helper()
	directory := h.path("bin")
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	if errors.Is(err, syscall.EPERM) {
		t.Skip("SKIPPED: this process may not mount a file system, so full and read-only disks are not tested")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(directory, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h.write(t, "bin/whereabouts", "older")
	if flags != 0 {
		if err := syscall.Mount("", directory, "", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullDiskLeavesTheOldBinaryInForce(t *testing.T) {
	h := newHost(t)
	h.smallDisk(t, binarySize/2, 0)
	i := h.installer()
	_, err := i.Apply()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "CNI_BIN_DIR") || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("error %v", err)
	}
	if got := h.list(t, "bin"); len(got) != 1 || h.read(t, "bin/whereabouts") != "older" {
		t.Errorf("bin has %v", got)
	}
	h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", "token-1")
	if err := syscall.Mount("", h.path("bin"), "", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", 4*binarySize)); err != nil {
		t.Fatal(err)
	}
	h.apply(t, i)
	h.complete(t)
}

func TestReadOnlyDisk(t *testing.T) {
	h := newHost(t)
	h.smallDisk(t, 4*binarySize, syscall.MS_RDONLY)
	_, err := h.installer().Apply()
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "CNI_BIN_DIR") || !strings.Contains(err.Error(), "so that it can be written") {
		t.Errorf("error %v", err)
	}
	if h.read(t, "bin/whereabouts") != "older" {
		t.Error("the older binary is not in force")
	}
	h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", "token-1")
}

func TestPlacesThatCannotBeUsed(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *host)
		says    []string
	}{
		"directory in place of the plugin": {
			func(t *testing.T, h *host) { h.write(t, "bin/whereabouts/x", "") }, []string{"CNI_BIN_DIR", "bin/whereabouts is a directory", "move it"},
		},
		"file in place of the directory": {
			func(t *testing.T, h *host) { h.write(t, "net.d/whereabouts.d", "") }, []string{"CNI_CONF_DIR", "whereabouts.d is no directory", "move it"},
		},
		"file named as the directory for binaries": {
			func(t *testing.T, h *host) { h.settings.BinDir = h.path("binary") }, []string{"CNI_BIN_DIR", "is no directory"},
		},
		"directory that is not mounted": {
			func(t *testing.T, h *host) { h.settings.BinDir = "/host/does/not/exist" }, []string{"CNI_BIN_DIR", "/host/does/not/exist", "mount"},
		},
		"directory in place of the kubeconfig": {
			func(t *testing.T, h *host) { h.write(t, "net.d/whereabouts.d/whereabouts.kubeconfig/x", "") }, []string{"whereabouts.kubeconfig", "is a directory"},
		},
		"no binary": {
			func(t *testing.T, h *host) { os.Remove(h.path("binary")) }, []string{"own binary"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.prepare(t, h)
			_, err := h.installer().Apply()
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error lacks %q: %v", word, err)
				}
			}
		})
	}
}

func TestDirectoriesAreMadeOutsideOfPods(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"bin", "net.d"} {
		if err := os.RemoveAll(h.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	h.apply(t, h.installer())
	h.complete(t)
}

// The kubelet renews a mounted token by another target of the symbolic link ..data.
// Whoever reads the kubeconfig meanwhile finds a whole one, with the token and the
// authority of one time.
func TestReadersNeverSeeATornKubeconfig(t *testing.T) {
	h := newHost(t)
	os.RemoveAll(h.path("account"))
	h.settings.SkipTLSVerify = true
	swap := func(n int) {
		directory := fmt.Sprintf("account/..%d", n)
		h.write(t, directory+"/token", fmt.Sprint(strings.Repeat("x", 5000*(n%2)), "-", n))
		_ = os.Symlink(filepath.Base(directory), h.path("account/..data_tmp"))
		if err := os.Rename(h.path("account/..data_tmp"), h.path("account/..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap(0)
	if err := os.Symlink("..data/token", h.path("account/token")); err != nil {
		t.Fatal(err)
	}
	i := h.installer()
	h.apply(t, i)
	for range 3 {
		always(t, func() {
			data, err := os.ReadFile(h.settings.KubeconfigPath())
			if err != nil || !strings.HasPrefix(string(data), stampBegin) || !strings.HasSuffix(string(data), "\"\n") {
				t.Errorf("torn: %v, %d bytes", err, len(data))
			}
		})
	}
	for n := range 200 {
		swap(n + 1)
		h.apply(t, i)
		h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", fmt.Sprintf("-%d\"\n", n+1))
	}
}

func TestPluginIsCalledWhileItIsReplaced(t *testing.T) {
	h := newHost(t)
	contents := []string{strings.Repeat("a", 100_000), strings.Repeat("b", 70_000)}
	h.write(t, "bin/whereabouts", contents[0])
	for range 3 {
		always(t, func() {
			data, err := os.ReadFile(h.path("bin/whereabouts"))
			if text := string(data); err != nil || text != contents[0] && text != contents[1] {
				t.Errorf("not whole: %v, %d bytes", err, len(data))
			}
		})
	}
	for n := range 20 {
		h.write(t, "binary", contents[n%2])
		h.now = time.Now()
		h.apply(t, h.installer())
	}
}
