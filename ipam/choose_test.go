package ipam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestNextAddress(t *testing.T) {
	for _, test := range []struct {
		says    string
		spec    RangeSpec
		held    string // addresses, or "all"
		exclude string
		free    string // the next ones in order; then it is exhausted if there are fewer than 9
	}{
		{
			says: "an exclude at the start", spec: RangeSpec{Range: "192.168.0.0/29"},
			exclude: "192.168.0.0/30", free: "192.168.0.4 192.168.0.5 192.168.0.6",
		},
		{
			says: "excludes that touch, in order", spec: RangeSpec{Range: "192.168.0.0/28"},
			exclude: "192.168.0.0/30 192.168.0.4/30 192.168.0.6/31 192.168.0.8/31",
			free:    "192.168.0.10 192.168.0.11 192.168.0.12 192.168.0.13 192.168.0.14",
		},
		{
			says: "excludes that touch, out of order", spec: RangeSpec{Range: "192.168.0.0/28"},
			exclude: "192.168.0.0/30 192.168.0.6/31 192.168.0.8/31 192.168.0.4/30",
			free:    "192.168.0.10 192.168.0.11 192.168.0.12 192.168.0.13 192.168.0.14",
		},
		{
			says: "excludes that touch, backwards", spec: RangeSpec{Range: "192.168.0.0/28"},
			exclude: "192.168.0.8/31 192.168.0.6/31 192.168.0.4/30 192.168.0.0/30",
			free:    "192.168.0.10 192.168.0.11 192.168.0.12 192.168.0.13 192.168.0.14",
		},
		{
			says: "a hole between holders", spec: RangeSpec{Range: "192.168.0.0/28", Start: "192.168.0.1", End: "192.168.0.6"},
			held: "192.168.0.1 192.168.0.2 192.168.0.5", free: "192.168.0.3 192.168.0.4 192.168.0.6",
		},
		{
			says: "a hole between holders, first-last", spec: RangeSpec{Range: "192.168.0.1-192.168.0.6/28"},
			held: "192.168.0.1 192.168.0.2 192.168.0.5", free: "192.168.0.3 192.168.0.4 192.168.0.6",
		},
		{
			says: "held and excluded", spec: RangeSpec{Range: "192.168.0.0/28", Start: "192.168.0.1", End: "192.168.0.6"},
			held: "192.168.0.1 192.168.0.2 192.168.0.3", exclude: "192.168.0.4/30",
		},
		{
			says: "excludes with host bits", spec: RangeSpec{Range: "192.168.2.224/28"},
			exclude: "192.168.2.229/30 192.168.2.236/32",
			free: "192.168.2.225 192.168.2.226 192.168.2.227 192.168.2.232 192.168.2.233 192.168.2.234 " +
				"192.168.2.235 192.168.2.237 192.168.2.238",
		},
		{
			says: "a huge exclude", spec: RangeSpec{Range: "2001:db8::/30"},
			exclude: "2001:db8::/32", free: "2001:db9:: 2001:db9::1 2001:db9::2 2001:db9::3 2001:db9::4 " +
				"2001:db9::5 2001:db9::6 2001:db9::7 2001:db9::8",
		},
		{says: "the end of IPv4 in use", spec: RangeSpec{Range: "255.255.255.248/29"}, held: "all"},
		{says: "the end of IPv6 in use", spec: RangeSpec{Range: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125"}, held: "all"},
		{says: "the end of IPv4 excluded", spec: RangeSpec{Range: "255.255.255.248/29"}, exclude: "255.255.255.248/29"},
		{says: "the end of IPv6 excluded", spec: RangeSpec{Range: "::/0"}, exclude: "::/0"},
		{says: "the last address of IPv4", spec: RangeSpec{Range: "255.255.255.254/31"}, free: "255.255.255.254 255.255.255.255"},
		{
			says: "the last address of IPv6", spec: RangeSpec{Range: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"},
			free: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		},
		{
			says: "a .0 in the middle, a .255 before it", spec: RangeSpec{Range: "10.0.0.254-10.0.1.2/16"},
			free: "10.0.0.254 10.0.0.255 10.0.1.1 10.0.1.2",
		},
		{
			says: "a .0 that is allowed", spec: RangeSpec{Range: "10.0.0.254-10.0.1.2/16", AllowDotZero: true},
			free: "10.0.0.254 10.0.0.255 10.0.1.0 10.0.1.1 10.0.1.2",
		},
		{says: "nothing but a .0", spec: RangeSpec{Range: "10.0.1.0-10.0.1.0/16"}},
		{says: "two addresses, .0 one of them", spec: RangeSpec{Range: "10.0.0.0/31"}, free: "10.0.0.0 10.0.0.1"},
		{says: "one address, a .0", spec: RangeSpec{Range: "10.0.0.0/32"}, free: "10.0.0.0"},
		{says: "IPv6 has no .0", spec: RangeSpec{Range: "fd00::100-fd00::101/64"}, free: "fd00::100 fd00::101"},
		{
			says: "the gateway", spec: RangeSpec{Range: "10.0.0.0/29", Gateway: "10.0.0.1"},
			held: "10.0.0.3", free: "10.0.0.2 10.0.0.4 10.0.0.5 10.0.0.6",
		},
		{
			says: "all three ways to write an exclude", spec: RangeSpec{Range: "10.0.0.0/28"},
			exclude: "10.0.0.1 10.0.0.2/31 10.0.0.5-10.0.0.13", free: "10.0.0.4 10.0.0.14",
		},
	} {
		t.Run(test.says, func(t *testing.T) {
			test.spec.Exclude = strings.Fields(test.exclude)
			r := mustRange(t, test.spec)
			held := func(a netip.Addr) bool {
				return test.held == "all" || slices.Contains(strings.Fields(test.held), a.String())
			}
			want := addrs(t, strings.Fields(test.free)...)
			if got := Free(r, held, 9); !slices.Equal(got, want) {
				t.Errorf("free are %s, want %s", got, want)
			}
			if got := Free(r, held, 1); !slices.Equal(got, want[:min(1, len(want))]) {
				t.Errorf("next is %s, want the first of %s", got, want)
			}
		})
	}
}

func TestFreeAsksForNoMoreThanItMeets(t *testing.T) {
	r := mustRange(t, RangeSpec{Range: "2001:db8::/30", Exclude: []string{"2001:db8::/32", "2001:db9::8/125"}})
	asked := 0
	got := Free(r, func(netip.Addr) bool { asked++; return asked <= 10 }, 2)
	if want := addrs(t, "2001:db9::12", "2001:db9::13"); !slices.Equal(got, want) {
		t.Errorf("free are %s, want %s", got, want)
	}
	if asked != 12 {
		t.Errorf("asked for %d addresses, want the 10 held and the 2 answered", asked)
	}
	if got := Free(r, nil, 0); got != nil {
		t.Errorf("asked for none and got %s", got)
	}
}
