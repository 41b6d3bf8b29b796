package kube

import "sync"

// objectKey names an object of a collection.
type objectKey struct{ namespace, name string }

// mirror is a sink that keeps what is of use of each object. A list marks what it
// finds and sweeps away the rest, so that a new list needs no second copy of it
// all.
type mirror[T any, P wire[T], V any] struct {
	// keep is called by the one goroutine that fills the mirror. It answers
	// false for an object that is of no use.
	keep func(P) (V, bool)
	// changed, if set, is told of every change after the first list, before and
	// after; nil is an object that is not there.
	changed func(before, after *V)

	mu         sync.RWMutex
	objects    map[objectKey]mirrored[V]
	generation uint32 // of the list in progress or done last
	complete   bool   // there was a whole list
	unserved   bool   // the server does not know the resource
}

type mirrored[V any] struct {
	value      V
	generation uint32
}

func newMirror[T any, P wire[T], V any](keep func(P) (V, bool), changed func(before, after *V)) *mirror[T, P, V] {
	return &mirror[T, P, V]{keep: keep, changed: changed, objects: map[objectKey]mirrored[V]{}}
}

func (m *mirror[T, P, V]) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	m.unserved = false
}

func (m *mirror[T, P, V]) missing() {
	m.begin()
	m.end()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unserved = true
}

func (m *mirror[T, P, V]) isMissing() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.unserved
}

func (m *mirror[T, P, V]) put(object P) {
	id := object.ident()
	value, ok := m.keep(object)
	if !ok {
		m.remove(object)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := objectKey{id.namespace, id.name}
	before, known := m.objects[key]
	m.objects[key] = mirrored[V]{value, m.generation}
	if known {
		m.tell(&before.value, &value)
	} else {
		m.tell(nil, &value)
	}
}

func (m *mirror[T, P, V]) remove(object P) {
	id := object.ident()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(objectKey{id.namespace, id.name})
}

func (m *mirror[T, P, V]) drop(key objectKey) {
	if before, known := m.objects[key]; known {
		delete(m.objects, key)
		m.tell(&before.value, nil)
	}
}

func (m *mirror[T, P, V]) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, object := range m.objects {
		if object.generation != m.generation {
			m.drop(key)
		}
	}
	m.complete = true
}

func (m *mirror[T, P, V]) tell(before, after *V) {
	if m.complete && m.changed != nil {
		m.changed(before, after)
	}
}

func (m *mirror[T, P, V]) get(namespace, name string) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	object, ok := m.objects[objectKey{namespace, name}]
	return object.value, ok
}

// each calls f for every object, in no order. f must not call the mirror.
func (m *mirror[T, P, V]) each(f func(objectKey, V)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for key, object := range m.objects {
		f(key, object.value)
	}
}

// maxInterned bounds what an interner holds on to.
const maxInterned = 10000

// interner makes equal strings share their memory. It is for strings that come again
// and again, such as names of nodes.
type interner map[string]string

func (i interner) of(s string) string {
	if s == "" {
		return ""
	}
	if known, ok := i[s]; ok {
		return known
	}
	if len(i) >= maxInterned {
		clear(i)
	}
	i[s] = s
	return s
}
