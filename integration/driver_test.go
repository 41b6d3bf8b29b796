package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Object is short for JSON objects in tests.
type Object = testenv.Object

// node is a machine that pods run on: a name, and the plugin's directories.
type node struct {
	name, runDir, stateDir string

	plugin string // the program that is called; "" is the one under test
}

func newNode(t testing.TB, name string) node {
	t.Helper()
	return node{name: name, runDir: t.TempDir(), stateDir: t.TempDir()}
}

// forgetful is the same node after its directories were lost.
func (n node) forgetful(t testing.TB) node {
	t.Helper()
	return newNode(t, n.name)
}

// sandbox is one network interface of one pod's container.
type sandbox struct {
	namespace, pod, uid, container, ifName string
}

// pod is the first container of a pod of that name in the namespace "default".
func pod(name string) sandbox {
	return sandbox{namespace: "default", pod: name, uid: "uid-of-" + name, container: name + "-c1", ifName: "net1"}
}

// withoutPod is what a runtime without pods asks for.
func withoutPod(container string) sandbox { return sandbox{container: container, ifName: "eth0"} }

func (s sandbox) in(container string) sandbox { s.container = container; return s }
func (s sandbox) on(ifName string) sandbox    { s.ifName = ifName; return s }
func (s sandbox) withUID(uid string) sandbox  { s.uid = uid; return s }

// args are the CNI_ARGS of the kubelet's runtimes.
func (s sandbox) args() []string {
	var args []string
	for _, pair := range [][2]string{
		{"K8S_POD_NAMESPACE", s.namespace},
		{"K8S_POD_NAME", s.pod},
		{"K8S_POD_UID", s.uid},
	} {
		if pair[1] != "" {
			args = append(args, pair[0]+"="+pair[1])
		}
	}
	if len(args) > 0 {
		args = append([]string{"IgnoreUnknown=1", "K8S_POD_INFRA_CONTAINER_ID=" + s.container}, args...)
	}
	return args
}

// call is one run of the plugin.
type call struct {
	command string
	sandbox sandbox
	config  any               // JSON, or a string to send as it is
	args    []string          // further CNI_ARGS
	env     map[string]string // on top of the usual
	unset   []string          // taken from the usual
}

// environment is all that the process gets: nothing of the test's own.
func (n node) environment(c call) []string {
	env := map[string]string{
		"PATH":                  os.Getenv("PATH"),
		"CNI_COMMAND":           c.command,
		"CNI_PATH":              "/opt/cni/bin",
		"NODENAME":              n.name,
		"WHEREABOUTS_RUN_DIR":   n.runDir,
		"WHEREABOUTS_STATE_DIR": n.stateDir,
	}
	if c.sandbox.container != "" {
		env["CNI_CONTAINERID"] = c.sandbox.container
		env["CNI_IFNAME"] = c.sandbox.ifName
		env["CNI_NETNS"] = "/var/run/netns/not-needed"
		env["CNI_NETNS_OVERRIDE"] = "1"
		env["CNI_ARGS"] = strings.Join(append(c.sandbox.args(), c.args...), ";")
	}
	maps.Copy(env, c.env)
	for _, name := range c.unset {
		delete(env, name)
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// process is a run of the plugin that has begun.
type process struct {
	t              testing.TB
	call           call
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func (n node) start(t testing.TB, c call) *process {
	t.Helper()
	p := &process{t: t, call: c, cmd: exec.Command(cmp.Or(n.plugin, suite.Binary))}
	p.cmd.Env = n.environment(c)
	p.cmd.Stdin = bytes.NewReader(encode(t, c.config))
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Errorf("%s: %v", c.command, err)
	}
	return p
}

func encode(t testing.TB, config any) []byte {
	if text, ok := config.(string); ok {
		return []byte(text)
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Error(err)
	}
	return data
}

// kill ends the process at once.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// wait answers what the plugin said. May be called from any goroutine.
func (p *process) wait() answer {
	err := p.cmd.Wait()
	a := answer{call: p.call, stdout: p.stdout.String(), stderr: p.stderr.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Errorf("%s: %v", p.call.command, err)
	}
	a.exit = p.cmd.ProcessState.ExitCode()
	if a.exit >= 0 { // not killed
		if err := a.parse(); err != nil {
			p.t.Errorf("%s: stdout is not what a runtime expects: %v\n%s", p.call.command, err, a)
		}
	}
	return a
}

// run is one whole run of the plugin.
func (n node) run(t testing.TB, c call) answer {
	t.Helper()
	return n.start(t, c).wait()
}

func (n node) add(t testing.TB, s sandbox, config any, args ...string) answer {
	t.Helper()
	return n.run(t, call{command: "ADD", sandbox: s, config: config, args: args})
}

func (n node) del(t testing.TB, s sandbox, config any) answer {
	t.Helper()
	return n.run(t, call{command: "DEL", sandbox: s, config: config})
}

// answer is what a run of the plugin left: a result, a failure or, where the
// protocol has no result, nothing.
type answer struct {
	call           call
	exit           int // negative when it was killed
	stdout, stderr string
	result         Object   // of ADD and VERSION
	failure        *failure // nil on success
}

// failure is a CNI error.
type failure struct {
	CNIVersion string `json:"cniVersion"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

func (f failure) text() string { return f.Msg + " " + f.Details }

func (a answer) String() string {
	return fmt.Sprintf("exit %d\nstdout: %s\nstderr: %s", a.exit, a.stdout, a.stderr)
}

// parse makes sure that stdout holds exactly what the protocol says: one
// document, or nothing after a command without a result.
func (a *answer) parse() error {
	silent := a.exit == 0 && a.call.command != "ADD" && a.call.command != "VERSION"
	if silent {
		if strings.TrimSpace(a.stdout) != "" {
			return errors.New("a success without a result must print nothing")
		}
		return nil
	}
	var into any = &a.result
	if a.exit != 0 {
		a.failure = &failure{}
		into = a.failure
	}
	decoder := json.NewDecoder(strings.NewReader(a.stdout))
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one document")
	}
	if a.failure != nil && (a.failure.Code == 0 || a.failure.Msg == "") {
		return errors.New("a failure needs a code and a message")
	}
	return nil
}

// ok ends the test unless the call succeeded.
func (a answer) ok(t testing.TB) answer {
	t.Helper()
	if a.exit != 0 {
		t.Fatalf("%s of %s: want success\n%s", a.call.command, a.call.sandbox.container, a)
	}
	return a
}

// fails ends the test unless the call failed with the code, and answers its text.
func (a answer) fails(t testing.TB, code int) string {
	t.Helper()
	if a.failure == nil {
		t.Fatalf("%s of %s: want failure with code %d\n%s", a.call.command, a.call.sandbox.container, code, a)
	}
	if a.failure.Code != code {
		t.Errorf("%s of %s: code %d, want %d\n%s", a.call.command, a.call.sandbox.container, a.failure.Code, code, a)
	}
	return a.failure.text()
}

// failsSomehow is for failures whose code is free: none of the plugin's own
// answers is the 999 of an error without a code.
func (a answer) failsSomehow(t testing.TB) string {
	t.Helper()
	if a.failure == nil {
		t.Fatalf("%s of %s: want a failure\n%s", a.call.command, a.call.sandbox.container, a)
	}
	if a.failure.Code == 999 {
		t.Errorf("%s of %s: an error without a code\n%s", a.call.command, a.call.sandbox.container, a)
	}
	return a.failure.text()
}

// ips are the addresses of a result of version 0.3.0 and later, in order.
func (a answer) ips() []string {
	var found []string
	list, _ := a.result["ips"].([]any)
	for _, entry := range list {
		found = append(found, Object(entry.(map[string]any)).String("address"))
	}
	return found
}

// gets ends the test unless the ADD was given exactly these addresses.
func (a answer) gets(t testing.TB, want ...string) answer {
	t.Helper()
	a.ok(t)
	if got := a.ips(); !slices.Equal(got, want) {
		t.Fatalf("ADD of %s got %v, want %v\n%s", a.call.sandbox.container, got, want, a)
	}
	return a
}
