package slice

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// nodes makes nodes of names like "a" or "a*3", which asks for three slices.
func nodes(names string) []Node {
	var list []Node
	for _, name := range strings.Fields(names) {
		n := 1
		if before, asks, ok := strings.Cut(name, "*"); ok {
			name = before
			_, _ = fmt.Sscan(asks, &n)
		}
		list = append(list, Node{Name: name, Slices: n})
	}
	return list
}

// listed makes a status of entries like "a=10.0.0.0/26"; "=10.0.0.0/26" is free.
func listed(entries string) []Allocation {
	var list []Allocation
	for _, entry := range strings.Fields(entries) {
		name, prefix, _ := strings.Cut(entry, "=")
		list = append(list, Allocation{NodeName: name, SliceRange: prefix})
	}
	return list
}

func keys(entries string) []Key {
	var list []Key
	for _, entry := range listed(entries) {
		list = append(list, Key{entry.NodeName, netip.MustParsePrefix(entry.SliceRange)})
	}
	return list
}

// pools makes pools of entries like "a=10.0.0.0/26:used".
func pools(t *testing.T, entries string) []Pool {
	t.Helper()
	states := map[string]State{"unknown": Unknown, "empty": Empty, "used": InUse, "closing": Closing, "closed": Closed}
	var list []Pool
	for _, entry := range strings.Fields(entries) {
		colon := strings.LastIndex(entry, ":")
		state, ok := states[entry[colon+1:]]
		if !ok {
			t.Fatalf("no state in %s", entry)
		}
		list = append(list, Pool{Key: keys(entry[:colon])[0], State: state})
	}
	return list
}

// owned is the entries with a node, all is every entry.
func owned(list []Allocation) string {
	return all(slices.DeleteFunc(slices.Clone(list), func(a Allocation) bool { return a.NodeName == "" }))
}

func all(list []Allocation) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.NodeName+"="+a.SliceRange)
	}
	return strings.Join(texts, " ")
}

func keyTexts(list []Key) string {
	var texts []string
	for _, key := range list {
		texts = append(texts, key.Node+"="+key.Slice.String())
	}
	return strings.Join(texts, " ")
}

func TestAssign(t *testing.T) {
	quarters := ipam.RangeSpec{Range: "10.0.0.0/24"}
	for _, test := range []struct {
		says   string
		spec   ipam.RangeSpec // quarters if zero
		size   int            // 26 if zero
		max    int
		nodes  string
		listed string
		pools  string

		want                      string // with a node
		look, closes, seal, opens string
		unserved, short           string
		problems                  []string // words of each
	}{
		{says: "nobody is there"},
		{says: "the lowest to the oldest", nodes: "b a", want: "b=10.0.0.0/26 a=10.0.0.64/26"},
		{says: "the oldest gets it when there are too few", nodes: "b a d c e f", want: "b=10.0.0.0/26 a=10.0.0.64/26 d=10.0.0.128/26 c=10.0.0.192/26", unserved: "e f"},
		{says: "a node twice in the list", nodes: "a a", want: "a=10.0.0.0/26"},
		{says: "what is assigned stays", nodes: "a b", listed: "b=10.0.0.0/26", want: "b=10.0.0.0/26 a=10.0.0.64/26"},
		{says: "a hole is filled", nodes: "a b c", listed: "a=10.0.0.0/26 =10.0.0.64/26 b=10.0.0.128/26", want: "a=10.0.0.0/26 c=10.0.0.64/26 b=10.0.0.128/26"},
		{says: "one that is excluded is passed over", spec: ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/26"}}, nodes: "a", want: "a=10.0.0.64/26"},
		{says: "IPv6", spec: ipam.RangeSpec{Range: "fd00::/48"}, size: 64, nodes: "a b", want: "a=fd00::/64 b=fd00:0:0:1::/64"},

		{says: "a node that left keeps what it uses", nodes: "b", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:used", want: "a=10.0.0.0/26 b=10.0.0.64/26"},
		{says: "a node that left keeps an empty slice until it is closed", nodes: "b", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:empty", want: "a=10.0.0.0/26 b=10.0.0.64/26", closes: "a=10.0.0.0/26"},
		{says: "a node that left without a pool", nodes: "b", listed: "a=10.0.0.0/26", want: "a=10.0.0.0/26 b=10.0.0.64/26", closes: "a=10.0.0.0/26"},
		{says: "a slice given up goes to the next", nodes: "b", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:closing", want: "b=10.0.0.0/26"},
		{says: "a pool given up is sealed afterwards", nodes: "b", listed: "b=10.0.0.0/26", pools: "a=10.0.0.0/26:closing", want: "b=10.0.0.0/26", seal: "a=10.0.0.0/26"},
		{says: "a sealed pool is left alone", nodes: "b", listed: "b=10.0.0.0/26", pools: "a=10.0.0.0/26:closed", want: "b=10.0.0.0/26"},
		{says: "a node back too early gets another", nodes: "a", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:closing", want: "a=10.0.0.64/26"},
		{says: "another may have what its node must not", nodes: "a b", pools: "a=10.0.0.0/26:closing", want: "b=10.0.0.0/26 a=10.0.0.64/26", seal: "a=10.0.0.0/26"},
		{says: "a node back gets a sealed slice and opens it", nodes: "a", pools: "a=10.0.0.0/26:closed", want: "a=10.0.0.0/26", opens: "a=10.0.0.0/26"},
		{says: "opening is repeated", nodes: "a", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:closed", want: "a=10.0.0.0/26", opens: "a=10.0.0.0/26"},
		{says: "a node that left before its pool was opened", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:closed", want: "a=10.0.0.0/26", closes: "a=10.0.0.0/26"},
		{says: "a pool that stays need not be looked into", nodes: "a", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:unknown", want: "a=10.0.0.0/26"},
		{says: "a pool to be left has to be looked into", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:unknown", look: "a=10.0.0.0/26"},
		{says: "a pool that is not listed has to be looked into", nodes: "b", pools: "a=10.0.0.0/26:unknown", look: "a=10.0.0.0/26"},

		{says: "a lost status: in use", nodes: "a b", pools: "b=10.0.0.0/26:used a=10.0.0.128/26:used", want: "b=10.0.0.0/26 a=10.0.0.128/26"},
		{says: "a lost status: in use by a node that left", nodes: "b", pools: "a=10.0.0.0/26:used", want: "a=10.0.0.0/26 b=10.0.0.64/26"},
		{says: "a lost status: empty", nodes: "a b", pools: "b=10.0.0.0/26:empty", want: "b=10.0.0.0/26 a=10.0.0.64/26"},
		{says: "a lost status: empty, of a node that left", nodes: "b", pools: "a=10.0.0.0/26:empty", want: "b=10.0.0.64/26", closes: "a=10.0.0.0/26"},
		{says: "a lost status: empty beside one in use", nodes: "a", pools: "a=10.0.0.0/26:empty a=10.0.0.64/26:used", want: "a=10.0.0.64/26", closes: "a=10.0.0.0/26"},
		{says: "a lost status: empty twice", nodes: "a b", pools: "b=10.0.0.0/26:empty a=10.0.0.0/26:empty", want: "a=10.0.0.64/26 b=10.0.0.128/26", closes: "a=10.0.0.0/26 b=10.0.0.0/26"},
		{
			says: "a lost status: in use twice", nodes: "a b c", pools: "b=10.0.0.0/26:used a=10.0.0.0/26:used", want: "a=10.0.0.64/26 b=10.0.0.128/26 c=10.0.0.192/26",
			problems: []string{"nodes a and b"},
		},
		{
			says: "another's records in a slice that is listed", nodes: "a", listed: "a=10.0.0.0/26", pools: "b=10.0.0.0/26:used", want: "a=10.0.0.0/26",
			problems: []string{"pool of node b for slice 10.0.0.0/26"},
		},
		{says: "another's empty pool in a slice that is listed", nodes: "a", listed: "a=10.0.0.0/26", pools: "b=10.0.0.0/26:empty", want: "a=10.0.0.0/26", closes: "b=10.0.0.0/26"},
		{says: "pools without a node or elsewhere", nodes: "a", pools: "=10.0.0.0/24:used b=10.0.1.0/26:used c=fd00::/64:empty", want: "a=10.0.0.0/26"},

		{says: "another size, in use", size: 27, nodes: "a b", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:used", want: "a=10.0.0.0/26 b=10.0.0.64/27"},
		{says: "another size, empty", size: 27, nodes: "a b", listed: "a=10.0.0.0/26", want: "a=10.0.0.0/26 b=10.0.0.64/27", closes: "a=10.0.0.0/26"},
		{says: "another size, closing", size: 27, nodes: "a b", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:closing", want: "a=10.0.0.0/27 b=10.0.0.32/27"},
		{says: "a larger size over slices in use", size: 25, nodes: "a b c", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:used", want: "a=10.0.0.0/26 b=10.0.0.128/25", unserved: "c"},
		{says: "a larger size, lost status", size: 25, nodes: "a b", pools: "b=10.0.0.0/26:used b=10.0.0.64/26:empty", want: "b=10.0.0.0/26 a=10.0.0.128/25", closes: "b=10.0.0.64/26"},
		{
			says: "a slice in use that covers billions of the new size", spec: ipam.RangeSpec{Range: "fd00::/32"}, size: 64, nodes: "b",
			listed: "a=fd00::/33", pools: "a=fd00::/33:used", want: "a=fd00::/33 b=fd00:0:8000::/64",
		},
		{says: "another range, in use", nodes: "a", listed: "a=10.9.0.0/26", pools: "a=10.9.0.0/26:used", want: "a=10.0.0.0/26 a=10.9.0.0/26"},
		{says: "another range, empty", nodes: "a", listed: "a=10.9.0.0/26", want: "a=10.0.0.0/26 a=10.9.0.0/26", closes: "a=10.9.0.0/26"},
		{says: "another range, closing", nodes: "a", listed: "a=10.9.0.0/26", pools: "a=10.9.0.0/26:closing", want: "a=10.0.0.0/26"},
		{says: "another family, in use", nodes: "a", listed: "a=fd00::/64", pools: "a=fd00::/64:used", want: "a=10.0.0.0/26 a=fd00::/64"},
		{
			says: "excluded by now, in use", spec: ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/26"}},
			nodes: "a", listed: "a=10.0.0.0/26", pools: "a=10.0.0.0/26:used", want: "a=10.0.0.0/26 a=10.0.0.64/26",
		},
		{
			says: "excluded by now, empty", spec: ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/26"}},
			nodes: "a", listed: "a=10.0.0.0/26", want: "a=10.0.0.0/26 a=10.0.0.64/26", closes: "a=10.0.0.0/26",
		},

		{says: "growth up to what is asked for", max: 4, nodes: "a*2 b", listed: "a=10.0.0.0/26 b=10.0.0.64/26", want: "a=10.0.0.0/26 b=10.0.0.64/26 a=10.0.0.128/26"},
		{says: "growth up to the most", max: 2, nodes: "a*4", want: "a=10.0.0.0/26 a=10.0.0.64/26"},
		{says: "no growth unless configured", nodes: "a*4", want: "a=10.0.0.0/26"},
		{says: "first slices before second ones", max: 4, nodes: "a*3 b*2 c", want: "a=10.0.0.0/26 b=10.0.0.64/26 c=10.0.0.128/26 a=10.0.0.192/26", short: "a b"},
		{says: "the highest empty one is given back", max: 4, nodes: "a", listed: "a=10.0.0.0/26 a=10.0.0.64/26 a=10.0.0.128/26", pools: "a=10.0.0.128/26:used", want: "a=10.0.0.0/26 a=10.0.0.64/26 a=10.0.0.128/26", closes: "a=10.0.0.0/26 a=10.0.0.64/26"},
		{says: "one of two empty ones is given back", max: 4, nodes: "a", listed: "a=10.0.0.0/26 a=10.0.0.64/26", want: "a=10.0.0.0/26 a=10.0.0.64/26", closes: "a=10.0.0.64/26"},
		{says: "none in use is given back", max: 4, nodes: "a", listed: "a=10.0.0.0/26 a=10.0.0.64/26", pools: "a=10.0.0.0/26:used a=10.0.0.64/26:used", want: "a=10.0.0.0/26 a=10.0.0.64/26"},
		{says: "what was cut otherwise goes first", max: 4, nodes: "a", listed: "a=10.0.0.0/27 a=10.0.0.64/26", want: "a=10.0.0.0/27 a=10.0.0.64/26", closes: "a=10.0.0.0/27"},

		{says: "an entry that is no CIDR", nodes: "a b", listed: "a=10.0.0.0 b=10.0.0.64/26", want: "a=10.0.0.0/26 b=10.0.0.64/26", problems: []string{"status.allocations[0]"}},
		{says: "a free entry that is no CIDR", nodes: "a", listed: "=x", want: "a=10.0.0.0/26"},
		{says: "host bits in an entry", nodes: "a", listed: "a=10.0.0.65/26", want: "a=10.0.0.64/26"},
		{says: "an entry twice", nodes: "a b", listed: "a=10.0.0.0/26 a=10.0.0.0/26", want: "a=10.0.0.0/26 b=10.0.0.64/26"},
		{
			says: "one slice listed for two nodes", nodes: "a b", listed: "b=10.0.0.0/26 a=10.0.0.0/26", want: "b=10.0.0.0/26 a=10.0.0.64/26", closes: "a=10.0.0.0/26",
			problems: []string{"node a is taken off"},
		},
		{
			says: "one slice listed for two nodes, in use by the second", nodes: "a b", listed: "b=10.0.0.0/26 a=10.0.0.0/26", pools: "a=10.0.0.0/26:used",
			want: "a=10.0.0.0/26 b=10.0.0.64/26", closes: "b=10.0.0.0/26", problems: []string{"node b is taken off"},
		},
		{
			says: "one slice listed for two nodes, in use by both", nodes: "a b", listed: "b=10.0.0.0/26 a=10.0.0.0/26", pools: "a=10.0.0.0/26:used b=10.0.0.0/26:used",
			want: "b=10.0.0.0/26 a=10.0.0.64/26", problems: []string{"node a is taken off", "pool of node a"},
		},
		{
			says: "overlapping slices listed, the small ones in use", nodes: "a b c", listed: "a=10.0.0.0/25 b=10.0.0.0/26 c=10.0.0.64/26",
			pools: "b=10.0.0.0/26:used c=10.0.0.64/26:used", want: "b=10.0.0.0/26 c=10.0.0.64/26 a=10.0.0.128/26", closes: "a=10.0.0.0/25",
			problems: []string{"node a is taken off"},
		},
		{says: "overlapping slices listed, not looked into", nodes: "a b", listed: "a=10.0.0.0/25 b=10.0.0.0/26", pools: "b=10.0.0.0/26:unknown", look: "b=10.0.0.0/26"},
	} {
		t.Run(test.says, func(t *testing.T) {
			spec, size := test.spec, test.size
			if spec.Range == "" {
				spec = quarters
			}
			if size == 0 {
				size = 26
			}
			in := Input{Cut: mustCut(t, size, spec), Max: test.max, Nodes: nodes(test.nodes), Listed: listed(test.listed), Pools: pools(t, test.pools)}
			plan := Assign(in)
			for what, pair := range map[string][2]string{
				"assigned": {owned(plan.Allocations), test.want},
				"look":     {keyTexts(plan.Look), test.look}, "close": {keyTexts(plan.Close), test.closes},
				"seal": {keyTexts(plan.Seal), test.seal}, "open": {keyTexts(plan.Open), test.opens},
				"unserved": {strings.Join(plan.Unserved, " "), test.unserved}, "short": {strings.Join(plan.Short, " "), test.short},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
				}
			}
			if len(plan.Problems) != len(test.problems) {
				t.Fatalf("problems are %q, want %q", plan.Problems, test.problems)
			}
			for i, words := range test.problems {
				if !strings.Contains(plan.Problems[i], words) {
					t.Errorf("problem %q does not say %q", plan.Problems[i], words)
				}
			}
			wantSettled(t, in, plan)
		})
	}
}

// wantSettled carries out a plan's allocations alone and wants the same ones again.
func wantSettled(t *testing.T, in Input, plan Plan) {
	t.Helper()
	if plan.Look != nil {
		return
	}
	in.Listed = plan.Allocations
	if again := Assign(in); !reflect.DeepEqual(again.Allocations, plan.Allocations) {
		t.Errorf("the second time the allocations are %q, want %q", all(again.Allocations), all(plan.Allocations))
	}
}

func TestManualsExample(t *testing.T) {
	in := Input{Cut: mustCut(t, 24, ipam.RangeSpec{Range: "10.5.0.0/20"}), Nodes: nodes("first")}
	plan := Assign(in)
	if len(plan.Allocations) != 16 || all(plan.Allocations[:2]) != "first=10.5.0.0/24 =10.5.1.0/24" || all(plan.Allocations[15:]) != "=10.5.15.0/24" {
		t.Errorf("allocations are %s", all(plan.Allocations))
	}
	r := mustRange(t, ipam.RangeSpec{Range: "10.5.0.0/20"})
	for at, want := range map[int]string{0: "10.5.0.1 to 10.5.0.255 /20", 1: "10.5.1.1 to 10.5.1.255 /20", 15: "10.5.15.1 to 10.5.15.254 /20"} {
		part, ok := r.Within(netip.MustParsePrefix(plan.Allocations[at].SliceRange))
		free := ipam.Free(part, nil, 300)
		if got := fmt.Sprintf("%s to %s /%d", free[0], free[len(free)-1], part.Prefix.Bits()); !ok || got != want {
			t.Errorf("slice %d hands out %s, want %s", at, got, want)
		}
	}
}

// A slice that must not be handed out is not listed as free: another controller
// would assign it.
func TestWhatIsListed(t *testing.T) {
	for _, test := range []struct {
		says string
		in   Input
		want string
	}{
		{
			"an excluded slice",
			Input{Cut: mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.64/26"}}), Nodes: nodes("a")},
			"a=10.0.0.0/26 =10.0.0.128/26 =10.0.0.192/26",
		},
		{
			"slices in use that were cut otherwise",
			Input{
				Cut: mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24"}), Nodes: nodes("a"),
				Listed: listed("a=10.0.0.0/27"), Pools: pools(t, "a=10.0.0.0/27:used"),
			},
			"a=10.0.0.0/27 =10.0.0.64/26 =10.0.0.128/26 =10.0.0.192/26",
		},
		{
			"slices that are not yet closed",
			Input{Cut: mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24"}), Pools: pools(t, "a=10.0.0.64/26:empty")},
			"=10.0.0.0/26 =10.0.0.128/26 =10.0.0.192/26",
		},
		{
			"slices that two nodes hold pools for",
			Input{Cut: mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24"}), Pools: pools(t, "a=10.0.0.64/26:used b=10.0.0.64/27:used")},
			"=10.0.0.0/26 =10.0.0.128/26 =10.0.0.192/26",
		},
	} {
		t.Run(test.says, func(t *testing.T) {
			if got := all(Assign(test.in).Allocations); got != test.want {
				t.Errorf("listed are %s, want %s", got, test.want)
			}
		})
	}
}

func TestAllSlicesAreListedUpTo4096(t *testing.T) {
	plan := Assign(Input{Cut: mustCut(t, 28, ipam.RangeSpec{Range: "10.0.0.0/16"}), Nodes: nodes("a")})
	if len(plan.Allocations) != 4096 || owned(plan.Allocations) != "a=10.0.0.0/28" {
		t.Errorf("%d slices are listed, and %s assigned", len(plan.Allocations), owned(plan.Allocations))
	}
}

func TestOfManySlicesOnlySomeAreListed(t *testing.T) {
	for _, test := range []struct {
		spec ipam.RangeSpec
		size int
	}{
		{ipam.RangeSpec{Range: "10.0.0.0/8"}, 27},
		{ipam.RangeSpec{Range: "fd00::/48"}, 64},
		{ipam.RangeSpec{Range: "fd00::/32", Exclude: []string{"fd00:0:0:1::/64", "fd00:0:1000::-fd00:0:efff::"}}, 64},
	} {
		in := Input{Cut: mustCut(t, test.size, test.spec), Nodes: nodes("a b"), Listed: listed("x=10.9.9.0/27"), Pools: pools(t, "x=10.9.9.0/27:used")}
		plan := Assign(in)
		if free := len(plan.Allocations) - 3; free != fewFree {
			t.Errorf("%s: %d free slices are listed, want %d: %s", test.spec.Range, free, fewFree, all(plan.Allocations))
		}
		if !slices.IsSortedFunc(keys(all(plan.Allocations)), compareKeys) {
			t.Errorf("%s: not in address order: %s", test.spec.Range, all(plan.Allocations))
		}
		wantSettled(t, in, plan)
	}
}

// TestNeverOverAMebibyte has more nodes with longer names than one object can list.
func TestNeverOverAMebibyte(t *testing.T) {
	in := Input{Cut: mustCut(t, 64, ipam.RangeSpec{Range: "fd00::/48"})}
	for i := range 5000 {
		in.Nodes = append(in.Nodes, Node{Name: fmt.Sprintf("%s-%d", strings.Repeat("n", 240), i), Slices: 1})
	}
	plan := Assign(in)
	text, err := json.Marshal(plan.Allocations)
	if err != nil || len(text) > 1<<20-1<<15 {
		t.Errorf("the list has %d bytes (%v)", len(text), err)
	}
	served := len(keys(owned(plan.Allocations)))
	if served < 3000 || len(plan.Unserved)+served != len(in.Nodes) || plan.Full {
		t.Errorf("%d nodes have slices and %d have none, of %d nodes; full: %t", served, len(plan.Unserved), len(in.Nodes), plan.Full)
	}
	wantSettled(t, in, plan)
}

func TestFull(t *testing.T) {
	for names, want := range map[string]bool{"": false, "a b c": false, "a b c d": true, "a b c d e": true} {
		if plan := Assign(Input{Cut: mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24"}), Nodes: nodes(names)}); plan.Full != want {
			t.Errorf("with nodes %q full is %t, want %t", names, plan.Full, want)
		}
	}
}
