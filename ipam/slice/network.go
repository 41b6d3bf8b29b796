package slice

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Definition is a network attachment definition that names this IPAM.
type Definition struct {
	Namespace, Name string
	Created         time.Time

	// Configs is each network configuration in it with this IPAM; there are
	// several in a list with several plugins.
	Configs []Parsed
}

func (d Definition) String() string { return d.Namespace + "/" + d.Name }

func (d Definition) compare(other Definition) int {
	return cmp.Or(d.Created.Compare(other.Created), cmp.Compare(d.Namespace, other.Namespace), cmp.Compare(d.Name, other.Name))
}

// Parsed is what ipam.ParseConfig answers.
type Parsed struct {
	Config *ipam.Config
	Err    error
}

// Network is what shares slices: each node has the same ones in all its definitions.
type Network struct {
	Name  string // of the slice pool: network_name, else the name of the CNI network
	Space string // network_name, in front of the names of pools; "" is the default address space
	// Cuts is one for each range, in their order; the zero Cut for one that is not
	// to be cut. The slice pool of the first one has the network's name, those of the
	// others their range in theirs too.
	Cuts        []Cut
	Max         int      // most slices of a node in each range
	Definitions []string // namespace/name, the oldest first
}

// Problem is what somebody has to change in a definition.
type Problem struct {
	Definition Definition
	Text       string // which key, what was found, what to do
}

// Networks answers which networks are to be cut, sorted by name, and what is wrong
// with definitions that cannot take part. Definitions that want no slices or have no
// range are not mentioned. Of those that share a name the oldest decides what its
// ranges, their size and its address space are (by namespace and name where the time
// of creation is the same), and those that say otherwise have a problem.
//
// Bounds, excludes and gateways may differ: slices that are of use in only some of
// the definitions are not used. The highest node_slice_max counts.
func Networks(definitions []Definition) ([]Network, []Problem) {
	definitions = slices.SortedStableFunc(slices.Values(definitions), Definition.compare)
	var problems []Problem
	drafts := map[string]*draft{}
	for _, d := range definitions {
		for _, parsed := range d.Configs {
			cfg, err := toCut(parsed)
			if err == nil && cfg != nil {
				err = join(drafts, d, cfg)
			}
			if err != nil {
				problems = append(problems, Problem{Definition: d, Text: err.Error()})
			}
		}
	}
	var networks []Network
	for name, d := range drafts {
		networks = append(networks, d.network(name))
	}
	slices.SortFunc(networks, func(a, b Network) int { return cmp.Compare(a.Name, b.Name) })
	return networks, problems
}

// toCut answers a configuration that wants slices and can have them, nil for one that
// is none of our business, and an error for one that is broken.
func toCut(parsed Parsed) (*ipam.Config, error) {
	cfg := parsed.Config
	if cfg == nil {
		return nil, parsed.Err
	}
	inKubernetes := cfg.Datastore == ipam.DatastoreKubernetes
	if parsed.Err != nil && !inKubernetes { // how to reach Kubernetes is the node's business
		return nil, parsed.Err
	}
	var broken []error
	for _, err := range cfg.Invalid {
		if !errors.Is(err, ipam.ErrNoSource) {
			broken = append(broken, err)
		}
	}
	switch {
	case len(broken) > 0:
		return nil, errors.Join(broken...)
	case !cfg.Sliced():
		return nil, nil
	case !inKubernetes:
		return nil, invalid("node_slice_size", "datastore is %s, and slices need %s; remove one of the two keys",
			cfg.Datastore, ipam.DatastoreKubernetes)
	case nameOf(cfg) == "":
		return nil, invalid("network_name", `missing, and the network has no name either; set one like "network_name": "storage"`)
	}
	return cfg, disjoint(cfg.Ranges)
}

func invalid(key, format string, args ...any) error {
	return fmt.Errorf("%w: %s: "+format, append([]any{ipam.ErrInvalid, key}, args...)...)
}

func nameOf(cfg *ipam.Config) string { return cmp.Or(cfg.NetworkName, cfg.Name) }

// disjoint refuses ranges of one configuration that have addresses in common: a slice
// of one could be a node's and the same addresses in the other another's.
func disjoint(ranges []ipam.Range) error {
	for i, r := range ranges {
		for _, other := range ranges[:i] {
			if r.Prefix.Overlaps(other.Prefix) {
				return invalid("ipRanges", "%s and %s overlap, which node slices do not allow; make them one range or remove node_slice_size",
					other.Prefix, r.Prefix)
			}
		}
	}
	return nil
}

// draft is a network in the making.
type draft struct {
	space  string
	max    int
	ranges [][]ipam.Range // by position: as each definition sees it
	first  Definition
	names  []string
}

// join adds a configuration to the network of its name, or makes the network.
func join(drafts map[string]*draft, d Definition, cfg *ipam.Config) error {
	n := drafts[nameOf(cfg)]
	if n == nil {
		n = &draft{space: cfg.NetworkName, first: d}
		drafts[nameOf(cfg)] = n
	} else if err := n.accepts(cfg); err != nil {
		return err
	}
	for i, r := range cfg.Ranges {
		if i == len(n.ranges) {
			n.ranges = append(n.ranges, nil)
		}
		n.ranges[i] = append(n.ranges[i], r)
	}
	n.max = max(n.max, cfg.SliceMax)
	if name := d.String(); !slices.Contains(n.names, name) {
		n.names = append(n.names, name)
	}
	return nil
}

// accepts answers what a configuration says otherwise than the network it belongs to.
func (n *draft) accepts(cfg *ipam.Config) error {
	have, want := prefixes(cfg.Ranges), prefixes(n.seen())
	haveSize, wantSize := sizes(cfg.Ranges), sizes(n.seen())
	switch {
	case cfg.NetworkName != n.space:
		return invalid("network_name", "%q is here, but %q in %s, whose slice pool is named %s too; write the same one or choose another name",
			cfg.NetworkName, n.space, n.first, nameOf(cfg))
	case have != want:
		return invalid("range", "%s is here, but %s in %s, which shares network %s; write the same ranges or choose another network_name",
			have, want, n.first, nameOf(cfg))
	case haveSize != wantSize:
		return invalid("node_slice_size", `%s is here, but %s in %s, which shares network %s; write the same size or choose another network_name`,
			haveSize, wantSize, n.first, nameOf(cfg))
	}
	return nil
}

// seen is the ranges as the first definition sees them.
func (n *draft) seen() []ipam.Range {
	var ranges []ipam.Range
	for _, views := range n.ranges {
		ranges = append(ranges, views[0])
	}
	return ranges
}

func prefixes(ranges []ipam.Range) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.Prefix.String())
	}
	return strings.Join(texts, ", ")
}

// sizes is how ranges are cut, in words: one size if all have the same.
func sizes(ranges []ipam.Range) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, fmt.Sprintf(`"/%d"`, r.SliceSize))
	}
	if len(slices.Compact(slices.Clone(texts))) == 1 {
		return texts[0]
	}
	return strings.Join(texts, ", ")
}

func (n *draft) network(name string) Network {
	out := Network{Name: name, Space: n.space, Max: max(n.max, 1), Definitions: n.names}
	for _, views := range n.ranges {
		c := Cut{}
		if size := views[0].SliceSize; size > 0 {
			c, _ = New(size, views[0], views[1:]...) // ParseConfig lets only sizes pass that suit
		}
		out.Cuts = append(out.Cuts, c)
	}
	return out
}
