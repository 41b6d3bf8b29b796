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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
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

// seededCluster is the real API server with nothing in it but what a test seeds, in all
// namespaces.
type seededCluster struct {
	*testing.T
	cp    *testenv.ControlPlane
	proxy *testenv.Proxy
	now   time.Time
	uids  map[string]string // of pods, by namespace/name
}

func newSeededCluster(t *testing.T) *seededCluster {
	t.Helper()
	cp := Shared.ControlPlane(t)
	cp.ApplyCRDs(t, "../../kube/testdata/definitions")
	c := &seededCluster{T: t, cp: cp, proxy: cp.Proxy(t), now: time.Now().UTC().Truncate(time.Second), uids: map[string]string{}}
	c.clear()
	t.Cleanup(c.clear)
	return c
}

// clear removes what tests have made.
func (c *seededCluster) clear() {
	c.Helper()
	must := c.cp.Must(c)
	for group, resources := range map[string][]string{
		"/apis/whereabouts.cni.cncf.io/v1alpha1": {"ippools", "overlappingrangeipreservations", "nodeslicepools"},
		"/apis/k8s.cni.cncf.io/v1":               {"network-attachment-definitions"},
		"/api/v1":                                {"pods", "nodes"},
	} {
		for _, resource := range resources {
			for _, o := range must.List(group + "/" + resource) {
				path := group
				if namespace := o.String("metadata", "namespace"); namespace != "" {
					path += "/namespaces/" + namespace
				}
				must.Delete(path + "/" + resource + "/" + o.Name() + "?gracePeriodSeconds=0")
			}
		}
	}
}

// shell is a person who looks at it.
func (c *seededCluster) shell() *shell {
	s := newShell(c.T)
	s.now = c.now
	s.env["KUBECONFIG"] = c.kubeconfig()
	return s
}

func (c *seededCluster) kubeconfig() string {
	return c.cp.Kubeconfig(c, testenv.Options{Namespace: "kube-system", Via: c.proxy})
}

// ago is a time as records have it.
func (c *seededCluster) ago(d time.Duration) string { return c.now.Add(-d).Format(time.RFC3339) }

// deny has the API server refuse all of a resource.
func (c *seededCluster) deny(resource string) {
	c.proxy.Inject(testenv.Rule{
		Match: testenv.Match{Path: "/" + resource}, Times: testenv.Always, Action: testenv.Answer(http.StatusForbidden),
	})
}

// create makes an object, and its namespace.
func (c *seededCluster) create(group, version, kind, resource, namespace string, o object) testenv.Object {
	c.Helper()
	must := c.cp.Must(c)
	path := "/apis/" + group + "/" + version
	o["apiVersion"], o["kind"] = group+"/"+version, kind
	if group == "" {
		path, o["apiVersion"] = "/api/"+version, version
	}
	if namespace != "" {
		err := c.cp.Client().Create(c.Context(), "/api/v1/namespaces", object{"metadata": object{"name": namespace}}, nil)
		if code := testenv.StatusCode(err); err != nil && code != http.StatusConflict {
			c.Fatal(err)
		}
		path += "/namespaces/" + namespace
	}
	return must.Create(path+"/"+resource, o)
}

const records = "whereabouts.cni.cncf.io"

func (c *seededCluster) pool(namespace, name, cidr string, allocations object) {
	c.Helper()
	c.create(records, "v1alpha1", "IPPool", "ippools", namespace, object{
		"metadata": object{"name": name}, "spec": object{"range": cidr, "allocations": allocations},
	})
}

func (c *seededCluster) reserve(namespace, name string, spec object) {
	c.Helper()
	c.create(records, "v1alpha1", "OverlappingRangeIPReservation", "overlappingrangeipreservations", namespace, object{
		"metadata": object{"name": name}, "spec": spec,
	})
}

func (c *seededCluster) pod(namespace, name, phase string, addresses ...string) {
	c.Helper()
	status, err := json.Marshal([]object{{"name": "net", "ips": addresses}})
	if err != nil {
		c.Fatal(err)
	}
	made := c.create("", "v1", "Pod", "pods", namespace, object{
		"metadata": object{"name": name, "annotations": object{"k8s.v1.cni.cncf.io/network-status": string(status)}},
		"spec":     object{"nodeName": "node1", "containers": []any{object{"name": "c", "image": "i"}}},
	})
	c.uids[namespace+"/"+name] = made.String("metadata", "uid")
	c.cp.Must(c).Patch("/api/v1/namespaces/"+namespace+"/pods/"+name+"/status", testenv.MergePatch, object{"status": object{"phase": phase}})
}

func (c *seededCluster) define(namespace, name, config string) {
	c.Helper()
	c.create("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions", namespace, object{
		"metadata": object{"name": name}, "spec": object{"config": config},
	})
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
