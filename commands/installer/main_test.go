package installer

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// deathVariable makes the test binary an installer that is killed at the change on
// disk of this number, of the host in hostVariableForTests.
const (
	deathVariable        = "WHEREABOUTS_TEST_DEATH"
	hostVariableForTests = "WHEREABOUTS_TEST_HOST"
)

func TestMain(m *testing.M) {
	death, err := strconv.Atoi(os.Getenv(deathVariable))
	if err != nil {
		os.Exit(m.Run())
	}
	h := hostAt(os.Getenv(hostVariableForTests))
	i := h.installer()
	i.files.step = func() {
		if death--; death == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it comes
		}
	}
	if _, err := i.Apply(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// host is a node: a directory with a binary to install, a service account, and the
// directories of the CNI.
type host struct {
	root     string
	settings Settings
	version  string
	now      time.Time
	warnings []string
}

func hostAt(root string) *host {
	account := filepath.Join(root, "account")
	return &host{
		root: root, version: "v1", now: time.Now(),
		settings: Settings{
			BinDir: filepath.Join(root, "bin"), ConfDir: filepath.Join(root, "net.d"), Mode: 0o600, NodeName: "node",
			Server: "https://10.0.0.1:443", ServiceAccount: account, CAFile: filepath.Join(account, "ca.crt"), Namespace: "blue",
		},
	}
}

// binarySize is larger than what one write takes.
const binarySize = 300_000

func newHost(t *testing.T) *host {
	t.Helper()
	h := hostAt(t.TempDir())
	for _, directory := range []string{"account", "bin", "net.d"} {
		if err := os.Mkdir(filepath.Join(h.root, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write(t, "binary", string(bytes.Repeat([]byte("new"), binarySize/3)))
	h.write(t, "account/token", "token-1\n")
	h.write(t, "account/ca.crt", certificate)
	return h
}

var certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("authority")}))

func (h *host) path(name string) string { return filepath.Join(h.root, name) }

func (h *host) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (h *host) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(h.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (h *host) has(t *testing.T, name string, words ...string) {
	t.Helper()
	for _, word := range words {
		if text := h.read(t, name); !strings.Contains(text, word) {
			t.Errorf("%s lacks %q: %s", name, word, text)
		}
	}
}

func (h *host) installer() *Installer {
	warn := func(message string, args ...any) { h.warnings = append(h.warnings, message+" "+fmt.Sprint(args...)) }
	return New(h.settings, h.path("binary"), h.version, func() time.Time { return h.now }, warn)
}

// apply has to succeed, and answers what was written, as names below the root.
func (h *host) apply(t *testing.T, i *Installer) []string {
	t.Helper()
	written, err := i.Apply()
	if err != nil {
		t.Fatal(err)
	}
	return h.names(written)
}

func (h *host) names(paths []string) []string {
	var names []string
	for _, path := range paths {
		name, _ := filepath.Rel(h.root, path)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// list is everything in a directory, sorted.
func (h *host) list(t *testing.T, name string) []string {
	t.Helper()
	entries, err := os.ReadDir(h.path(name))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// complete fails the test unless the whole installation is there and nothing else.
func (h *host) complete(t *testing.T) {
	t.Helper()
	want := h.read(t, "binary")
	for _, name := range linkNames() {
		if h.read(t, "bin/"+name) != want {
			t.Errorf("%s is not the binary", name)
		}
		info, err := os.Stat(h.path("bin/" + name))
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", `token: "`+strings.TrimSpace(h.read(t, "account/token"))+`"`)
	h.has(t, "net.d/whereabouts.d/whereabouts.conf", `"datastore": "kubernetes"`, `"kubeconfig": "`+h.settings.kubeconfigOnHost()+`"`)
	if got := h.read(t, "net.d/whereabouts.d/nodename"); got != "node\n" {
		t.Errorf("nodename is %q", got)
	}
	if got := h.list(t, "net.d/whereabouts.d"); len(got) != 3 {
		t.Errorf("directory has %v", got)
	}
	for _, name := range h.list(t, "net.d/whereabouts.d") {
		if info, err := os.Stat(h.path("net.d/whereabouts.d/" + name)); err != nil || info.Mode() != h.settings.Mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// die runs an installer in a process that is killed at its nth change on disk, and
// reports whether it got that far.
func (h *host) die(t *testing.T, n int) (killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{deathVariable + "=" + strconv.Itoa(n), hostVariableForTests + "=" + h.root}
	var said bytes.Buffer
	cmd.Stderr = io.Writer(&said)
	err := cmd.Run()
	if err != nil && cmd.ProcessState.Exited() {
		t.Fatalf("killed at %d: %v: %s", n, err, said.String())
	}
	return err != nil
}

// always calls look again and again until the test is over, and once at the end.
func always(t *testing.T, look func()) {
	end := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			look()
			select {
			case <-end:
				return
			default:
			}
		}
	})
	t.Cleanup(func() { close(end); all.Wait() })
}
