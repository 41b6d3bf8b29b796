package history

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
)

// pod is a pod with one or two interfaces. Its name may be another one's, too; its
// uid is not.
type pod struct {
	namespace, name, uid string
	node                 *node
	attachments          []attachment
	containers           atomic.Int64 // so far
}

// attachment is one interface.
type attachment struct {
	network *network
	ifName  string
}

func (p *pod) ref() string { return p.namespace + "/" + p.name }

// sandbox is one container of a pod, as the runtime sees it.
type sandbox struct {
	pod       *pod
	container string

	mu      sync.Mutex
	results map[string]Object // by interface: what its last ADD returned
	ending  bool              // a DEL has been started
}

func (p *pod) newSandbox() *sandbox {
	number := p.containers.Add(1)
	return &sandbox{pod: p, container: fmt.Sprintf("%s-c%d", p.uid, number), results: map[string]Object{}}
}

func (s *sandbox) holder(a attachment) holder {
	return holder{owner{s.pod.uid, a.ifName}, s.pod.ref(), s.container}
}

func (s *sandbox) remember(ifName string, result Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[ifName] = result
}

// previous is the result that the runtime passes on as prevResult; nil if there is
// none.
func (s *sandbox) previous(ifName string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.results[ifName]
}

func (s *sandbox) begin() { s.setEnding(false) }
func (s *sandbox) end()   { s.setEnding(true) }

func (s *sandbox) setEnding(to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = to
}

func (s *sandbox) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// register lists the sandboxes that a runtime knows: those of which an ADD has been
// started and no DEL has succeeded.
type register struct {
	mu    sync.Mutex
	known map[*sandbox]bool // false: forgotten by the runtime, for the garbage collection
}

func (r *register) set(s *sandbox, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[s] = alive
}

func (r *register) remove(s *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, s)
}

func (r *register) snapshot() map[*sandbox]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}
