package cluster

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// supervisor starts a node's programs and buries every child: as the first process of
// its namespace it inherits those of others.
type supervisor struct {
	mu      sync.Mutex // held while a program starts, so that its end is not missed
	waiters map[int]chan<- syscall.WaitStatus
	born    *sync.Cond // somebody has a child again
}

func newSupervisor() *supervisor {
	s := &supervisor{waiters: map[int]chan<- syscall.WaitStatus{}}
	s.born = sync.NewCond(&s.mu)
	go s.bury()
	return s
}

func (s *supervisor) bury() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		s.mu.Lock()
		switch {
		case err == syscall.ECHILD && len(s.waiters) == 0:
			s.born.Wait()
		case err == nil && s.waiters[pid] != nil:
			s.waiters[pid] <- status
			delete(s.waiters, pid)
		}
		s.mu.Unlock()
	}
}

// start starts a program whose output goes to a file; the channel tells its end.
func (s *supervisor) start(log, program string, args []string) (<-chan syscall.WaitStatus, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := syscall.ForkExec(program, append([]string{program}, args...), &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=" + toolsInside + ":" + os.Getenv("PATH"), "HOME=/root"},
		Files: []uintptr{os.Stdin.Fd(), output.Fd(), output.Fd()},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	s.waiters[pid] = ended
	s.born.Signal()
	return ended, nil
}

// run runs a program to its end.
func (s *supervisor) run(program string, args ...string) error {
	ended, err := s.start("/var/log/node.log", program, args)
	if err != nil {
		return err
	}
	if status := <-ended; status.ExitStatus() != 0 {
		return fmt.Errorf("%s ended with %d: see node.log", program, status.ExitStatus())
	}
	return nil
}

// keep runs a program, again and again.
func (s *supervisor) keep(name, program string, args ...string) {
	go func() {
		for ; ; time.Sleep(time.Second) {
			ended, err := s.start("/var/log/"+name+".log", program, args)
			if err != nil {
				fmt.Fprintln(os.Stderr, "node:", err)
				continue
			}
			<-ended
		}
	}()
}
