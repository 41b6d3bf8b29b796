package mixed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// sandbox is the interface of one container of a pod.
type sandbox struct {
	namespace, pod, uid, container string

	had netip.Addr // what its runtime remembers of the ADD, for the DEL
}

// pod is the first container of a pod of that name in the namespace "default".
func pod(name string) sandbox {
	return sandbox{namespace: "default", pod: name, uid: "uid-of-" + name, container: name + "-c1"}
}

func (s sandbox) in(container string) sandbox { s.container = container; return s }

func (s sandbox) podRef() string { return s.namespace + "/" + s.pod }

func (s sandbox) with(address string) sandbox { s.had = netip.MustParseAddr(address); return s }

const ifName = "net1"

// answer is what a call left.
type answer struct {
	killed  bool
	code    int // of the CNI error; 0 is success
	message string
	ip      netip.Addr // of a successful ADD
	stderr  string
}

func (a answer) ok() bool { return !a.killed && a.code == 0 }

func (a answer) String() string {
	switch {
	case a.killed:
		return "killed"
	case a.code != 0:
		return fmt.Sprintf("error %d: %s", a.code, a.message)
	default:
		return "success " + a.ip.String()
	}
}

// process is a call under way.
type process struct {
	verb           string
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// start runs the node's plugin as a runtime does.
func (n *node) start(verb string, s sandbox, net network) (*process, error) {
	p := &process{verb: verb, cmd: exec.Command(suite.Binary)}
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + verb, "CNI_PATH=/opt/cni/bin", "NODENAME=" + n.name,
		"WHEREABOUTS_RUN_DIR=" + n.runDir, "WHEREABOUTS_STATE_DIR=" + n.stateDir,
		"CNI_CONTAINERID=" + s.container, "CNI_IFNAME=" + ifName, "CNI_NETNS=/var/run/netns/x", "CNI_NETNS_OVERRIDE=1",
		"CNI_ARGS=" + strings.Join([]string{
			"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + s.namespace, "K8S_POD_NAME=" + s.pod, "K8S_POD_UID=" + s.uid,
			"K8S_POD_INFRA_CONTAINER_ID=" + s.container,
		}, ";"),
	}
	if n.old {
		p.cmd.Path = oldBinary
		p.cmd.Env = append(p.cmd.Env, oldVariable+"=1")
	}
	if n.right {
		p.cmd.Env = append(p.cmd.Env, rightVariable+"=1")
	}
	config := net.config(n.kubeconfig)
	if s.had.IsValid() {
		ip := netip.PrefixFrom(s.had, net.span.pool.Bits())
		config["prevResult"] = Object{"cniVersion": "1.0.0", "ips": []Object{{"address": ip.String()}}}
	}
	p.cmd.Stdin = strings.NewReader(encode(config))
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	return p, p.cmd.Start()
}

func (p *process) kill() { _ = p.cmd.Process.Kill() } // an error means that it has ended

// wait answers what the plugin said.
func (p *process) wait() (answer, error) {
	err := p.cmd.Wait()
	a := answer{stderr: p.stderr.String(), killed: !p.cmd.ProcessState.Exited()}
	if a.killed {
		return a, nil
	}
	return a, a.parse(p.verb, err == nil, p.stdout.Bytes())
}

func (a *answer) parse(verb string, success bool, stdout []byte) error {
	var said struct {
		Code int
		Msg  string
		IPs  []struct{ Address netip.Prefix }
	}
	if success && verb == "DEL" {
		return nil
	}
	if err := json.Unmarshal(stdout, &said); err != nil {
		return fmt.Errorf("%s printed %q: %w\n%s", verb, stdout, err, a.stderr)
	}
	a.code, a.message = said.Code, said.Msg
	switch {
	case success != (said.Code == 0):
		return fmt.Errorf("%s printed %q and its exit code says otherwise", verb, stdout)
	case success && len(said.IPs) != 1:
		return fmt.Errorf("%s printed %q, want one address", verb, stdout)
	case success:
		a.ip = said.IPs[0].Address.Addr()
	}
	return nil
}

// call is one whole call, for a test's own goroutine.
func (w *world) call(n *node, verb string, s sandbox, net network) answer {
	w.Helper()
	p, err := n.start(verb, s, net)
	if err != nil {
		w.Fatal(err)
	}
	a, err := p.wait()
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// adds has a pod get an address, which must be this one.
func (w *world) adds(n *node, s sandbox, net network, want string) {
	w.Helper()
	if a := w.call(n, "ADD", s, net); !a.ok() || a.ip.String() != want {
		w.Fatalf("ADD of %s on %s: %s, want %s\n%s", s.container, n.name, a, want, a.stderr)
	}
}

// addsAny is adds for an address that is free to choose: after a collision ours looks
// past the lowest.
func (w *world) addsAny(n *node, s sandbox, net network) netip.Addr {
	w.Helper()
	a := w.call(n, "ADD", s, net)
	if !a.ok() {
		w.Fatalf("ADD of %s on %s: %s\n%s", s.container, n.name, a, a.stderr)
	}
	return a.ip
}

func (w *world) addFails(n *node, s sandbox, net network) answer {
	w.Helper()
	a := w.call(n, "ADD", s, net)
	if a.ok() {
		w.Fatalf("ADD of %s on %s: %s, want an error", s.container, n.name, a)
	}
	return a
}

func (w *world) dels(n *node, s sandbox, net network) {
	w.Helper()
	if a := w.call(n, "DEL", s, net); !a.ok() {
		w.Fatalf("DEL of %s on %s: %s\n%s", s.container, n.name, a, a.stderr)
	}
}
