package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestBounds(t *testing.T) {
	for _, test := range []struct {
		says, text, start, end string
		first, last            string
		warnings               int
	}{
		{says: "host bits", text: "192.168.2.225/28", first: "192.168.2.225", last: "192.168.2.238"},
		{says: "host bits that are the last usable", text: "192.168.21.100/30", first: "192.168.21.101", last: "192.168.21.102"},
		{says: "a start", text: "192.168.2.200/24", start: "192.168.2.23", first: "192.168.2.23", last: "192.168.2.254"},
		{says: "a net inside an octet", text: "192.168.2.200/27", first: "192.168.2.193", last: "192.168.2.222"},
		{says: "start and end", text: "192.168.2.200/24", start: "192.168.2.50", end: "192.168.2.100", first: "192.168.2.50", last: "192.168.2.100"},
		{says: "start and end outside", text: "192.168.2.200/24", start: "192.168.1.150", end: "192.168.3.100", first: "192.168.2.1", last: "192.168.2.254", warnings: 2},
		{says: "one address", text: "192.168.2.200/24", start: "192.168.2.50", end: "192.168.2.50", first: "192.168.2.50", last: "192.168.2.50"},
		{says: "network and broadcast address", text: "10.0.0.0/29", start: "10.0.0.0", end: "10.0.0.7", first: "10.0.0.1", last: "10.0.0.6", warnings: 2},
		{says: "a start that ends in .0", text: "10.0.0.0/16", start: "10.0.1.0", first: "10.0.1.1", last: "10.0.255.254"},
		{says: "IPv6", text: "2001::0/116", first: "2001::1", last: "2001::ffe"},
		{says: "IPv6 of 32 bits", text: "fd:db8:abcd:12::/96", first: "fd:db8:abcd:12::1", last: "fd:db8:abcd:12::ffff:fffe"},
		{
			says: "IPv6 start and end", text: "2001:db8:abcd:12::/64", start: "2001:db8:abcd:12::50", end: "2001:db8:abcd:12::100",
			first: "2001:db8:abcd:12::50", last: "2001:db8:abcd:12::100",
		},
		{
			says: "IPv6 bounds in the middle", text: "2001:db8:480:603d::/64", start: "2001:db8:480:603d:304:403::", end: "2001:db8:480:603d:304:403:0:4",
			first: "2001:db8:480:603d:304:403::", last: "2001:db8:480:603d:304:403:0:4",
		},
		{says: "a start beyond 63 bits", text: "fd00::/64", start: "fd00::8000:0:0:1", first: "fd00::8000:0:0:1", last: "fd00::ffff:ffff:ffff:fffe"},

		{says: "two addresses", text: "10.0.0.0/31", first: "10.0.0.0", last: "10.0.0.1"},
		{says: "one address by mask", text: "10.0.0.0/32", first: "10.0.0.0", last: "10.0.0.0"},
		{says: "two IPv6 addresses", text: "fd00::2/127", first: "fd00::2", last: "fd00::3"},
		{says: "one IPv6 address", text: "fd00::2/128", first: "fd00::2", last: "fd00::2"},
		{says: "all of IPv4", text: "0.0.0.0/0", first: "0.0.0.1", last: "255.255.255.254"},
		{says: "all of IPv6", text: "::/0", first: "::1", last: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"},
		{says: "an end that ends in .0", text: "10.0.0.0/16", end: "10.0.2.0", first: "10.0.0.1", last: "10.0.1.255"},
		{says: "from .0 to .0", text: "10.0.0.0/16", start: "10.0.1.0", end: "10.0.2.0", first: "10.0.1.1", last: "10.0.1.255"},
		{says: "nothing but a .0", text: "10.0.0.0/16", start: "10.0.1.0", end: "10.0.1.0", first: "10.0.1.0", last: "10.0.1.0", warnings: 1},
		{says: "mapped and with leading zeros", text: "::ffff:010.0.0.0/104", start: "::ffff:10.0.0.9", first: "10.0.0.9", last: "10.255.255.254"},
		{says: "blanks", text: " 10.0.0.0/24 ", start: " 10.0.0.9 ", end: "  ", first: "10.0.0.9", last: "10.0.0.254"},

		{says: "start after end", text: "10.0.0.0/24", start: "10.0.0.9", end: "10.0.0.8", first: "10.0.0.9", last: "10.0.0.254", warnings: 1},
		{says: "bounds of the other family", text: "10.0.0.0/24", start: "fd00::1", end: "fd00::2", first: "10.0.0.1", last: "10.0.0.254", warnings: 2},
		{says: "IPv4 bounds in IPv6", text: "fd00::/120", start: "10.0.0.1", end: "10.0.0.2", first: "fd00::1", last: "fd00::fe", warnings: 2},
		{says: "bounds that do not parse", text: "10.0.0.0/24", start: "10.0.0.", end: "last", first: "10.0.0.1", last: "10.0.0.254", warnings: 2},

		{says: "first-last", text: "10.0.0.5-10.0.0.20/24", first: "10.0.0.5", last: "10.0.0.20"},
		{says: "first-last with blanks", text: " 10.0.0.5 - 10.0.0.20 / 24 ", first: "10.0.0.5", last: "10.0.0.20"},
		{says: "first-last in IPv6", text: "fd00::5-fd00::ff/64", first: "fd00::5", last: "fd00::ff"},
		{says: "first-last, narrowed", text: "10.0.0.5-10.0.0.20/24", start: "10.0.0.7", end: "10.0.0.9", first: "10.0.0.7", last: "10.0.0.9"},
		{says: "first-last, bounds beyond it", text: "10.0.0.5-10.0.0.20/24", start: "10.0.0.2", end: "10.0.0.30", first: "10.0.0.5", last: "10.0.0.20", warnings: 2},
		{says: "first-last, bounds beside it", text: "10.0.0.5-10.0.0.20/24", start: "10.0.0.30", end: "10.0.0.2", first: "10.0.0.5", last: "10.0.0.20", warnings: 2},
		{says: "first after last", text: "10.0.0.20-10.0.0.5/24", first: "10.0.0.20", last: "10.0.0.254", warnings: 1},
		{says: "the whole net as first-last", text: "10.0.0.0-10.0.0.255/24", first: "10.0.0.1", last: "10.0.0.254", warnings: 2},
	} {
		t.Run(test.says, func(t *testing.T) {
			r, warnings, err := ParseRange(RangeSpec{Range: test.text, Start: test.start, End: test.end})
			if err != nil {
				t.Fatal(err)
			}
			if r.First.String() != test.first || r.Last.String() != test.last {
				t.Errorf("from %s to %s, want %s to %s", r.First, r.Last, test.first, test.last)
			}
			if len(warnings) != test.warnings {
				t.Errorf("%d warnings, want %d: %q", len(warnings), test.warnings, warnings)
			}
		})
	}
}

func TestPrefixIsMasked(t *testing.T) {
	for text, want := range map[string]string{
		"192.168.2.225/28":              "192.168.2.224/28",
		"10.0.0.5-10.0.0.20/24":         "10.0.0.0/24",
		"2001:db8:0:5::7/64":            "2001:db8:0:5::/64",
		"::ffff:10.1.2.3/104":           "10.0.0.0/8",
		"10.0.0.1-::ffff:10.0.0.5/120 ": "10.0.0.0/24",
	} {
		if got := mustRange(t, RangeSpec{Range: text}).Prefix.String(); got != want {
			t.Errorf("%s has the prefix %s, want %s", text, got, want)
		}
	}
}

func TestDotZeroMayBeAllowed(t *testing.T) {
	spec := RangeSpec{Range: "10.0.0.0/16", Start: "10.0.1.0", End: "10.0.2.0", AllowDotZero: true}
	r := mustRange(t, spec)
	if got := r.String(); got != "10.0.1.0-10.0.2.0/16" {
		t.Errorf("the range is %s, want .0 at both ends", got)
	}
	if !r.Eligible(netip.MustParseAddr("10.0.2.0")) {
		t.Error("10.0.2.0 is not eligible")
	}
	if got := r.Size().String(); got != "257" {
		t.Errorf("size is %s, want 257", got)
	}
}

func TestBadRanges(t *testing.T) {
	for _, test := range []struct {
		says  string
		spec  RangeSpec
		names []string // what the message must contain
	}{
		{"nothing", RangeSpec{}, []string{"range"}},
		{"no prefix length", RangeSpec{Range: "10.0.0.1"}, []string{"range", `"10.0.0.1"`, "10.0.0.0/24"}},
		{"first-last without a length", RangeSpec{Range: "10.0.0.1-10.0.0.5"}, []string{"range", "prefix length"}},
		{"no address", RangeSpec{Range: "net/24"}, []string{"range", `"net"`}},
		{"length too long", RangeSpec{Range: "10.0.0.0/33"}, []string{"range", "from 0 to 32"}},
		{"first is no address", RangeSpec{Range: "x-10.0.0.5/24"}, []string{"range", `"x"`}},
		{"first is a CIDR", RangeSpec{Range: "10.0.0.1/24-10.0.0.5/24"}, []string{"range", `"10.0.0.1/24"`}},
		{"last is no address", RangeSpec{Range: "10.0.0.5-/24"}, []string{"range"}},
		{"first outside its net", RangeSpec{Range: "10.0.1.5-10.0.0.20/24"}, []string{"range", "10.0.1.5", "10.0.0.0/24"}},
		{"first of the other family", RangeSpec{Range: "fd00::1-10.0.0.20/24"}, []string{"range", "fd00::1", "10.0.0.0/24"}},
		{"in an entry", RangeSpec{Range: "10.0.0.1", Key: "ipRanges[2]"}, []string{"ipRanges[2].range:"}},
		{"exclude", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.1", "10.0.0.300"}}, []string{"exclude[1]", `"10.0.0.300"`}},
		{"exclude of an entry", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/33"}, Key: "ipRanges[0]"}, []string{"ipRanges[0].exclude[0]", "10.0.0.0/33"}},
		{"empty exclude", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{""}}, []string{"exclude[0]"}},
		{"exclude downwards", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.9-10.0.0.1"}}, []string{"exclude[0]", "10.0.0.9-10.0.0.1"}},
		{"exclude of two families", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.9-fd00::1"}}, []string{"exclude[0]", "10.0.0.9-fd00::1"}},
		{"half an exclude", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.9-"}}, []string{"exclude[0]", "10.0.0.9-"}},
		{"the other half", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"-10.0.0.9"}}, []string{"exclude[0]", "-10.0.0.9"}},
		{"gateway", RangeSpec{Range: "10.0.0.0/24", Gateway: "router"}, []string{"gateway", `"router"`}},
		{"gateway with a length", RangeSpec{Range: "10.0.0.0/24", Gateway: "10.0.0.1/24", Key: "ipRanges[1]"}, []string{"ipRanges[1].gateway", `"10.0.0.1/24"`}},
	} {
		t.Run(test.says, func(t *testing.T) {
			_, _, err := ParseRange(test.spec)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error is %v, want one that wraps ErrInvalid", err)
			}
			for _, name := range test.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("error %q does not name %s", err, name)
				}
			}
		})
	}
}

func TestWarningsNameKeyAndValue(t *testing.T) {
	_, warnings, err := ParseRange(RangeSpec{
		Range: "10.0.0.0/24", Start: "10.0.0.x", End: "10.0.1.5", Key: "ipRanges[1]",
	})
	if err != nil || len(warnings) != 2 {
		t.Fatalf("warnings %q, error %v, want two warnings", warnings, err)
	}
	for i, names := range [][]string{{"ipRanges[1].range_start", "10.0.0.x"}, {"ipRanges[1].range_end", "10.0.1.5", "10.0.0.1-10.0.0.254"}} {
		for _, name := range names {
			if !strings.Contains(warnings[i], name) {
				t.Errorf("warning %q does not name %s", warnings[i], name)
			}
		}
	}
}

func TestGateway(t *testing.T) {
	for _, test := range []struct{ says, text, gateway, next string }{
		{"inside", "10.0.0.0/24", "10.0.0.1", "10.0.0.2"},
		{"mapped", "10.0.0.0/24", "::ffff:10.0.0.1", "10.0.0.2"},
		{"outside", "10.0.0.0/24", "10.0.1.1", "10.0.0.1"},
		{"of the other family", "10.0.0.0/24", "fd00::1", "10.0.0.1"},
		{"link-local", "fd00::/64", "fe80::1", "fd00::1"},
	} {
		t.Run(test.says, func(t *testing.T) {
			r := mustRange(t, RangeSpec{Range: test.text, Gateway: test.gateway})
			if want := netip.MustParseAddr(test.gateway).Unmap(); r.Gateway != want {
				t.Errorf("gateway is %s, want %s", r.Gateway, want)
			}
			if got := Free(r, nil, 1); len(got) != 1 || got[0].String() != test.next {
				t.Errorf("next is %s, want %s", got, test.next)
			}
		})
	}
}

func TestReserveIsACopy(t *testing.T) {
	r := mustRange(t, RangeSpec{Range: "10.0.0.0/29", Exclude: []string{"10.0.0.3"}})
	outside := addrs(t, "10.0.0.77", "10.0.0.0", "10.0.0.7", "fd00::1")
	reserved := r.Reserve(append(outside, addrs(t, "10.0.0.1", "::ffff:10.0.0.2")...)...)
	if got, want := Free(reserved, nil, 9), addrs(t, "10.0.0.4", "10.0.0.5", "10.0.0.6"); !slices.Equal(got, want) {
		t.Errorf("free are %s, want %s", got, want)
	}
	if got := reserved.Excluded().String(); got != "3" {
		t.Errorf("%s are excluded, want 3", got)
	}
	if got, want := Free(r, nil, 1), addrs(t, "10.0.0.1"); !slices.Equal(got, want) {
		t.Errorf("in the range itself %s is next, want %s", got, want)
	}
	if got := r.Reserve(netip.Addr{}).Excluded().String(); got != "1" {
		t.Errorf("with the zero address reserved %s are excluded, want 1", got)
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		says  string
		spec  RangeSpec
		slice string
		want  string
	}{
		{"the first slice", RangeSpec{Range: "10.5.0.0/20"}, "10.5.0.0/24", "10.5.0.1-10.5.0.255/20"},
		{"a middle slice", RangeSpec{Range: "10.5.0.0/20"}, "10.5.1.0/24", "10.5.1.1-10.5.1.255/20"},
		{"a middle slice with .0", RangeSpec{Range: "10.5.0.0/20", AllowDotZero: true}, "10.5.1.0/24", "10.5.1.0-10.5.1.255/20"},
		{"the last slice", RangeSpec{Range: "10.5.0.0/20"}, "10.5.15.0/24", "10.5.15.1-10.5.15.254/20"},
		{"a slice inside an octet", RangeSpec{Range: "10.5.0.0/20"}, "10.5.0.64/26", "10.5.0.64-10.5.0.127/20"},
		{"host bits in the slice", RangeSpec{Range: "10.5.0.0/20"}, "10.5.0.99/26", "10.5.0.64-10.5.0.127/20"},
		{"bounds that cut the slice", RangeSpec{Range: "10.5.0.0/20", Start: "10.5.0.70", End: "10.5.0.80"}, "10.5.0.64/26", "10.5.0.70-10.5.0.80/20"},
		{"bounds that miss the slice", RangeSpec{Range: "10.5.0.0/20", Start: "10.5.8.0"}, "10.5.0.64/26", ""},
		{"the whole range", RangeSpec{Range: "10.5.0.0/20"}, "10.5.0.0/20", "10.5.0.0/20"},
		{"more than the range", RangeSpec{Range: "10.5.0.0/20"}, "10.0.0.0/8", "10.5.0.0/20"},
		{"elsewhere", RangeSpec{Range: "10.5.0.0/20"}, "10.6.0.0/24", ""},
		{"the other family", RangeSpec{Range: "10.5.0.0/20"}, "fd00::/64", ""},
		{"nothing but a .0", RangeSpec{Range: "10.5.0.0/20"}, "10.5.1.0/32", ""},
		{"nothing but the network address", RangeSpec{Range: "10.5.0.0/20", AllowDotZero: true}, "10.5.0.0/32", ""},
		{"IPv6", RangeSpec{Range: "fd00::/48"}, "fd00:0:0:1::/64", "fd00:0:0:1::-fd00::1:ffff:ffff:ffff:ffff/48"},
	} {
		t.Run(test.says, func(t *testing.T) {
			r := mustRange(t, test.spec)
			got, ok := r.Within(netip.MustParsePrefix(test.slice))
			if ok != (test.want != "") {
				t.Fatalf("something is left: %t, %s, want %q", ok, got, test.want)
			}
			if ok && (got.String() != test.want || got.Prefix != r.Prefix) {
				t.Errorf("the slice is %s, want %s", got, test.want)
			}
		})
	}
}

func TestSliceKeepsExcludes(t *testing.T) {
	r := mustRange(t, RangeSpec{Range: "10.5.0.0/20", Exclude: []string{"10.5.0.0-10.5.1.9", "10.5.4.0/24"}, Gateway: "10.5.1.10"})
	part, ok := r.Within(netip.MustParsePrefix("10.5.1.0/24"))
	if !ok {
		t.Fatal("nothing is left")
	}
	if got := Free(part, nil, 1); len(got) != 1 || got[0].String() != "10.5.1.11" {
		t.Errorf("next is %s, want 10.5.1.11", got)
	}
	if size, excluded := part.Size().String(), part.Excluded().String(); size != "255" || excluded != "10" {
		t.Errorf("%s of %s are excluded, want 10 of 255", excluded, size)
	}
}

func TestSizes(t *testing.T) {
	for _, test := range []struct {
		says           string
		spec           RangeSpec
		size, excluded string
	}{
		{"one octet", RangeSpec{Range: "10.0.0.0/24"}, "254", "0"},
		{"two addresses", RangeSpec{Range: "10.0.0.0/31"}, "2", "0"},
		{"one address", RangeSpec{Range: "10.0.0.0/32"}, "1", "0"},
		{"without .0", RangeSpec{Range: "10.0.0.0/16"}, "65279", "0"},
		{"with .0", RangeSpec{Range: "10.0.0.0/16", AllowDotZero: true}, "65534", "0"},
		{"a .0 excluded counts once", RangeSpec{Range: "10.0.0.0/16", Exclude: []string{"10.0.1.0"}}, "65279", "0"},
		{"an octet excluded", RangeSpec{Range: "10.0.0.0/16", Exclude: []string{"10.0.1.0/24"}}, "65279", "255"},
		{"overlapping excludes", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.4/30", "10.0.0.6-10.0.0.9", "10.0.0.7"}}, "254", "6"},
		{"exclude beyond the range", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/8"}}, "254", "254"},
		{"exclude outside", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.1.0/24", "fd00::/8", "10.0.0.255"}}, "254", "0"},
		{"gateway in an exclude", RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/30"}, Gateway: "10.0.0.1"}, "254", "3"},
		{"exclude outside the bounds", RangeSpec{Range: "10.0.0.0/24", Start: "10.0.0.9", Exclude: []string{"10.0.0.0/29"}}, "246", "0"},
		{"all of IPv4", RangeSpec{Range: "0.0.0.0/0"}, "4278190079", "0"},
		{"2^64", RangeSpec{Range: "fd00::/64"}, "18446744073709551614", "0"},
		{"half of 2^64", RangeSpec{Range: "fd00::/64", Exclude: []string{"fd00::/65"}}, "18446744073709551614", "9223372036854775807"},
		{"all of IPv6", RangeSpec{Range: "::/0", Exclude: []string{"::/0"}}, "340282366920938463463374607431768211454", "340282366920938463463374607431768211454"},
	} {
		t.Run(test.says, func(t *testing.T) {
			r := mustRange(t, test.spec)
			if got := r.Size().String(); got != test.size {
				t.Errorf("size is %s, want %s", got, test.size)
			}
			if got := r.Excluded().String(); got != test.excluded {
				t.Errorf("%s are excluded, want %s", got, test.excluded)
			}
		})
	}
}

func TestRangeInWords(t *testing.T) {
	for _, test := range []struct {
		spec RangeSpec
		want string
	}{
		{RangeSpec{Range: "10.0.0.7/24"}, "10.0.0.0/24"},
		{RangeSpec{Range: "10.0.0.5-10.0.0.20/24"}, "10.0.0.5-10.0.0.20/24"},
		{RangeSpec{Range: "10.0.0.0/24", Start: "10.0.0.1", End: "10.0.0.254"}, "10.0.0.0/24"},
		{RangeSpec{Range: "10.0.0.0/24", Start: "10.0.0.9", End: "10.0.0.9"}, "10.0.0.9-10.0.0.9/24"},
		{RangeSpec{Range: "10.0.0.0/31"}, "10.0.0.0/31"},
		{RangeSpec{Range: "fd00::/64", End: "fd00::9"}, "fd00::1-fd00::9/64"},
	} {
		if got := mustRange(t, test.spec).String(); got != test.want {
			t.Errorf("%+v is called %s, want %s", test.spec, got, test.want)
		}
	}
}

func TestZeroRangeHasNothing(t *testing.T) {
	var r Range
	if r.Contains(netip.Addr{}) || r.Eligible(netip.Addr{}) || Free(r, nil, 1) != nil || r.Size().Sign() != 0 || r.Excluded().Sign() != 0 {
		t.Errorf("the zero range has addresses")
	}
	_ = r.String() // must not panic: it stands in messages
}

func mustRange(t *testing.T, spec RangeSpec) Range {
	t.Helper()
	r, _, err := ParseRange(spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func addrs(t *testing.T, texts ...string) []netip.Addr {
	t.Helper()
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func FuzzParseRange(f *testing.F) {
	f.Add("10.0.0.0/24", "10.0.0.5", "10.0.0.9", "10.0.0.6/31", "10.0.0.1", false)
	f.Add("10.0.0.5-10.0.2.0/16", "", "10.0.1.0", "10.0.0.0-10.0.0.8", "", true)
	f.Add("fd00::/64", "fd00::8000:0:0:1", "", "fd00::/65", "fe80::1", false)
	f.Add("::ffff:1.2.3.4/120", "-", "%", "/", " ", false)
	f.Add("-/", "", "", "-", "", false)
	f.Add("255.255.255.248/29", "", "", "255.255.255.255", "", true)
	f.Fuzz(func(t *testing.T, text, start, end, exclude, gateway string, dotZero bool) {
		spec := RangeSpec{Range: text, Start: start, End: end, Exclude: []string{exclude}, Gateway: gateway, AllowDotZero: dotZero}
		r, _, err := ParseRange(spec)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v does not wrap ErrInvalid", err)
			}
			return
		}
		if r.Prefix != r.Prefix.Masked() || !r.Contains(r.First) || !r.Contains(r.Last) || r.Last.Less(r.First) {
			t.Errorf("%+v is %+v", spec, r)
		}
		if r.Excluded().Cmp(r.Size()) > 0 {
			t.Errorf("%s of %s are excluded", r.Excluded(), r.Size())
		}
		again, warnings, err := ParseRange(RangeSpec{Range: r.String(), AllowDotZero: dotZero})
		if err != nil || again.First != r.First || again.Last != r.Last || len(warnings) > 0 && r.Size().Sign() > 0 {
			t.Errorf("%s reads as %s, %q, %v", r, again, warnings, err)
		}
		for _, a := range Free(r, nil, 3) {
			if !r.Eligible(a) {
				t.Errorf("%s is free and not eligible in %s", a, r)
			}
		}
	})
}
