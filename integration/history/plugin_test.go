package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// node is a machine that pods run on: a name, the plugin's directories, and its own
// way to the datastore.
type node struct {
	name, runDir, stateDir string
	settings               Object // that name the datastore
	proxies                []*testenv.Proxy
	faults                 *faults

	mu      sync.Mutex
	running map[*process]bool
}

// call is one run of the plugin.
type call struct {
	verb      string
	network   *network
	pod       *pod // nil for GC
	container string
	ifName    string
	config    Object // more top-level keys
}

// answer is what a run of the plugin left.
type answer struct {
	killed  bool
	code    int // of the CNI error; 0 is success
	message string
	result  Object // of a successful ADD
	ips     []netip.Prefix
	broken  string // what is wrong with the output itself
	stderr  string
}

func (a answer) ok() bool { return !a.killed && a.code == 0 && a.broken == "" }

func (a answer) String() string {
	switch {
	case a.killed:
		return "killed"
	case a.broken != "":
		return "unusable output: " + a.broken
	case a.code != 0:
		return fmt.Sprintf("error %d: %s", a.code, a.message)
	default:
		return "success"
	}
}

// reason tells apart failures of one code, for the summary.
func (a answer) reason() string {
	for _, text := range []string{"no free address", "has been released", "being carried out", "not available"} {
		if strings.Contains(a.message, text) {
			return " (" + text + ")"
		}
	}
	return ""
}

// environment is all that the process gets: nothing of the test's own.
func (n *node) environment(c call) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + c.verb, "CNI_PATH=/opt/cni/bin",
		"NODENAME=" + n.name, "WHEREABOUTS_RUN_DIR=" + n.runDir, "WHEREABOUTS_STATE_DIR=" + n.stateDir,
	}
	if c.pod == nil {
		return env
	}
	args := []string{
		"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + c.pod.namespace, "K8S_POD_NAME=" + c.pod.name,
		"K8S_POD_INFRA_CONTAINER_ID=" + c.container, "K8S_POD_UID=" + c.pod.uid,
	}
	return append(env,
		"CNI_CONTAINERID="+c.container, "CNI_IFNAME="+c.ifName,
		"CNI_NETNS=/var/run/netns/not-needed", "CNI_NETNS_OVERRIDE=1",
		"CNI_ARGS="+strings.Join(args, ";"),
	)
}

// process is a run of the plugin that has begun.
type process struct {
	node           *node
	call           call
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func (n *node) start(c call) (*process, error) {
	stdin, err := json.Marshal(with(c.network.config(n.settings), c.config))
	if err != nil {
		return nil, err
	}
	p := &process{node: n, call: c, cmd: exec.Command(suite.Binary)}
	p.cmd.Env = n.environment(c)
	p.cmd.Stdin = bytes.NewReader(stdin)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	n.running[p] = true
	return p, nil
}

// killAfter ends the process after a while, if it still runs then.
func (p *process) killAfter(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { _ = p.cmd.Process.Kill() })
}

// wait answers what the plugin said.
func (p *process) wait() answer {
	err := p.cmd.Wait()
	p.node.mu.Lock()
	delete(p.node.running, p)
	p.node.mu.Unlock()
	a := answer{stderr: p.stderr.String(), killed: p.cmd.ProcessState != nil && !p.cmd.ProcessState.Exited()}
	if !a.killed {
		a.parse(p.call, err == nil, p.stdout.Bytes())
	}
	return a
}

// parse makes sure that stdout holds what the protocol says: one document, or
// nothing after a verb without a result.
func (a *answer) parse(c call, success bool, stdout []byte) {
	if success && c.verb != "ADD" {
		if len(bytes.TrimSpace(stdout)) > 0 {
			a.broken = "a success without a result must print nothing"
		}
		return
	}
	if !success {
		var failure struct {
			Code int
			Msg  string
		}
		if err := json.Unmarshal(stdout, &failure); err != nil || failure.Code == 0 {
			a.broken = fmt.Sprintf("not a CNI error: %q", stdout)
		}
		a.code, a.message = failure.Code, failure.Msg
		return
	}
	var ips struct {
		IPs []struct{ Address netip.Prefix }
	}
	if json.Unmarshal(stdout, &a.result) != nil || json.Unmarshal(stdout, &ips) != nil {
		a.broken = fmt.Sprintf("not a CNI result: %q", stdout)
		return
	}
	for _, ip := range ips.IPs {
		a.ips = append(a.ips, ip.Address)
	}
	a.broken = c.network.misfit(a.ips)
}

// misfit says what is wrong with the addresses of a result; nothing if all is well.
func (n *network) misfit(ips []netip.Prefix) string {
	if len(ips) != len(n.spans) {
		return fmt.Sprintf("%d addresses from %d ranges", len(ips), len(n.spans))
	}
	for i, s := range n.spans {
		if !s.contains(ips[i].Addr()) || ips[i].Bits() != s.pool.Bits() {
			return fmt.Sprintf("%s is not from range %s, %s to %s", ips[i], s.pool, s.first, s.last)
		}
	}
	return ""
}

// places are the addresses of a result in the network's address space.
func (n *network) places(ips []netip.Prefix) []place {
	var places []place
	for _, ip := range ips {
		places = append(places, place{n.space, ip.Addr()})
	}
	return places
}

// killAll ends all processes of the plugin that run on the node, as a runtime does
// when it dies, and answers how many these were.
func (n *node) killAll() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.running {
		_ = p.cmd.Process.Kill()
	}
	return len(n.running)
}

// cutOff takes the way to the datastore away.
func (n *node) cutOff() {
	for _, p := range n.proxies {
		p.Down()
	}
}

func (n *node) connect() error {
	var errs []error
	for _, p := range n.proxies {
		errs = append(errs, p.Up())
	}
	return errors.Join(errs...)
}

// underWay counts the requests that have no end yet.
func (n *node) underWay() (count int) {
	for _, p := range n.proxies {
		count += p.Count(testenv.Match{Func: func(r testenv.Request) bool { return !r.Done }})
	}
	return count
}
