package slice

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// parsed reads a network configuration as a pod in the cluster does.
func parsed(network string) Parsed {
	cfg, err := ipam.ParseConfig(ipam.Sources{
		Stdin: []byte(network),
		Getenv: func(name string) string {
			return map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}[name]
		},
	})
	return Parsed{cfg, err}
}

// define makes a definition that is the younger the higher its number, of networks
// like `net|"range": "10.0.0.0/24"`: name and keys of ipam.
func define(number int, name string, networks ...string) Definition {
	d := Definition{Namespace: "ns", Name: name, Created: time.Unix(int64(number), 0)}
	for _, network := range networks {
		cniName, keys, _ := strings.Cut(network, "|")
		d.Configs = append(d.Configs, parsed(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "ipam": {"type": "whereabouts", %s}}`, cniName, keys)))
	}
	return d
}

// describe is a network in one line.
func describe(n Network) string {
	text := n.Name
	if n.Space != "" {
		text += " space " + n.Space
	}
	for _, c := range n.Cuts {
		text += fmt.Sprintf(" %s/%d", c.Prefix(), c.Size())
	}
	return fmt.Sprintf("%s max %d of %s", text, n.Max, strings.Join(n.Definitions, ","))
}

func TestNetworks(t *testing.T) {
	const plain = `"range": "10.0.0.0/24", "node_slice_size": "26"`
	const tenant = plain + `, "network_name": "tenant"`
	for _, test := range []struct {
		says     string
		list     []Definition
		want     []string
		problems map[string][]string // by name of the definition: what its problem says
	}{
		{says: "none"},
		{says: "the name of the CNI network", list: []Definition{define(1, "a", "net|"+plain)}, want: []string{"net 10.0.0.0/24/26 max 1 of ns/a"}},
		{says: "a network name", list: []Definition{define(1, "a", "net|"+tenant)}, want: []string{"tenant space tenant 10.0.0.0/24/26 max 1 of ns/a"}},
		{says: "several slices", list: []Definition{define(1, "a", "net|"+plain+`, "node_slice_max": 3`)}, want: []string{"net 10.0.0.0/24/26 max 3 of ns/a"}},
		{
			says: "several ranges", list: []Definition{define(1, "a", `net|"range": "10.0.0.5/20", "ipRanges": [{"range": "10.9.0.0/20"}, {"range": "fd00::/28"}], "node_slice_size": 30`)},
			want: []string{"net 10.0.0.0/20/30 10.9.0.0/20/30 fd00::/28/30 max 1 of ns/a"},
		},
		{
			says: "a size for each range", list: []Definition{define(1, "a", `net|"range": "10.0.0.5/20", "node_slice_size": 24, "ipRanges": [{"range": "fd00::/64", "node_slice_size": 80}]`)},
			want: []string{"net 10.0.0.0/20/24 fd00::/64/80 max 1 of ns/a"},
		},
		{
			says: "a size for one range alone", list: []Definition{define(1, "a", `net|"range": "10.0.0.5/20", "ipRanges": [{"range": "fd00::/64", "node_slice_size": 80}]`)},
			want: []string{"net invalid Prefix/0 fd00::/64/80 max 1 of ns/a"},
		},
		{says: "several plugins in a list", list: []Definition{define(1, "a", "net|"+plain, "net|"+plain)}, want: []string{"net 10.0.0.0/24/26 max 1 of ns/a"}},
		{
			says: "networks without a network name", list: []Definition{define(2, "a", "one|"+plain), define(1, "b", "two|"+plain)},
			want: []string{"one 10.0.0.0/24/26 max 1 of ns/a", "two 10.0.0.0/24/26 max 1 of ns/b"},
		},

		{says: "no slices", list: []Definition{define(1, "a", `net|"range": "10.0.0.0/24"`)}},
		{says: "slices switched off", list: []Definition{define(1, "a", `net|"range": "10.0.0.0/24", "node_slice_size": 0`)}},
		{says: "no range", list: []Definition{define(1, "a", `net|"node_slice_size": "26"`)}},
		{says: "addresses only", list: []Definition{define(1, "a", `net|"addresses": [{"address": "10.0.0.5/24"}], "node_slice_size": "26"`)}},
		{says: "no configuration", list: []Definition{{Name: "a"}, {Name: "b", Configs: []Parsed{{}}}}},

		{
			says: "a size shorter than the range", list: []Definition{define(1, "a", `net|"range": "192.168.2.0/24", "node_slice_size": "/22"`), define(2, "b", "other|"+plain)},
			want: []string{"other 10.0.0.0/24/26 max 1 of ns/b"}, problems: map[string][]string{"a": {"node_slice_size", `"/22"`, "192.168.2.0/24", `use "/24" to "/32"`}},
		},
		{says: "a size that is no number", list: []Definition{define(1, "a", `net|"range": "192.168.2.0/24", "node_slice_size": "big"`)}, problems: map[string][]string{"a": {"node_slice_size", `"big"`, "write one like"}}},
		{says: "a size that is too long", list: []Definition{define(1, "a", `net|"range": "192.168.2.0/24", "node_slice_size": 33`)}, problems: map[string][]string{"a": {`"/33"`, `use "/24" to "/32"`}}},
		{
			says: "a size for both families", list: []Definition{define(1, "a", `net|"range": "192.168.2.0/24", "ipRanges": [{"range": "fd00::/64"}], "node_slice_size": 26`)},
			problems: map[string][]string{"a": {"fd00::/64", "no size suits all ranges", "of their own"}},
		},
		{says: "a range that is no CIDR", list: []Definition{define(1, "a", `net|"range": "10.0.0.0", "node_slice_size": 26`)}, problems: map[string][]string{"a": {"range", `"10.0.0.0"`}}},
		{says: "an exclude that does not parse", list: []Definition{define(1, "a", "net|"+plain+`, "exclude": ["x"]`)}, problems: map[string][]string{"a": {"exclude[0]", `"x"`}}},
		{says: "no JSON", list: []Definition{{Name: "a", Configs: []Parsed{parsed(`{"ipam": `)}}}, problems: map[string][]string{"a": {"line 1"}}},
		{says: "no name at all", list: []Definition{define(1, "a", "|"+plain)}, problems: map[string][]string{"a": {"network_name", "missing"}}},
		{says: "another datastore", list: []Definition{define(1, "a", "net|"+plain+`, "datastore": "local"`)}, problems: map[string][]string{"a": {"node_slice_size", "local"}}},
		{says: "an unknown datastore", list: []Definition{define(1, "a", "net|"+plain+`, "datastore": "x"`)}, problems: map[string][]string{"a": {"datastore", `"x"`}}},
		{says: "ranges that overlap", list: []Definition{define(1, "a", "net|"+plain+`, "ipRanges": [{"range": "10.0.0.64/26"}]`)}, problems: map[string][]string{"a": {"ipRanges", "10.0.0.0/24", "10.0.0.64/26"}}},
		{
			says: "one broken plugin of a list", list: []Definition{define(1, "a", "net|"+plain, `net|"range": "x", "node_slice_size": 26`)},
			want: []string{"net 10.0.0.0/24/26 max 1 of ns/a"}, problems: map[string][]string{"a": {`"x"`}},
		},

		{
			says: "shared", list: []Definition{define(2, "a", "x|"+tenant+`, "exclude": ["10.0.0.0/26"]`), define(1, "b", "y|"+tenant+`, "node_slice_max": 4, "range_start": "10.0.0.9"`)},
			want: []string{"tenant space tenant 10.0.0.0/24/26 max 4 of ns/b,ns/a"},
		},
		{
			says: "shared, with one range more", list: []Definition{define(1, "a", "x|"+tenant), define(2, "b", "y|"+tenant+`, "ipRanges": [{"range": "10.1.0.0/24"}]`)},
			want: []string{"tenant space tenant 10.0.0.0/24/26 max 1 of ns/a"}, problems: map[string][]string{"b": {"range", "10.0.0.0/24, 10.1.0.0/24", "ns/a"}},
		},
		{
			says: "another range, the younger one is odd", list: []Definition{define(2, "a", "x|"+tenant), define(1, "b", `x|"range": "10.1.0.0/24", "node_slice_size": 26, "network_name": "tenant"`), define(3, "c", "x|"+plain)},
			want: []string{"tenant space tenant 10.1.0.0/24/26 max 1 of ns/b", "x 10.0.0.0/24/26 max 1 of ns/c"}, problems: map[string][]string{"a": {"range", "10.0.0.0/24", "10.1.0.0/24", "ns/b"}},
		},
		{
			says: "another size, of the same age", list: []Definition{define(1, "b", `x|"range": "10.0.0.0/24", "node_slice_size": 27, "network_name": "tenant"`), define(1, "a", "x|"+tenant)},
			want: []string{"tenant space tenant 10.0.0.0/24/26 max 1 of ns/a"}, problems: map[string][]string{"b": {"node_slice_size", `"/27"`, `"/26"`, "ns/a"}},
		},
		{
			says: "a network's name is another's network name", list: []Definition{define(1, "a", "x|"+tenant), define(2, "b", "tenant|"+plain)},
			want: []string{"tenant space tenant 10.0.0.0/24/26 max 1 of ns/a"}, problems: map[string][]string{"b": {"network_name", `"tenant"`, "ns/a"}},
		},
	} {
		t.Run(test.says, func(t *testing.T) {
			networks, problems := Networks(test.list)
			var got []string
			for _, n := range networks {
				got = append(got, describe(n))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("networks are %q, want %q", got, test.want)
			}
			if len(problems) != len(test.problems) {
				t.Fatalf("problems are %v", problems)
			}
			for _, problem := range problems {
				for _, words := range test.problems[problem.Definition.Name] {
					if !strings.Contains(problem.Text, words) {
						t.Errorf("problem of %s: %q does not say %s", problem.Definition, problem.Text, words)
					}
				}
				if test.problems[problem.Definition.Name] == nil {
					t.Errorf("%s has a problem: %s", problem.Definition, problem.Text)
				}
			}
		})
	}
}

func TestSharedSlicesAreOfUseToAll(t *testing.T) {
	networks, _ := Networks([]Definition{
		define(1, "a", `x|"range": "10.0.0.0/24", "node_slice_size": 26, "network_name": "n", "exclude": ["10.0.0.0/26"]`),
		define(2, "b", `x|"range": "10.0.0.0/24", "node_slice_size": 26, "network_name": "n", "range_end": "10.0.0.191"`),
	})
	if len(networks) != 1 || owned(Assign(Input{Cut: networks[0].Cuts[0], Nodes: nodes("p q r")}).Allocations) != "p=10.0.0.64/26 q=10.0.0.128/26" {
		t.Errorf("networks are %v", networks)
	}
}

// A configuration read where the API server cannot be reached is understood too.
func TestHowToReachKubernetesDoesNotMatter(t *testing.T) {
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: []byte(`{"name": "net", "ipam": {"range": "10.0.0.0/24", "node_slice_size": 26}}`)})
	if err == nil {
		t.Fatal("no error")
	}
	networks, problems := Networks([]Definition{{Name: "a", Configs: []Parsed{{cfg, err}}}})
	if len(networks) != 1 || problems != nil {
		t.Errorf("networks are %v, problems %v", networks, problems)
	}
}
