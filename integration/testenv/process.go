package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a child may take to end after SIGTERM before it is
// killed.
const stopTimeout = 30 * time.Second

// Process is a child that never outlives the test binary. The methods of a nil one,
// that of a process which was never started, do nothing.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // how it ended; read only after done
}

// StartProcess starts a child whose output is appended to the file logPath. It has no
// environment but a PATH and what the command names itself, and the network of this
// process if space is nil.
func StartProcess(space *Space, logPath string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy

	cmd.Stdout, cmd.Stderr = log, log
	// Settings of the person's shell (ETCD_*, proxies) must not reach a test.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, cmd.Env...)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL

	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(space, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// ID is the child's process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// run keeps its thread for itself as long as the child lives: the kernel sends
// the death signal when the thread that started the child ends, and a thread
// shared with a test may end with it. It ends with this function, since it may be in
// another network namespace.
func (p *Process) run(space *Space, started chan<- error) {
	runtime.LockOSThread()
	err := p.start(space)
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *Process) start(space *Space) error {
	if space != nil {
		if err := space.enter(); err != nil {
			return err
		}
	}
	return p.cmd.Start()
}

// Kill ends the child at once and waits until it is gone.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	// An error means that it has ended already.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop asks the child to end and waits for it.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// Alive reports whether the child runs.
func (p *Process) Alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// server is a program that is started and ended many times in its life, always
// with the same arguments. It may be used from any goroutine: a test's hook kills
// it while the test waits for it to be ready.
type server struct {
	name   string // for messages
	binary string
	args   []string
	log    string // file
	space  *Space // nil is the network of this process

	mu   sync.Mutex
	proc *Process
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc.Alive() {
		return fmt.Errorf("%s runs already: stop or kill it first", s.name)
	}
	proc, err := StartProcess(s.space, s.log, exec.Command(s.binary, s.args...))
	if err != nil {
		return err
	}
	s.proc = proc
	return nil
}

// current is the last process that was started; nil if none was.
func (s *server) current() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *server) alive() bool { return s.current().Alive() }
func (s *server) stop()       { s.current().Stop() }
func (s *server) kill()       { s.current().Kill() }

// wait returns when ready answers nil; at once, with the end of its log, when the
// server dies.
func (s *server) wait(ready func() error) error {
	if err := poll(startTimeout, s.alive, ready); err != nil {
		return fmt.Errorf("%s does not serve: %w; its log ends with\n%s", s.name, err, tail(s.log))
	}
	return nil
}

// tail returns the last lines of a log file for an error message.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const lines, size = 15, 6000
	data = bytes.TrimSpace(data)
	if len(data) > size {
		data = data[len(data)-size:]
	}
	all := bytes.Split(data, []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
