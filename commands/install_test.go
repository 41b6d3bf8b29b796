package commands

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// site is a node on which the test binary installs itself.
type site struct {
	t       *testing.T
	root    string
	env     []string
	api     *fakeAPI
	refuses atomic.Bool // the API server accepts no credentials
}

func newSite(t *testing.T) *site { return newSiteWith(t, nil) }

// newSiteWith has the API server prepared.
func newSiteWith(t *testing.T, prepare func(*fakeAPI)) *site {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", "whereabouts-test-") // in memory where that exists
	if err != nil {
		root = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	s := &site{t: t, root: root, api: newFakeAPI(t, prepare)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.refuses.Load() || r.Header.Get("Authorization") == "Bearer dead" {
			w.Header().Set("Content-Type", "application/json")
			s.api.status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized", "")
			return
		}
		s.api.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of installers that end
	server.StartTLS()
	t.Cleanup(server.Close)
	host, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	s.env = []string{
		"WHEREABOUTS_NAMESPACE=blue", "CNI_BIN_DIR=" + s.path("bin"), "CNI_CONF_DIR=" + s.path("net.d"), "NODENAME=node",
		"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
		"WHEREABOUTS_RUN_DIR=" + s.path("run"), "WHEREABOUTS_STATE_DIR=" + s.path("state"),
	}
	s.write("account/token", "token-1")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s.write("account/ca.crt", string(authority))
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.root, name) }

func (s *site) write(name, content string) {
	s.t.Helper()
	err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755)
	if err == nil {
		err = os.WriteFile(s.path(name), []byte(content), 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) read(name string) string {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

func (s *site) there(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

// install starts an installer.
func (s *site) install(options ...string) *role {
	s.t.Helper()
	options = append([]string{"--service-account", s.path("account"), "--listen="}, options...)
	return startRole(s.t, s.env, installName, options...)
}

// answers calls the installed plugin for its version, as a runtime does.
func (s *site) answers() error {
	cmd := exec.Command(s.path("bin/whereabouts"))
	cmd.Env = []string{pluginVariable + "=1", "CNI_COMMAND=VERSION"}
	out, err := cmd.Output()
	if err == nil && !bytes.Contains(out, []byte("supportedVersions")) {
		err = fmt.Errorf("it answers %q", out)
	}
	return err
}

// complete fails the test unless everything is installed.
func (s *site) complete() {
	s.t.Helper()
	if err := s.answers(); err != nil {
		s.t.Errorf("plugin: %v", err)
	}
	for _, name := range []string{"whereabouts.kubeconfig", "whereabouts.conf", "nodename"} {
		if !s.there("net.d/whereabouts.d/" + name) {
			s.t.Errorf("%s is missing", name)
		}
	}
	if target, err := os.Readlink(s.path("bin/ip-control")); err != nil || !s.there("bin/"+target) {
		s.t.Errorf("ip-control: %s, %v", target, err)
	}
}

// releases lists the queue.
func (s *site) releases() []string {
	entries, _ := os.ReadDir(s.path("state/releases"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// del calls the installed plugin to release what a container holds.
func (s *site) del(container string) {
	s.t.Helper()
	cmd := exec.Command(s.path("bin/whereabouts"))
	cmd.Env = []string{
		pluginVariable + "=1", "CNI_COMMAND=DEL", "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"WHEREABOUTS_RUN_DIR=" + s.path("run"), "WHEREABOUTS_STATE_DIR=" + s.path("state"),
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam":
		{"type": "whereabouts", "range": "10.0.0.0/24", "configuration_path": %q}}`, s.path("net.d/whereabouts.d")))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("DEL %s: %v: %s", container, err, out)
	}
}

func TestInstalledOnce(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*site) []string{
		"option":               func(*site) []string { return []string{"--once"} },
		"variable":             func(s *site) []string { s.env = append(s.env, "SLEEP=false"); return nil },
		"over an older binary": func(s *site) []string { s.write("bin/whereabouts", "older"); return []string{"--once"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			options := prepare(s)
			s.install(options...).exits(0)
			s.complete()
			again := s.install(options...)
			again.exits(0)
			if again.book.count("msg=installed") > 0 {
				t.Errorf("the second run writes: %s", again.book)
			}
		})
	}
}

func TestInstallerIsKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	older, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.MkdirAll(s.path("bin"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(s.path("bin/whereabouts"), older, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := range churnSize / 10 {
		r := s.install("--once")
		time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
		_ = r.cmd.Process.Kill()
		<-r.ended
		if err := s.answers(); err != nil {
			t.Fatalf("after kill %d: %v", n, err)
		}
	}
	s.install("--once").exits(0)
	s.complete()
}

func TestInstallationsThatFail(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for name, test := range map[string]struct {
		env, options []string
		code         int
		says         []string
	}{
		"relative directory": {[]string{"CNI_BIN_DIR=bin"}, nil, 2, []string{"CNI_BIN_DIR", `\"bin\"`}},
		"bad mode":           {[]string{"KUBECONFIG_MODE=rw"}, nil, 2, []string{"KUBECONFIG_MODE", "octal"}},
		"no API server":      {[]string{"KUBERNETES_SERVICE_HOST="}, nil, 2, []string{"KUBERNETES_SERVICE_HOST"}},
		"state directory":    {[]string{"WHEREABOUTS_STATE_DIR=x"}, nil, 2, []string{"WHEREABOUTS_STATE_DIR", "absolute"}},
		"service account":    {nil, []string{"--service-account=x"}, 2, []string{"--service-account", "absolute"}},
		"argument":           {nil, []string{"now"}, 2, []string{"no argument"}},
		"option":             {nil, []string{"--nonsense"}, 2, []string{"nonsense"}},
		"no token":           {nil, []string{"--once", "--service-account=/does/not/exist"}, 1, []string{"/does/not/exist/token", "automountServiceAccountToken"}},
		"not mounted":        {[]string{"CNI_BIN_DIR=/host/does/not/exist"}, []string{"--once"}, 1, []string{"CNI_BIN_DIR", "mount"}},
		"port in use":        {nil, []string{"--listen", taken.Addr().String()}, 1, []string{"--listen", "another process"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.env = append(s.env, test.env...)
			r := s.install(test.options...)
			r.exits(test.code)
			for _, word := range test.says {
				if !strings.Contains(r.book.String(), strings.ReplaceAll(word, `\"`, `"`)) {
					t.Errorf("no word of %q: %s", word, r.book)
				}
			}
		})
	}
}

// All that an installer does as long as it runs.
func TestInstallerThatRunsOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("account/..1/token", "token-1")
	for link, target := range map[string]string{"account/..data": "..1", "account/token": "..data/token"} {
		_ = os.Remove(s.path(link))
		if err := os.Symlink(target, s.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	r := s.install("--listen=127.0.0.1:0")
	r.says("serving metrics and health")
	address := r.address()
	ready := func(status int) func() bool {
		return func() bool { got, _ := fetch(t, "http://"+address+"/readyz"); return got == status }
	}
	eventually(t, "readiness", ready(http.StatusOK))
	s.complete()
	if status, body := fetch(t, "http://"+address+"/healthz"); status != http.StatusOK {
		t.Errorf("health: %d %s", status, body)
	}

	s.write("account/..2/token", "token-2")
	if err := os.Symlink("..2", s.path("account/..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.path("account/..data_tmp"), s.path("account/..data")); err != nil {
		t.Fatal(err)
	}
	const kubeconfig = "net.d/whereabouts.d/whereabouts.kubeconfig"
	eventually(t, "the new token", func() bool { return strings.Contains(s.read(kubeconfig), `"token-2"`) })
	for _, name := range []string{"bin/whereabouts", "bin/ip-control", kubeconfig, "net.d/whereabouts.d/nodename"} {
		if err := os.Remove(s.path(name)); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" to be put back", func() bool { return s.there(name) })
	}
	var text string
	eventually(t, "figures", func() bool {
		_, text = fetch(t, "http://"+address+"/metrics")
		return strings.Contains(text, `{file="nodename"} 2`)
	})
	readMetrics(t, text).want(t, map[string]float64{
		`whereabouts_build_info{version="test"}`:                                 1,
		`whereabouts_install_files_written_total{file="binary"}`:                 1,
		`whereabouts_install_files_written_total{file="whereabouts"}`:            2,
		`whereabouts_install_files_written_total{file="whereabouts.kubeconfig"}`: 3,
		`whereabouts_install_failures_total`:                                     0,
		`whereabouts_install_credentials_working`:                                1,
		`whereabouts_install_token_expiry_timestamp_seconds`:                     0,
		`whereabouts_release_queue_length`:                                       0,
		`whereabouts_release_queue_oldest_timestamp_seconds`:                     0,
		`whereabouts_release_queue_unreadable_files`:                             0,
		`whereabouts_release_queue_replayed_total`:                               0,
		`whereabouts_release_queue_failures_total`:                               0,
		`whereabouts_install_files_written_total{file="nodename"}`:               2,
		`whereabouts_install_files_written_total{file="whereabouts.conf"}`:       1,
		`whereabouts_install_files_written_total{file="ip-control"}`:             2,
	})

	s.refuses.Store(true)
	s.write("account/..2/token", "token-3")
	s.touch("account/..data_tmp")
	eventually(t, "credentials that are refused to be noticed", ready(http.StatusServiceUnavailable))
	s.refuses.Store(false)
	r.terminate(syscall.SIGTERM)
	s.complete()
}

// address is where a role serves metrics and health.
func (r *role) address() string {
	_, address, _ := strings.Cut(r.book.String(), "address=")
	address, _, _ = strings.Cut(address, "\n")
	return address
}

// touch makes a file and removes it, which whoever watches the directory notices.
func (s *site) touch(name string) {
	s.t.Helper()
	s.write(name, "")
	if err := os.Remove(s.path(name)); err != nil {
		s.t.Fatal(err)
	}
}

func TestInstallerCarriesOutQueuedReleases(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.install("--once").exits(0)
	s.refuses.Store(true)
	s.del("a")
	s.del("b")
	if got, want := s.releases(), []string{"a@eth0", "b@eth0"}; !slices.Equal(got, want) {
		t.Fatalf("queued: %v, want %v", got, want)
	}
	s.refuses.Store(false)
	r := s.install("--log-level=debug", "--listen=127.0.0.1:0")
	r.says("carried out queued releases")
	eventually(t, "the queue to be empty", func() bool { return len(s.releases()) == 0 })

	// While a call of the plugin is at work, its lock is respected; it is the same
	// one, or there would be a second queue.
	queues, _ := filepath.Glob(s.path("run/queue-*"))
	if len(queues) != 1 {
		t.Fatalf("queues: %v", queues)
	}
	eventually(t, "calls to be counted", func() bool { return s.there("run/calls") })
	h := &host{t: t}
	unlock := h.lockFile(filepath.Join(queues[0], "lock"))
	s.del("c")
	r.says("a call of the plugin is at work")
	if got := s.releases(); len(got) != 1 {
		t.Errorf("queued: %v", got)
	}
	unlock()
	eventually(t, "the queue to be empty again", func() bool { return len(s.releases()) == 0 })
	if queues, _ := filepath.Glob(s.path("run/queue-*")); len(queues) != 1 {
		t.Errorf("queues: %v", queues)
	}
	eventually(t, "the call to be counted", func() bool {
		_, text := fetch(t, "http://"+r.address()+"/metrics")
		return strings.Contains(text, `whereabouts_calls_total{verb="DEL",result="queued"} 1`) &&
			strings.Contains(text, `whereabouts_call_duration_seconds_count{verb="DEL"} 1`) &&
			strings.Contains(text, "whereabouts_release_queue_replayed_total 3")
	})
	r.terminate(syscall.SIGTERM)
}

// An installer that was started later and is no more may have left the token of a pod
// that is no more.
func TestInstallerPutsBackItsTokenWhenAnotherOneIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.install()
	r.says("the node's credentials work")
	s.write("other/token", "dead")
	s.env = append(s.env, "KUBE_CA_FILE="+s.path("account/ca.crt"))
	s.install("--once", "--service-account", s.path("other")).exits(0)
	const kubeconfig = "net.d/whereabouts.d/whereabouts.kubeconfig"
	eventually(t, "the token that works", func() bool { return strings.Contains(s.read(kubeconfig), `"token-1"`) })
	r.says("the node's credentials do not work")
	r.terminate(syscall.SIGTERM)
}

func TestInstallerEndsWhateverItIsDoing(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{
		"API server that never answers": nil,
		"nothing can be installed":      {"--service-account=/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, func(f *fakeAPI) { f.silent = true })
			r := s.install(options...)
			if options == nil {
				eventually(t, "a request", func() bool { return s.api.requests.Load() > 0 })
			} else {
				r.says("installation is not complete")
			}
			r.terminate(syscall.SIGTERM)
		})
	}
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.install("--once").exits(0)
	s.write("state/releases/a@eth0", "{}")
	s.write("state/whereabouts.db", "addresses")
	r := s.install("--uninstall")
	r.exits(0)
	if s.there("bin/whereabouts") || s.there("net.d/whereabouts.d") || !s.there("state/releases/a@eth0") {
		t.Errorf("it has removed too little, or too much: %s", r.book)
	}
	if r.book.count("queued releases stay") != 1 || r.book.count("releases=1") != 1 {
		t.Errorf("no word about the queue: %s", r.book)
	}
	if err := os.Remove(s.path("state/releases/a@eth0")); err != nil {
		t.Fatal(err)
	}
	s.install("--uninstall").exits(0)
	if s.there("state/releases") || !s.there("state/whereabouts.db") {
		t.Error("the empty queue is there, or the local store is not")
	}
}
