package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hang is when a test gives up on what should have happened long ago.
const hang = 20 * time.Second

// crowd is the processes of one node.
type crowd struct {
	t            *testing.T
	runDirectory string
	queue        *Queue
	token        string
	events       chan event
	past         []event
	processes    map[string]*process
}

type process struct {
	cmd   *exec.Cmd
	stdin io.Writer
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{t: t, runDirectory: filepath.Join(shm(t), "run"), events: make(chan event, 1000), processes: map[string]*process{}}
	var err error
	if c.queue, err = OpenQueue(c.runDirectory, "test"); err != nil {
		t.Fatal(err)
	}
	c.token = filepath.Join(c.runDirectory, "token")
	c.putToken()
	return c
}

// putToken makes the next process pause where it is told to.
func (c *crowd) putToken() {
	c.t.Helper()
	if err := os.WriteFile(c.token, nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// shm is a directory for a test, in memory where that exists, as the run
// directory of a node is.
func shm(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("/dev/shm", "whereabouts-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

// lock takes the queue's lock, as a process that works does.
func (c *crowd) lock() (unlock func()) {
	c.t.Helper()
	return lockQueue(c.t, c.queue)
}

func lockQueue(t *testing.T, q *Queue) (unlock func()) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(q.directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = flock(lock, syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { lock.Close() }
}

// start starts a process. Its request says who it is.
func (c *crowd) start(role caller) {
	c.t.Helper()
	role.RunDirectory, role.Token = c.runDirectory, c.token
	if role.Patience == 0 {
		role.Patience = hang
	}
	text, err := json.Marshal(role)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.processes[role.Body] = &process{cmd, stdin}
	c.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go c.listen(stdout)
}

func (c *crowd) listen(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Step: "nonsense", Failed: string(line)}
		}
		c.events <- e
	}
}

// startWaiting starts processes while the lock is held, one after the other, and
// returns when all wait.
func (c *crowd) startWaiting(role caller, bodies ...string) {
	c.t.Helper()
	before := len(c.requests())
	for i, body := range bodies {
		role.Body = body
		c.start(role)
		c.waitFor(fmt.Sprintf("%s to queue", body), func() bool { return len(c.requests()) == before+i+1 })
	}
}

func (c *crowd) requests() []string {
	files, _ := filepath.Glob(filepath.Join(c.queue.directory, "*.request"))
	return files
}

// files lists what is in the queue beside its lock.
func (c *crowd) files() []string {
	files, _ := filepath.Glob(filepath.Join(c.queue.directory, "*"))
	return without(files, filepath.Join(c.queue.directory, "lock"))
}

func (c *crowd) waitFor(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited in vain for %s; so far %+v", what, c.past)
		}
	}
}

// next returns the next event that fits.
func (c *crowd) next(fits func(event) bool) event {
	c.t.Helper()
	timer := time.NewTimer(hang)
	defer timer.Stop()
	for {
		select {
		case e := <-c.events:
			c.past = append(c.past, e)
			if e.Step == "nonsense" {
				c.t.Fatalf("a process says %s", e.Failed)
			}
			if fits(e) {
				return e
			}
		case <-timer.C:
			c.t.Fatalf("waited in vain; so far %+v", c.past)
		}
	}
}

func (c *crowd) paused() (who string) {
	c.t.Helper()
	return c.next(func(e event) bool { return e.Step == "paused" }).By
}

// ended waits until processes have ended, and returns what they said last.
func (c *crowd) ended(bodies ...string) map[string]event {
	c.t.Helper()
	ends := map[string]event{}
	for _, e := range c.past {
		c.end(ends, e)
	}
	for slices.ContainsFunc(bodies, func(b string) bool { _, ok := ends[b]; return !ok }) {
		c.end(ends, c.next(func(e event) bool { return e.Step == "ended" }))
	}
	return ends
}

func (c *crowd) end(ends map[string]event, e event) {
	if e.Step != "ended" {
		return
	}
	if _, twice := ends[e.By]; twice {
		c.t.Errorf("%s ended twice", e.By)
	}
	ends[e.By] = e
}

// mustAnswer waits for processes, each of which has to end with its own answer.
func (c *crowd) mustAnswer(bodies ...string) {
	c.t.Helper()
	ends := c.ended(bodies...)
	for _, body := range bodies {
		if e := ends[body]; e.Answer != "answer to "+body || e.GaveUp || e.Failed != "" {
			c.t.Errorf("%s ended with %+v", body, e)
		}
	}
}

// worked lists what was carried out, one list for each batch.
func (c *crowd) worked() [][]string {
	var batches [][]string
	for _, e := range c.past {
		if e.Step == "worked" {
			batches = append(batches, e.Bodies)
		}
	}
	return batches
}

// deliveredTo reports how the delivery to a process went.
func (c *crowd) deliveredTo(body string) (delivered, tried bool) {
	for _, e := range c.past {
		if e.Step == "delivered" && e.To == body {
			delivered, tried = delivered || e.Delivered, true
		}
	}
	return delivered, tried
}

// kill ends a process with SIGKILL and waits until it is gone.
func (c *crowd) kill(body string) {
	c.t.Helper()
	p := c.processes[body]
	if err := p.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

func (c *crowd) signal(body string, s syscall.Signal) {
	c.t.Helper()
	if err := c.processes[body].cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// stop stops a process, and returns when it stands still.
func (c *crowd) stop(body string) {
	c.t.Helper()
	c.signal(body, syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", c.processes[body].cmd.Process.Pid)
	c.waitFor(body+" to stop", func() bool {
		data, err := os.ReadFile(stat)
		return err == nil && slices.Contains(strings.Fields(string(data)), "T")
	})
}

// goOn lets a process that pauses go on.
func (c *crowd) goOn(body string) {
	c.t.Helper()
	if _, err := io.WriteString(c.processes[body].stdin, "\n"); err != nil {
		c.t.Fatal(err)
	}
}

func without(list []string, gone ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(gone, s) })
}

func names(prefix string, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%s%d", prefix, i))
	}
	return list
}
