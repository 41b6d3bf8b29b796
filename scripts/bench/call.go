package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// node is a machine that pods run on: a name, and the plugin's directories.
type node struct {
	name, runDir, stateDir string
}

// call is one run of a plugin for one interface of one pod.
type call struct {
	plugin string // path of the binary
	verb   string
	node   node
	pod    string
	ifName string
	config string // path of the network configuration
}

// container is the id of the pod's container.
func (c call) container() string { return c.pod + "-sandbox" }

// environment is all that the process gets: nothing of the bench's own.
func (c call) environment() []string {
	return []string{
		"CNI_COMMAND=" + c.verb,
		"CNI_CONTAINERID=" + c.container(),
		"CNI_IFNAME=" + c.ifName,
		"CNI_NETNS=/var/run/netns/not-needed",
		"CNI_NETNS_OVERRIDE=1",
		"CNI_PATH=" + filepath.Dir(c.plugin),
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=" + c.pod +
			";K8S_POD_INFRA_CONTAINER_ID=" + c.container() + ";K8S_POD_UID=uid-of-" + c.pod,
		"NODENAME=" + c.node.name,
		"WHEREABOUTS_RUN_DIR=" + c.node.runDir,
		"WHEREABOUTS_STATE_DIR=" + c.node.stateDir,
	}
}

// outcome is what came of a call.
type outcome struct {
	call   call
	took   time.Duration // the whole process, from the start to its end
	stdout []byte
	err    error // it failed, or was killed because it took too long
}

// callTimeout ends a call that hangs: a runtime would have given up before.
const callTimeout = 3 * time.Minute

// run carries out the call.
func (b *bench) run(ctx context.Context, c call) outcome {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.plugin)
	cmd.Args[0] = pluginName // a plugin may look at it
	cmd.Env = c.environment()
	killWhole(cmd)
	o := outcome{call: c}
	o.stdout, o.took, o.err = spawn(cmd, c.config, b.stderr)
	if o.err != nil {
		o.err = fmt.Errorf("%s of %s on %s: %w: %s", c.verb, c.pod, c.node.name, o.err, oneLine(o.stdout))
	}
	return o
}

// spawn runs a process and measures how long it takes. There is one pipe and no
// goroutine to copy anything: on a small machine the bench must not be what is
// measured.
func spawn(cmd *exec.Cmd, stdin string, stderr *os.File) ([]byte, time.Duration, error) {
	if stdin != "" {
		file, err := os.Open(stdin)
		if err != nil {
			return nil, 0, err
		}
		defer file.Close()
		cmd.Stdin = file
	}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	output, readErr := io.ReadAll(stdout)
	err = cmd.Wait()
	return output, time.Since(began), errors.Join(err, readErr)
}

// killWhole has the end of the context end also what the process has started, which
// would hold the pipe open: a plugin for comparison may be a script.
func killWhole(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

func oneLine(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }

// addresses are what an ADD was given. An error is that of the call, or says that its
// result is none.
func (o outcome) addresses() ([]netip.Addr, error) {
	if o.err != nil {
		return nil, o.err
	}
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(o.stdout), &result); err != nil {
		return nil, fmt.Errorf("ADD of %s: its result: %w: %s", o.call.pod, err, oneLine(o.stdout))
	}
	if len(result.IPs) == 0 {
		return nil, fmt.Errorf("ADD of %s succeeded without an address: %s", o.call.pod, oneLine(o.stdout))
	}
	var all []netip.Addr
	for _, ip := range result.IPs {
		all = append(all, ip.Address.Addr())
	}
	return all, nil
}

// durations are how long the calls took.
func durations(outcomes []outcome) sample {
	var s sample
	for _, o := range outcomes {
		s = append(s, o.took)
	}
	return s
}
