package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakeAPI answers as an API server does that has next to nothing stored. It is good
// for what a process does at its edges; real ones are for the rest.
type fakeAPI struct {
	t        *testing.T
	server   *httptest.Server
	requests atomic.Int64
	end      chan struct{}

	silent bool   // never answers
	denied bool   // forbids everything
	pool   string // the one IPPool there is
}

func newFakeAPI(t *testing.T, prepare func(*fakeAPI)) *fakeAPI {
	t.Helper()
	f := &fakeAPI{t: t, end: make(chan struct{})}
	if prepare != nil {
		prepare(f)
	}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		close(f.end)
		f.server.Close()
	})
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	if f.silent {
		f.hang(r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	listed := map[string]bool{
		"pods": true, "nodes": true, "ippools": true, "overlappingrangeipreservations": true, "network-attachment-definitions": true,
	}
	switch {
	case f.denied:
		f.status(w, http.StatusForbidden, "Forbidden", "you may not", "")
	case r.URL.Query().Get("watch") == "true":
		w.(http.Flusher).Flush()
		f.hang(r)
	case listed[last]:
		items := ""
		if last == "ippools" {
			items = f.pool
		}
		fmt.Fprintf(w, `{"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [%s]}`, items)
	case strings.Contains(r.URL.Path, "/ippools/") && f.pool != "":
		_, _ = io.WriteString(w, f.pool)
	default:
		f.status(w, http.StatusNotFound, "NotFound", "not found", last)
	}
}

func (f *fakeAPI) status(w http.ResponseWriter, code int, reason, message, about string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q, "message": %q, "details": {"name": %q}}`, code, reason, message, about)
}

func (f *fakeAPI) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.end:
	}
}

// kubeconfig writes a file that leads to this server.
func (f *fakeAPI) kubeconfig() string {
	f.t.Helper()
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": f.server.URL}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "t"}}},
	}
	data, err := json.Marshal(config)
	path := filepath.Join(f.t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return path
}

// role is a process with a command line.
type role struct {
	t     *testing.T
	cmd   *exec.Cmd
	book  *logBook
	out   bytes.Buffer
	ended chan struct{}
}

// startRole runs the binary under a name.
func startRole(t *testing.T, environment []string, name string, arguments ...string) *role {
	t.Helper()
	r := &role{t: t, cmd: exec.Command(os.Args[0]), book: &logBook{}, ended: make(chan struct{})}
	r.cmd.Args = append([]string{"/usr/bin/" + name}, arguments...)
	r.cmd.Env = append(environment, pluginVariable+"=1")
	r.cmd.Stdout, r.cmd.Stderr = &r.out, r.book
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
	})
	go func() { _ = r.cmd.Wait(); close(r.ended) }()
	return r
}

// says waits for a text in the log.
func (r *role) says(text string) {
	r.t.Helper()
	for end := time.Now().Add(hang); r.book.count(text) == 0; time.Sleep(time.Millisecond) {
		select {
		case <-r.ended:
			if r.book.count(text) == 0 {
				r.t.Fatalf("it ended and had not said %q: %s", text, r.book)
			}
		default:
		}
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain for %q: %s", text, r.book)
		}
	}
}

// exits waits for the end.
func (r *role) exits(code int) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(hang):
		r.t.Fatalf("it does not end: %s", r.book)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code || r.out.Len() > 0 {
		r.t.Errorf("exit %d (%v), want %d; stdout %q, log %s", got, r.cmd.ProcessState, code, &r.out, r.book)
	}
}

// terminate sends a signal, after which it has to end in order. The limit of two
// seconds is the specification's; the test allows a slow machine ten.
func (r *role) terminate(signal syscall.Signal) {
	r.t.Helper()
	began := time.Now()
	if err := r.cmd.Process.Signal(signal); err != nil {
		r.t.Fatal(err)
	}
	r.exits(0)
	if took := time.Since(began); took > 10*time.Second {
		r.t.Errorf("it took %v to end", took)
	}
}

// orphaned is a pool with a record of a pod that does not exist.
const orphaned = `{"metadata": {"name": "10.0.0.0-24", "namespace": "kube-system", "uid": "u", "resourceVersion": "5"},
	"spec": {"range": "10.0.0.0/24", "allocations": {"1": {"id": "c", "podref": "ns/pod", "ifname": "net1"}}}}`

func TestSignalEndsItWhateverItIsDoing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*fakeAPI)
		options []string
		busy    func(*fakeAPI, *role)
		signal  syscall.Signal
	}{
		"waiting": {
			nil, nil, func(_ *fakeAPI, r *role) { r.says("reconciler success") }, syscall.SIGTERM,
		},
		"interrupted from a terminal": {
			nil, nil, func(_ *fakeAPI, r *role) { r.says("reconciler success") }, syscall.SIGINT,
		},
		"no answer": {
			func(f *fakeAPI) { f.silent = true }, nil,
			func(f *fakeAPI, _ *role) { eventually(f.t, "a request", func() bool { return f.requests.Load() > 0 }) }, syscall.SIGTERM,
		},
		"single run without an answer": {
			func(f *fakeAPI) { f.silent = true },
			[]string{"--once"},
			func(f *fakeAPI, _ *role) { eventually(f.t, "a request", func() bool { return f.requests.Load() > 0 }) }, syscall.SIGTERM,
		},
		"single run between two looks": {
			func(f *fakeAPI) { f.pool = orphaned },
			[]string{"--once", "--grace=1h"},
			func(_ *fakeAPI, r *role) { r.says("looking again after the grace time") }, syscall.SIGTERM,
		},
		"not permitted": {
			func(f *fakeAPI) { f.denied = true }, nil,
			func(f *fakeAPI, _ *role) { eventually(f.t, "requests", func() bool { return f.requests.Load() > 4 }) }, syscall.SIGTERM,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t, test.prepare)
			r := startRole(t, nil, "reconcile", append([]string{"--kubeconfig", f.kubeconfig(), "--listen", ""}, test.options...)...)
			test.busy(f, r)
			r.terminate(test.signal)
		})
	}
}

func TestNamesAndCommandLinesOfOlderVersions(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, nil)
	config := f.kubeconfig()
	for _, test := range []struct {
		name      string
		arguments []string
		once      bool // it ends by itself
	}{
		{"reconcile", []string{"--listen=", "--kubeconfig", config}, false},
		{"whereabouts", []string{"reconcile", "-listen=", "-kubeconfig=" + config, "-log-level", "debug"}, false},
		{"ip-control-loop", []string{"-listen=", "-log-level=debug", "-kubeconfig=" + config}, false},
		{"whereabouts", []string{"ip-control-loop", "-listen=", "--log-level=Verbose", "-kubeconfig=" + config}, false},
		{"ip-reconciler", []string{"-log-level=verbose", "-kubeconfig=" + config, "-timeout=30", "-retries", "3"}, true},
		{"whereabouts", []string{"ip-reconciler", "-kubeconfig=" + config}, true},
		{"ip-reconciler", []string{"-once=false", "-listen=", "-kubeconfig=" + config}, false},
		{"reconcile", []string{"--once", "--kubeconfig", config, "--log-level=nonsense"}, true},
	} {
		t.Run(strings.Join(append([]string{test.name}, test.arguments[:1]...), " "), func(t *testing.T) {
			t.Parallel()
			r := startRole(t, nil, test.name, test.arguments...)
			r.says("reconciler success")
			if test.once {
				r.exits(0)
			} else {
				r.terminate(syscall.SIGTERM)
			}
		})
	}
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	denied := newFakeAPI(t, func(f *fakeAPI) { f.denied = true })
	for name, test := range map[string]struct {
		arguments []string
		says      []string
	}{
		"unknown option":    {[]string{"--nonsense"}, []string{"nonsense"}},
		"an argument":       {[]string{"now"}, []string{`"now"`, "no argument"}},
		"grace of no unit":  {[]string{"--grace=60"}, []string{"--grace", `"60"`, "60s"}},
		"grace below zero":  {[]string{"--grace=-1s"}, []string{"--grace", `"-1s"`}},
		"unreachable nodes": {[]string{"--unreachable-node=no"}, []string{"--unreachable-node", `"no"`, "release or keep"}},
		"no kubeconfig":     {[]string{"--kubeconfig=/does/not/exist"}, []string{"--kubeconfig", "/does/not/exist"}},
		"not in a pod":      {nil, []string{"--kubeconfig", "service account"}},
		"no flat file":      {[]string{"--flat-file=/does/not/exist"}, []string{"--flat-file", "/does/not/exist"}},
		"port in use":       {[]string{"--kubeconfig", f.kubeconfig(), "--listen", taken.Addr().String()}, []string{"--listen", taken.Addr().String(), "another process"}},
		"no access":         {[]string{"--once", "--kubeconfig", denied.kubeconfig()}, []string{"you may not"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRole(t, nil, "reconcile", test.arguments...)
			r.exits(2)
			for _, word := range test.says {
				if r.book.count(word) == 0 {
					t.Errorf("no word of %q: %s", word, r.book)
				}
			}
		})
	}
}

// All there is to see of a process from outside, at once.
func TestProcessThatIsObserved(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, func(f *fakeAPI) { f.pool = orphaned })
	directory := t.TempDir()
	flat := filepath.Join(directory, "whereabouts.conf")
	if err := os.WriteFile(flat, []byte(`{"reconciler_cron_expression": "7 3 * * *"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startRole(t, nil, "reconcile", "--kubeconfig", f.kubeconfig(), "--listen=127.0.0.1:0",
		"--flat-file", flat, "--schedule-file", filepath.Join(directory, "config"))
	r.says(`"using expression: 7 3 * * *"`)
	r.says("reconciler success")
	_, address, _ := strings.Cut(r.book.String(), "address=")
	address, _, _ = strings.Cut(address, "\n")
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := fetch(t, "http://"+address+path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	_, text := fetch(t, "http://"+address+"/metrics")
	readMetrics(t, text).want(t, map[string]float64{
		`whereabouts_build_info{version="test"}`:                                      1,
		`whereabouts_pool_used_addresses{namespace="kube-system",pool="10.0.0.0-24"}`: 1,
		`whereabouts_pool_addresses{namespace="kube-system",pool="10.0.0.0-24"}`:      254,
		`whereabouts_reconcile_passes_total{reason="start",result="success"}`:         1,
		`whereabouts_reconcile_orphans_waiting`:                                       1,
		`whereabouts_events_dropped_total`:                                            0,
	})
	if err := os.WriteFile(filepath.Join(directory, "config"), []byte("9 4 * * *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.says(`"successfully updated CRON configuration"`)
	r.says(`"using expression: 9 4 * * *"`)
	r.terminate(syscall.SIGTERM)
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
