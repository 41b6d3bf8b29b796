package reclaim

import (
	"strings"
	"testing"
)

// A pool whose range somebody has spoiled is named at each pass, and holds up no other.
func TestPoolThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	namespace := w.cp.Namespace(t)
	net := w.network(namespace, "net", "10.105.0.0/24")
	m := w.node("spoiled")
	gone := w.pod(namespace, "gone", m.name)
	w.mustAdd(m, gone, net)
	gone.vanishes()
	w.seedPool(w.namespace, "spoiled", "10.105.1.0", Object{})
	if log := w.onceWell("1ms"); !strings.Contains(log, "pool cannot be read") || !strings.Contains(log, "object=spoiled") {
		t.Errorf("the log does not name the pool:\n%s", log)
	}
	if entries, reserved := w.held(w.namespace, net); len(entries)+len(reserved) > 0 {
		t.Errorf("%v and %v are left in another pool", entries, reserved)
	}
}
