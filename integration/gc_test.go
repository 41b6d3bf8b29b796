package integration

import (
	"testing"
)

// The keys under which runtimes list the attachments that are in use.
const (
	validAttachments   = "cni.dev/valid-attachments"
	misspelt           = "cni.dev/attachments"
	withoutAttachments = "" // no key at all
)

// gc runs a garbage collection with a list of attachments, which may be nil.
func (n node) gc(t testing.TB, config Object, key string, attachments any) answer {
	t.Helper()
	if key != withoutAttachments {
		config = with(config, Object{key: attachments})
	}
	return n.run(t, call{command: "GC", config: config})
}

func attachment(container, ifName string) Object {
	return Object{"containerID": container, "ifname": ifName}
}

// collectable is a pool with records of every kind that garbage collection has to
// tell apart: of node-1 and net-a, for whom it runs, are "kept", "gone", "multi"
// and the "young" one.
func collectable(t *testing.T, protected bool) (*cluster, node, Object) {
	t.Helper()
	c := newCluster(t)
	c.unprotected = !protected
	here, elsewhere := newNode(t, "node-1"), newNode(t, "node-2")
	network := func(name string) Object {
		return with(c.config(name, Object{"range": "10.8.0.0/24", "enable_overlapping_ranges": protected}), Object{"cniVersion": "1.1.0"})
	}
	c.seedPool("10.8.0.0-24", "10.8.0.0/24", Object{"1": Object{"id": "unknown", "podref": "default/unknown", "ifname": "net1"}})
	if protected {
		c.seedReservation("10.8.0.1", Object{"podref": "default/unknown", "ifname": "net1"})
	}
	here.add(t, pod("kept"), network("net-a")).gets(t, "10.8.0.2/24")
	here.add(t, pod("gone"), network("net-a")).gets(t, "10.8.0.3/24")
	here.add(t, pod("multi"), network("net-a")).gets(t, "10.8.0.4/24")
	here.add(t, pod("other-network"), network("net-b")).gets(t, "10.8.0.5/24")
	elsewhere.add(t, pod("other-node"), network("net-a")).gets(t, "10.8.0.6/24")
	for _, key := range []string{"2", "3", "4", "5", "6"} {
		if protected {
			c.age("10.8.0." + key)
		} else {
			c.patchPool("10.8.0.0-24", Object{"op": "replace", "path": "/spec/allocations/" + key + "/details/since", "value": longAgo()})
		}
	}
	here.add(t, pod("young"), network("net-a")).gets(t, "10.8.0.7/24")
	return c, here, network("net-a")
}

func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	inUse := []Object{attachment("kept-c1", "net1"), attachment("multi-c1", "eth0")}
	tests := map[string]struct {
		key         string
		attachments any
		gone        []string
	}{
		"no list":                   {withoutAttachments, nil, nil},
		"null":                      {validAttachments, nil, []string{"2", "3", "4"}},
		"empty list":                {validAttachments, []Object{}, []string{"2", "3", "4"}},
		"list":                      {validAttachments, inUse, []string{"3"}},
		"list under the older key":  {misspelt, inUse, []string{"3"}},
		"null under the older key":  {misspelt, nil, []string{"2", "3", "4"}},
		"list of containers unseen": {validAttachments, []Object{attachment("x", "net1")}, []string{"2", "3", "4"}},
	}
	for name, test := range tests {
		for _, protected := range []bool{true, false} {
			if !protected {
				name += ", without overlap protection"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c, n, config := collectable(t, protected)
				want := map[string]string{
					"10.8.0.0-24/1": "unknown", "10.8.0.0-24/2": "kept-c1", "10.8.0.0-24/3": "gone-c1", "10.8.0.0-24/4": "multi-c1",
					"10.8.0.0-24/5": "other-network-c1", "10.8.0.0-24/6": "other-node-c1", "10.8.0.0-24/7": "young-c1",
				}
				for _, key := range test.gone {
					delete(want, "10.8.0.0-24/"+key)
				}
				n.gc(t, config, test.key, test.attachments).ok(t)
				c.holds(t, want)
				n.gc(t, config, test.key, test.attachments).ok(t)
				c.holds(t, want)
			})
		}
	}
}

func TestGarbageCollectionDoesNotCareForAddressing(t *testing.T) {
	t.Parallel()
	c, n, config := collectable(t, true)
	n.gc(t, withIPAM(config, Object{"range": "nonsense", "exclude": "5"}), validAttachments, []Object{attachment("kept-c1", "net1")}).ok(t)
	if _, found := c.holders()["10.8.0.0-24/3"]; found {
		t.Error("with a broken range nothing was collected")
	}
	if _, found := c.holders()["10.8.0.0-24/2"]; !found {
		t.Error("what is in use was collected")
	}
}
