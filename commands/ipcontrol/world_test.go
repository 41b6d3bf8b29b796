package ipcontrol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixedNow is the time of tests that do not reach a real cluster.
var fixedNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// shell is a person at a shell.
type shell struct {
	t        *testing.T
	now      time.Time
	stdin    string
	terminal bool
	env      map[string]string
	files    map[string]string // beside those of the disk below temporary directories
	slept    []time.Duration
}

func newShell(t *testing.T) *shell {
	return &shell{t: t, now: fixedNow, env: map[string]string{}, files: map[string]string{}}
}

type answer struct {
	stdout, stderr string
	exit           int
}

func (s *shell) run(args ...string) answer {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	env := Env{
		Getenv: func(name string) string { return s.env[name] }, ReadFile: s.readFile,
		Stdin: strings.NewReader(s.stdin), Stdout: &stdout, Stderr: &stderr,
		Now:      func() time.Time { return s.now },
		Terminal: func(any) bool { return s.terminal },
		Sleep: func(_ context.Context, d time.Duration) error {
			s.slept = append(s.slept, d)
			s.now = s.now.Add(d)
			return nil
		},
	}
	app := &cli.App{
		Name: "whereabouts", Writer: &stdout, ErrWriter: &stderr, Commands: []*cli.Command{Command(env)},
		ExitErrHandler: func(*cli.Context, error) {},
	}
	err := app.RunContext(s.t.Context(), append([]string{"whereabouts", Name}, Arguments(args)...))
	a := answer{stdout: stdout.String(), stderr: stderr.String()}
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		a.exit = exit.ExitCode()
	} else if err != nil {
		s.t.Errorf("%v: an error without an exit code: %v", args, err)
	}
	if err != nil {
		a.stderr += "whereabouts: " + err.Error() + "\n"
	}
	return a
}

// readFile reads what the test put there, and of the disk only temporary files: what
// is installed on this machine is no part of the test.
func (s *shell) readFile(path string) ([]byte, error) {
	if text, ok := s.files[path]; ok {
		return []byte(text), nil
	}
	if strings.HasPrefix(path, os.TempDir()) {
		return os.ReadFile(path)
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// golden compares what commands print with a file that says both, as a person would
// see it. A word that starts with "$" in hide is what differs each time.
func (s *shell) golden(name string, hide map[string]string, commands ...string) {
	s.t.Helper()
	var text strings.Builder
	for _, command := range commands {
		args := strings.Fields(command)
		for i, arg := range args {
			if hidden, ok := hide[arg]; ok {
				args[i] = hidden
			}
		}
		a := s.run(args...)
		fmt.Fprintf(&text, "$ ip-control %s\n%s", command, a.stdout)
		for line := range strings.Lines(a.stderr) {
			fmt.Fprintf(&text, "! %s", line)
		}
		fmt.Fprintf(&text, "[exit %d]\n\n", a.exit)
	}
	got := text.String()
	for word, hidden := range hide {
		got = strings.ReplaceAll(got, hidden, word)
	}
	path := filepath.Join("..", "testdata", "ipcontrol", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatalf("%v; run the test with -update to write it", err)
	}
	if got != string(want) {
		s.t.Errorf("%s differs; run the test with -update if that is meant\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

type object = map[string]any

// stillCluster is an API server whose objects do not change.
type stillCluster struct {
	lists   map[string][]object // by the end of the path
	denied  map[string]bool     // resources that may not be read
	started *httptest.Server
}

func newStillCluster(t *testing.T) *stillCluster {
	c := &stillCluster{lists: map[string][]object{}, denied: map[string]bool{}}
	c.started = httptest.NewServer(c)
	t.Cleanup(c.started.Close)
	return c
}

func (c *stillCluster) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "u", "user": {"token": "t"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "kube-system"}}]}`, c.started.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *stillCluster) add(resource, namespace, name string, fields object) {
	o := object{"metadata": object{"name": name, "namespace": namespace, "uid": "uid-" + name, "resourceVersion": "1"}}
	for key, value := range fields {
		if key == "metadata" {
			for k, v := range value.(object) {
				o["metadata"].(object)[k] = v
			}
			continue
		}
		o[key] = value
	}
	c.lists[resource] = append(c.lists[resource], o)
}

func (c *stillCluster) pool(namespace, name, cidr string, allocations object) {
	c.add("ippools", namespace, name, object{"spec": object{"range": cidr, "allocations": allocations}})
}

func (c *stillCluster) reserve(namespace, name string, spec object) {
	c.add("overlappingrangeipreservations", namespace, name, object{"spec": spec})
}

func (c *stillCluster) pod(namespace, name, phase string, addresses ...string) {
	var annotations object
	if len(addresses) > 0 {
		status, _ := json.Marshal([]object{{"name": "net", "ips": addresses}})
		annotations = object{"k8s.v1.cni.cncf.io/network-status": string(status)}
	}
	c.add("pods", namespace, name, object{
		"metadata": object{"annotations": annotations, "creationTimestamp": "2026-03-01T00:00:00Z"},
		"spec":     object{"nodeName": "node1"}, "status": object{"phase": phase},
	})
}

func (c *stillCluster) define(namespace, name, config string) {
	c.add("network-attachment-definitions", namespace, name, object{"spec": object{"config": config}})
}

func (c *stillCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	for _, part := range parts {
		if c.denied[part] {
			fail(w, http.StatusForbidden, "Forbidden", last)
			return
		}
	}
	resources := []string{"ippools", "overlappingrangeipreservations", "pods", "nodes", "network-attachment-definitions", "servicecidrs"}
	for _, resource := range resources {
		if resource == last {
			namespace := ""
			if len(parts) > 2 && parts[len(parts)-3] == "namespaces" {
				namespace = parts[len(parts)-2]
			}
			items := []object{}
			for _, o := range c.lists[resource] {
				if namespace == "" || o["metadata"].(object)["namespace"] == namespace {
					items = append(items, o)
				}
			}
			reply(w, http.StatusOK, object{"metadata": object{"resourceVersion": "1"}, "items": items})
			return
		}
	}
	for _, o := range c.lists[parts[len(parts)-2]] {
		if m := o["metadata"].(object); m["name"] == last && (len(parts) < 4 || m["namespace"] == parts[len(parts)-3]) {
			reply(w, http.StatusOK, o)
			return
		}
	}
	fail(w, http.StatusNotFound, "NotFound", last)
}

func fail(w http.ResponseWriter, code int, reason, name string) {
	reply(w, code, object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
		"message": "you may not, or it is not there: " + name, "details": object{"name": name},
	})
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// watch runs show --watch; before each next look it asks whether to go on.
func (s *shell) watch(path string, goOn func() bool) (string, error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	o := options{local: path, output: "table", Env: Env{
		Getenv: func(string) string { return "" }, ReadFile: s.readFile, Stdout: &stdout, Stderr: &stderr,
		Now: func() time.Time { return s.now }, Terminal: func(any) bool { return false },
		Sleep: func(context.Context, time.Duration) error {
			if !goOn() {
				cancel()
			}
			return ctx.Err()
		},
	}}
	a, err := o.open()
	if err != nil {
		s.t.Fatal(err)
	}
	err = shower{options: o, access: a}.again(ctx, time.Second)
	return stdout.String(), err
}
