package integration

import (
	"strings"
	"testing"
)

func TestControllerTellsWhatIsWrongWithDefinitions(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a")
	good := s.sliced("good", "10.5.0.0/24", "/26", nil)
	s.define("default", "good", good)
	s.define("default", "a-shared", withIPAM(with(good, Object{"name": "first"}), Object{"network_name": "shared", "range": "10.6.0.0/24"}))

	ipam := func(name string, keys Object) Object { return s.cluster.config(name, keys) }
	broken := map[string]struct {
		config any
		says   []string
	}{
		"no-json":        {`{"name": "x", "ipam": {"type": "whereabouts"`, []string{"not valid JSON", "line 1"}},
		"a-list":         {`["whereabouts"]`, []string{"spec.config", "not an object"}},
		"odd-plugins":    {`{"name": "x", "plugins": {"ipam": {"type": "whereabouts"}}}`, []string{"plugins", "list of objects"}},
		"too-large":      {ipam("too-large", Object{"range": "192.168.2.0/24", "node_slice_size": "/22"}), []string{"node_slice_size", `"/22"`, "192.168.2.0/24", `use "/24" to "/32"`}},
		"no-size":        {ipam("no-size", Object{"range": "192.168.2.0/24", "node_slice_size": "many"}), []string{"node_slice_size", `"many"`}},
		"bad-range":      {ipam("bad-range", Object{"range": "192.168.2.0/240", "node_slice_size": "/26"}), []string{"range", "192.168.2.0/240"}},
		"bad-exclude":    {ipam("bad-exclude", Object{"range": "192.168.2.0/24", "node_slice_size": "/26", "exclude": []string{"x"}}), []string{"exclude[0]", `"x"`}},
		"overlapping":    {ipam("overlapping", Object{"range": "192.168.2.0/24", "node_slice_size": "/26", "ipRanges": []Object{{"range": "192.168.0.0/16"}}}), []string{"ipRanges", "overlap"}},
		"both-families":  {ipam("both-families", Object{"range": "192.168.2.0/24", "node_slice_size": "/26", "ipRanges": []Object{{"range": "fd00::/64"}}}), []string{"node_slice_size", "fd00::/64"}},
		"other-size":     {ipam("x", Object{"network_name": "shared", "range": "10.6.0.0/24", "node_slice_size": "/28"}), []string{"node_slice_size", `"/28"`, "default/a-shared"}},
		"other-range":    {ipam("x", Object{"network_name": "shared", "range": "10.7.0.0/24", "node_slice_size": "/26"}), []string{"range", "10.7.0.0/24", "default/a-shared"}},
		"in-other-store": {ipam("x", Object{"datastore": "local", "range": "10.7.0.0/24", "node_slice_size": "/26"}), []string{"node_slice_size", "local", "kubernetes"}},
		"odd-type":       {ipam("x", Object{"range": 7, "node_slice_size": "/26"}), []string{"range", "string"}},
		"all-excluded":   {ipam("all-excluded", Object{"range": "10.9.0.0/24", "node_slice_size": "/26", "exclude": []string{"10.9.0.0/24"}}), []string{"node-a", "10.9.0.0/24", "exclude less"}},
	}
	silent := map[string]any{
		"shim":      Object{"cniVersion": "1.0.0", "name": "whereabouts-shim", "type": "bridge", "ipam": Object{"type": "whereabouts"}},
		"other":     Object{"cniVersion": "1.0.0", "name": "other", "type": "bridge", "ipam": Object{"type": "host-local", "node_slice_size": 5}},
		"no-ipam":   Object{"cniVersion": "1.0.0", "name": "none", "type": "bridge"},
		"empty":     "",
		"no-slices": s.ranged("10.10.0.0/24"),
	}
	for name, test := range broken {
		s.define("default", name, test.config)
	}
	for name, config := range silent {
		s.define("default", name, config)
	}
	r := s.control()
	for name, test := range broken {
		s.eventually("a warning on "+name, func() bool { return len(s.warnings("default", name)) > 0 })
		text := strings.Join(s.warnings("default", name), "\n")
		for _, word := range test.says {
			if !strings.Contains(text, word) {
				t.Errorf("%s: the event does not say %q: %s", name, word, text)
			}
		}
	}
	s.sliceOf("shared", "node-a")
	newNode(t, "node-a").add(t, pod("p"), good).gets(t, "10.5.0.1/24")
	s.quiet()
	for name := range silent {
		if texts := s.warnings("default", name); len(texts) > 0 {
			t.Errorf("%s is warned about: %q", name, texts)
		}
	}
	for name := range broken {
		if texts := s.warnings("default", name); len(texts) != 1 {
			t.Errorf("%s is warned about %d times: %q", name, len(texts), texts)
		}
	}
	select {
	case <-r.done:
		t.Errorf("the controller has ended:\n%s", r.log.String())
	default:
	}
}
