package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
)

// hang is when a test gives up on what should have happened long ago.
const hang = 30 * time.Second

// host is a machine without a cluster: the local store, and the plugin's
// directories.
type host struct {
	t                *testing.T
	run, state, path string
	config           string // network configuration
	args             string // CNI_ARGS
}

func newHost(t *testing.T, ipamKeys string) *host {
	t.Helper()
	directory, err := os.MkdirTemp("/dev/shm", "whereabouts-test-") // in memory where that exists
	if err != nil {
		directory = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	h := &host{
		t: t, run: filepath.Join(directory, "run"), state: filepath.Join(directory, "state"),
		path: filepath.Join(directory, "store", "whereabouts.db"),
	}
	h.config = h.configOf(ipamKeys)
	return h
}

func (h *host) configOf(ipamKeys string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "net", "type": "bridge",
		"ipam": {"type": "whereabouts", "datastore": "local", "local_path": %q, %s}}`, h.path, ipamKeys)
}

// plugin is a process of the plugin.
type plugin struct {
	t              *testing.T
	what           string
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

// start calls the plugin as a runtime does.
func (h *host) start(verb, container string) *plugin {
	h.t.Helper()
	return h.startWith(h.config, verb, container)
}

func (h *host) startWith(config, verb, container string) *plugin {
	h.t.Helper()
	p := &plugin{t: h.t, what: verb + " " + container, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Args = []string{PluginName}
	p.cmd.Env = []string{
		pluginVariable + "=1", "CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0",
		"CNI_NETNS=/not/needed", "CNI_NETNS_OVERRIDE=1", "CNI_PATH=/opt/cni/bin", "NODENAME=node", "CNI_ARGS=" + h.args,
		"WHEREABOUTS_RUN_DIR=" + h.run, "WHEREABOUTS_STATE_DIR=" + h.state,
	}
	p.cmd.Stdin = strings.NewReader(config)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		panic(err) // may be in any goroutine, and nothing goes on without it
	}
	h.t.Cleanup(p.kill)
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	return p
}

// kill ends the process with SIGKILL, if it has not ended, and waits until it is
// gone.
func (p *plugin) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *plugin) wait() *plugin {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(hang):
		p.t.Errorf("%s hangs", p.what)
		p.kill()
	}
	return p
}

func (p *plugin) succeeded() bool { return p.wait().cmd.ProcessState.Success() }

func (p *plugin) killed() bool { return p.wait().cmd.ProcessState.ExitCode() < 0 }

// ok waits for the end, which has to be a success.
func (p *plugin) ok() *plugin {
	p.t.Helper()
	if !p.succeeded() {
		p.t.Errorf("%s failed: %s%s", p.what, p.stdout.String(), p.stderr.String())
	}
	return p
}

// fails waits for the end, which has to be an error with a code and a word.
func (p *plugin) fails(code int, word string) {
	p.t.Helper()
	if p.succeeded() {
		p.t.Errorf("%s succeeded: %s", p.what, p.stdout.String())
		return
	}
	var e struct {
		Code int    `json:"code"`
		Msg  string `json:"msg"`
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &e); err != nil || e.Code != code || !strings.Contains(e.Msg, word) {
		p.t.Errorf("%s failed with %s, want code %d and %q", p.what, p.stdout.String(), code, word)
	}
}

// addresses are those of the result of a successful ADD.
func (p *plugin) addresses() []string {
	p.t.Helper()
	p.ok()
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &result); err != nil {
		p.t.Errorf("%s: %v: %s", p.what, err, p.stdout.String())
	}
	var list []string
	for _, ip := range result.IPs {
		list = append(list, ip.Address.Addr().String())
	}
	return list
}

func (p *plugin) gets(want ...string) {
	p.t.Helper()
	if got := p.addresses(); !slices.Equal(got, want) {
		p.t.Errorf("%s got %v, want %v", p.what, got, want)
	}
}

// add and del are calls that have to succeed.
func (h *host) add(container string, want ...string) {
	h.t.Helper()
	h.start("ADD", container).gets(want...)
}

func (h *host) del(container string) {
	h.t.Helper()
	h.start("DEL", container).ok()
}

// stored is who holds what, after a look at whether it all fits together.
func (h *host) stored() map[string]string {
	h.t.Helper()
	s, err := local.Open(h.path)
	if err != nil {
		h.t.Fatal(err)
	}
	snapshot, err := s.Snapshot(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	protected := func(ipam.PoolID, ipam.Record) bool { return true }
	for _, f := range ipam.Check(snapshot, ipam.CheckOptions{NeedsReservation: protected}) {
		h.t.Errorf("the store contradicts itself: %s", f.Text)
	}
	held := map[string]string{}
	for _, pool := range snapshot.Pools {
		for address, r := range pool.Records {
			held[address.String()] = r.ContainerID
		}
	}
	return held
}

// holds compares what is stored with pairs of an address and a container.
func (h *host) holds(want ...string) {
	h.t.Helper()
	held := h.stored()
	for i := 0; i < len(want); i += 2 {
		if held[want[i]] != want[i+1] {
			h.t.Errorf("%s is held by %q, want %q", want[i], held[want[i]], want[i+1])
		}
	}
	if len(held) != len(want)/2 {
		h.t.Errorf("held: %v, want %v", held, want)
	}
}

// queued lists the files of the release queue.
func (h *host) queued() []string {
	h.t.Helper()
	files, err := os.ReadDir(filepath.Join(h.state, "releases"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	var list []string
	for _, file := range files {
		list = append(list, file.Name())
	}
	return list
}

// lockFile takes a lock, as a process that is at work does.
func (h *host) lockFile(path string) (unlock func()) {
	h.t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return func() { file.Close() }
}

// locked reports whether somebody holds a lock.
func (h *host) locked(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// queue is the directory of the host's queue, which the first call makes.
func (h *host) queue() string {
	h.t.Helper()
	queues := h.glob(h.run, "queue-*")
	if len(queues) == 0 {
		h.del("nobody")
		queues = h.glob(h.run, "queue-*")
	}
	if len(queues) != 1 {
		h.t.Fatalf("queues: %v", queues)
	}
	return queues[0]
}

func (h *host) glob(elements ...string) []string {
	files, _ := filepath.Glob(filepath.Join(elements...))
	return files
}

// holdUp makes the calls that come next wait for each other.
func (h *host) holdUp() (goOn func()) {
	h.t.Helper()
	return h.lockFile(filepath.Join(h.queue(), "lock"))
}

// occupyStore makes the store unreachable: another program uses it.
func (h *host) occupyStore() (release func()) {
	h.t.Helper()
	return h.lockFile(h.path + ".lock")
}

func (h *host) waitFor(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// startWaiting starts a call while others are held up, and returns once it waits.
func (h *host) startWaiting(verb, container string) *plugin {
	h.t.Helper()
	requests := func() int { return len(h.glob(h.queue(), "*.request")) }
	before := requests()
	p := h.start(verb, container)
	h.waitFor(p.what+" to wait", func() bool { return requests() > before })
	return p
}
