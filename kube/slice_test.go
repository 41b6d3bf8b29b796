package kube

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
)

func TestDefinitionsAreReadAsThePluginDoes(t *testing.T) {
	const ipamKeys = `"ipam": {"type": "whereabouts", "range": "10.5.0.0/20", "node_slice_size": "/24"}`
	for says, test := range map[string]struct {
		config, flat string
		networks     string // that want slices, each behind a blank
		unclear      bool
		wrong        string // in an error; "" for none
	}{
		"a plugin":                     {config: `{"name": "net", "type": "bridge", ` + ipamKeys + `}`, networks: " net"},
		"without a name":               {config: `{"type": "bridge", ` + ipamKeys + `}`, networks: " definition"},
		"with an empty name":           {config: `{"name": "", "type": "bridge", ` + ipamKeys + `}`, networks: " definition"},
		"a list":                       {config: `{"name": "list", "plugins": [{"type": "tuning"}, {"name": "x", ` + ipamKeys + `}]}`, networks: " list"},
		"a list with two of us":        {config: `{"name": "list", "plugins": [{` + ipamKeys + `}, {` + ipamKeys + `}]}`, networks: " list list"},
		"a list that is null":          {config: `{"name": "net", "plugins": null, ` + ipamKeys + `}`, networks: " net"},
		"another IPAM":                 {config: `{"name": "net", "ipam": {"type": "host-local", "node_slice_size": "/24"}}`},
		"an IPAM that is no object":    {config: `{"name": "net", "ipam": "whereabouts"}`},
		"a size in the flat file":      {config: `{"name": "net", "ipam": {"type": "whereabouts", "range": "10.5.0.0/20"}}`, flat: `{"node_slice_size": "/24"}`, networks: " net"},
		"nothing, or a file of a node": {config: " \n", unclear: true},
		"no JSON":                      {config: `{"name": `, unclear: true, wrong: "spec.config"},
		"no object":                    {config: `[1]`, unclear: true, wrong: "not an object"},
		"null":                         {config: `null`, unclear: true, wrong: "not an object"},
		"plugins that are no list":     {config: `{"plugins": {}}`, unclear: true, wrong: "list of objects"},
	} {
		t.Run(says, func(t *testing.T) {
			var o sliceDefinition
			o.Metadata.Name, o.Metadata.Namespace, o.Spec.Config = "definition", "ns", anyText(test.config)
			var flat []byte
			if test.flat != "" {
				flat = []byte(test.flat)
			}
			d := o.read(flat)
			networks, wrong := "", ""
			for _, c := range d.Configs {
				if c.Config != nil && c.Config.Sliced() {
					networks += " " + c.Config.Name
				}
				if c.Config == nil && c.Err != nil {
					wrong += c.Err.Error()
				}
			}
			if networks != test.networks || d.Unclear != test.unclear || !strings.Contains(wrong, test.wrong) || test.wrong == "" && wrong != "" {
				t.Errorf("networks%q, unclear %t, error %q; want%q, %t, %q", networks, d.Unclear, wrong, test.networks, test.unclear, test.wrong)
			}
		})
	}
}

func TestHeadsTellWhoseAPoolIs(t *testing.T) {
	whole := netip.MustParsePrefix("10.5.0.0/20")
	for says, test := range map[string]struct {
		name, node, space string
		want              string // node and slice; "" for none
	}{
		"a node's slice":               {name: "node-1-10.5.1.0-24", want: "node-1 10.5.1.0/24"},
		"which says so itself":         {name: "node-1-10.5.1.0-24", node: "node-1", want: "node-1 10.5.1.0/24"},
		"and says otherwise":           {name: "node-1-10.5.1.0-24", node: "1"},
		"in an address space":          {name: "blue-node-1-10.5.1.0-24", space: "blue", want: "node-1 10.5.1.0/24"},
		"in another one":               {name: "red-node-1-10.5.1.0-24", space: "blue"},
		"the pool of the whole range":  {name: "10.5.0.0-20"},
		"that of the space's":          {name: "blue-10.5.0.0-20", space: "blue"},
		"a slice of another range":     {name: "node-1-10.6.1.0-24"},
		"a slice larger than the cut":  {name: "node-1-10.0.0.0-8"},
		"no range at the end":          {name: "node-1"},
		"a range that has host bits":   {name: "node-1-10.5.1.1-24"},
		"a node that looks like a net": {name: "10.5.0.0-24-10.5.1.0-24", want: "10.5.0.0-24 10.5.1.0/24"},
	} {
		t.Run(says, func(t *testing.T) {
			m := objectMeta{Name: test.name}
			if test.node != "" {
				m.Annotations = map[string]string{nodeAnnotation: test.node}
			}
			got := ""
			if p, ok := newPoolHead(m).In(test.space, whole); ok {
				got = p.ID.Node + " " + p.ID.Range.String()
			}
			if got != test.want {
				t.Errorf("it is the pool of %q, want %q", got, test.want)
			}
		})
	}
	id := ipam.PoolID{Node: "node-1", Range: netip.MustParsePrefix("fd00:1::/64")}
	head := HeadOf(NodePool{ID: id, State: slice.Closing, UID: "u", Version: "7"})
	if p, ok := head.Of(id); !ok || p.State != slice.Closing || p.UID != "u" || p.Version != "7" {
		t.Errorf("the pool behind its head is %v, %t", p, ok)
	}
	if _, ok := head.Of(ipam.PoolID{Node: "node-2", Range: id.Range}); ok {
		t.Error("a head is taken for that of another node's pool")
	}
}

func aNode(name, created, version string) *nodeHead {
	var o nodeHead
	o.Metadata.Name, o.Metadata.Created, o.Metadata.Version = name, created, version
	return &o
}

func aDefinition(name, uid, config string) *sliceDefinition {
	var o sliceDefinition
	o.Metadata.Name, o.Metadata.Namespace, o.Metadata.UID, o.Spec.Config = name, "ns", uid, anyText(config)
	return &o
}

func aPool(version, mark string) *poolHead {
	m := objectMeta{Name: "node-1-10.5.1.0-24", UID: "u", ResourceVersion: version}
	if mark != "" {
		m.Annotations = map[string]string{closedAnnotation: mark}
	}
	return &poolHead{Metadata: m}
}

// Only what may lead to another plan wakes the controller: no heart-beat does, and no
// address that comes or goes, unless somebody waits for the pool.
func TestSliceWatcherTellsWhatMatters(t *testing.T) {
	w := NewSliceWatcher(clientOf(t, func(http.ResponseWriter, *http.Request) { t.Error("a request is made") }), nil)
	for _, set := range []interface {
		begin()
		end()
	}{w.sets.nodes, w.sets.definitions, w.sets.lists, w.sets.heads} {
		set.begin()
		set.end()
	}
	const day = "2026-01-02T03:04:05Z"
	for _, step := range []struct {
		says string
		do   func()
		told bool
	}{
		{"a node comes", func() { w.sets.nodes.put(aNode("b", day, "1")) }, true},
		{"its heart beats", func() { w.sets.nodes.put(aNode("b", day, "2")) }, false},
		{"an older one comes", func() { w.sets.nodes.put(aNode("z", "2025-01-02T03:04:05Z", "3")) }, true},
		{"one of the same age comes", func() { w.sets.nodes.put(aNode("a", day, "4")) }, true},
		{"a node is made anew", func() { w.sets.nodes.put(aNode("a", "2026-02-02T03:04:05Z", "5")) }, true},
		{"a node goes", func() { w.sets.nodes.remove(aNode("a", day, "6")) }, true},
		{"a definition comes", func() { w.sets.definitions.put(aDefinition("d", "1", "{}")) }, true},
		{"its labels change", func() { w.sets.definitions.put(aDefinition("d", "1", "{}")) }, false},
		{"its configuration changes", func() { w.sets.definitions.put(aDefinition("d", "1", "{ }")) }, true},
		{"it is made anew", func() { w.sets.definitions.put(aDefinition("d", "2", "{ }")) }, true},
		{"a list is written", func() { w.sets.lists.put(&nodeSlicePool{Metadata: objectMeta{Name: "l"}}) }, true},
		{"a pool comes", func() { w.sets.heads.put(aPool("1", "")) }, true},
		{"an address is taken", func() { w.sets.heads.put(aPool("2", "")) }, false},
		{"nobody waits for this pool", func() { w.Await(map[string]bool{"other": true}); w.sets.heads.put(aPool("3", "")) }, false},
		{"somebody waits for it", func() { w.Await(map[string]bool{"node-1-10.5.1.0-24": true}); w.sets.heads.put(aPool("4", "")) }, true},
		{"it is marked", func() { w.Await(nil); w.sets.heads.put(aPool("5", markClosing)) }, true},
		{"the mark changes", func() { w.sets.heads.put(aPool("6", markClosed)) }, true},
		{"a pool that is no node's", func() { w.sets.heads.put(&poolHead{Metadata: objectMeta{Name: "10.5.0.0-20"}}) }, false},
		{"it goes", func() { w.sets.heads.remove(aPool("7", "")) }, true},
	} {
		step.do()
		told := false
		select {
		case <-w.Changed():
			told = true
		default:
		}
		if told != step.told {
			t.Errorf("%s: told %t, want %t", step.says, told, step.told)
		}
	}
	var names []string
	for _, n := range w.Picture().Nodes {
		names = append(names, n.Name)
	}
	if got := strings.Join(names, " "); got != "z b" {
		t.Errorf("the nodes are %q, want the oldest first", got)
	}
	if err := w.Ready(); err == nil {
		t.Error("it is ready though nothing was listed from the API server")
	}
}

func TestEventsOfTheSameContentHaveOneName(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a"
	name := EventNameOf(long, "x")
	if len(name) > maxName || strings.Contains(name, "..") {
		t.Errorf("the name of an event is %q", name)
	}
	again := EventNameOf("d", "x")
	if EventNameOf("d", "x") != again || EventNameOf("d", "x") == EventNameOf("d", "y") || EventNameOf("d", "x") == EventNameOf("e", "x") {
		t.Error("names of events do not go by object and content")
	}
}
