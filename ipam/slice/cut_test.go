package slice

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func mustRange(t *testing.T, spec ipam.RangeSpec) ipam.Range {
	t.Helper()
	r, _, err := ipam.ParseRange(spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustCut(t *testing.T, size int, specs ...ipam.RangeSpec) Cut {
	t.Helper()
	var ranges []ipam.Range
	for _, spec := range specs {
		ranges = append(ranges, mustRange(t, spec))
	}
	c, err := New(size, ranges[0], ranges[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// usable lists up to n slices of use.
func usable(c Cut, from netip.Addr, n int) string {
	var texts []string
	for s := range c.Usable(from) {
		if len(texts) == n {
			break
		}
		texts = append(texts, s.String())
	}
	return strings.Join(texts, " ")
}

func TestUsableSlices(t *testing.T) {
	const all = 100
	for _, test := range []struct {
		says string
		spec ipam.RangeSpec
		size int
		n    int
		want string
	}{
		{"each quarter", ipam.RangeSpec{Range: "10.0.0.0/24"}, 26, all, "10.0.0.0/26 10.0.0.64/26 10.0.0.128/26 10.0.0.192/26"},
		{"host bits in the range", ipam.RangeSpec{Range: "10.0.0.77/24"}, 25, all, "10.0.0.0/25 10.0.0.128/25"},
		{"the whole range", ipam.RangeSpec{Range: "10.0.0.0/24"}, 24, all, "10.0.0.0/24"},
		{"the first of many", ipam.RangeSpec{Range: "10.0.0.0/8"}, 27, 2, "10.0.0.0/27 10.0.0.32/27"},
		{"the first of billions", ipam.RangeSpec{Range: "2001:db8::/32"}, 64, 2, "2001:db8::/64 2001:db8:0:1::/64"},
		{"the first of them all", ipam.RangeSpec{Range: "::/0"}, 128, 2, "::1/128 ::2/128"},
		{"an exclude that passes over billions", ipam.RangeSpec{Range: "2001:db8::/30", Exclude: []string{"2001:db8::/32"}}, 64, 1, "2001:db9::/64"},
		{"a start inside", ipam.RangeSpec{Range: "10.0.0.0/24", Start: "10.0.0.127"}, 26, all, "10.0.0.64/26 10.0.0.128/26 10.0.0.192/26"},
		{"an end inside", ipam.RangeSpec{Range: "10.0.0.0/24", End: "10.0.0.64"}, 26, all, "10.0.0.0/26 10.0.0.64/26"},
		{"first-last", ipam.RangeSpec{Range: "10.0.0.70-10.0.0.80/24"}, 26, all, "10.0.0.64/26"},
		{"one wholly excluded", ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.64/26"}}, 26, all, "10.0.0.0/26 10.0.0.128/26 10.0.0.192/26"},
		{"excluded piece by piece", ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/27", "10.0.0.32-10.0.0.63"}}, 26, all, "10.0.0.64/26 10.0.0.128/26 10.0.0.192/26"},
		{"all but one address excluded", ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.64-10.0.0.126"}}, 26, 2, "10.0.0.0/26 10.0.0.64/26"},
		{"all of it excluded", ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.0/24"}}, 26, all, ""},
		{"network and broadcast address", ipam.RangeSpec{Range: "10.0.0.0/30"}, 32, all, "10.0.0.1/32 10.0.0.2/32"},
		{"a gateway", ipam.RangeSpec{Range: "10.0.0.0/29", Gateway: "10.0.0.3"}, 32, 3, "10.0.0.1/32 10.0.0.2/32 10.0.0.4/32"},
		{"network address and gateway", ipam.RangeSpec{Range: "10.0.0.0/29", Gateway: "10.0.0.1"}, 31, all, "10.0.0.2/31 10.0.0.4/31 10.0.0.6/31"},
		{"the .0 in the middle", ipam.RangeSpec{Range: "10.0.0.0/23", Start: "10.0.0.255", End: "10.0.1.1"}, 32, all, "10.0.0.255/32 10.0.1.1/32"},
		{"the .0 allowed", ipam.RangeSpec{Range: "10.0.0.0/23", Start: "10.0.0.255", End: "10.0.1.1", AllowDotZero: true}, 32, all, "10.0.0.255/32 10.0.1.0/32 10.0.1.1/32"},
		{"two addresses", ipam.RangeSpec{Range: "10.0.0.0/31"}, 32, all, "10.0.0.0/32 10.0.0.1/32"},
		{"the end of IPv4", ipam.RangeSpec{Range: "255.255.255.0/24", Start: "255.255.255.200"}, 26, all, "255.255.255.192/26"},
		{"the end of IPv6", ipam.RangeSpec{Range: "ffff::/16", Start: "ffff:f000::"}, 18, all, "ffff:c000::/18"},
	} {
		t.Run(test.says, func(t *testing.T) {
			c := mustCut(t, test.size, test.spec)
			if got := usable(c, netip.Addr{}, test.n); got != test.want {
				t.Errorf("slices are %s, want %s", got, test.want)
			}
		})
	}
}

func TestUsableSlicesFromAnAddress(t *testing.T) {
	c := mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24"})
	for from, want := range map[string]string{
		"9.0.0.0": "10.0.0.0/26", "10.0.0.0": "10.0.0.0/26", "10.0.0.63": "10.0.0.0/26", "10.0.0.64": "10.0.0.64/26",
		"10.0.0.254": "10.0.0.192/26", "10.0.1.0": "", "fd00::": "",
	} {
		if got := usable(c, netip.MustParseAddr(from), 1); got != want {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
	}
}

// Definitions that share a network may exclude different addresses of it.
func TestSlicesOfUseToAllViews(t *testing.T) {
	c := mustCut(t, 26,
		ipam.RangeSpec{Range: "10.0.0.0/23", Exclude: []string{"10.0.0.0/26", "10.0.1.0/26"}},
		ipam.RangeSpec{Range: "10.0.0.0/23", Exclude: []string{"10.0.0.64/26"}, End: "10.0.1.200"},
		ipam.RangeSpec{Range: "10.0.0.0/23", Exclude: []string{"10.0.0.128/26"}})
	if got, want := usable(c, netip.Addr{}, 9), "10.0.0.192/26 10.0.1.64/26 10.0.1.128/26 10.0.1.192/26"; got != want {
		t.Errorf("slices are %s, want %s", got, want)
	}
	if c.Serves(netip.MustParsePrefix("10.0.0.64/26")) {
		t.Error("a slice that one view excludes is of use")
	}
}

func TestViewsThatNeverAgree(t *testing.T) {
	c := mustCut(t, 64,
		ipam.RangeSpec{Range: "2001:db8::/32", End: "2001:db8:0fff::"},
		ipam.RangeSpec{Range: "2001:db8::/32", Start: "2001:db8:1000::"})
	if got := usable(c, netip.Addr{}, 1); got != "" {
		t.Errorf("%s is of use", got)
	}
}

func TestSlicesByNumber(t *testing.T) {
	big := ipam.Uint128{Hi: 1 << 63}
	for _, test := range []struct {
		spec  string
		size  int
		count string
		at    map[ipam.Uint128]string
	}{
		{"10.5.0.0/20", 24, "16", map[ipam.Uint128]string{{}: "10.5.0.0/24", {Lo: 15}: "10.5.15.0/24", {Lo: 16}: "", {Lo: 1 << 24}: "", big: ""}},
		{"10.0.0.0/8", 27, "524288", map[ipam.Uint128]string{{Lo: 524287}: "10.255.255.224/27", {Lo: 524288}: ""}},
		{"0.0.0.0/0", 1, "2", map[ipam.Uint128]string{{Lo: 1}: "128.0.0.0/1", {Lo: 2}: ""}},
		{"0.0.0.0/0", 0, "1", map[ipam.Uint128]string{{}: "0.0.0.0/0", {Lo: 1}: ""}},
		{"fd00::/48", 64, "65536", map[ipam.Uint128]string{{Lo: 0x1234}: "fd00:0:0:1234::/64", {Lo: 65536}: ""}},
		{"fd00::/32", 64, "4294967296", map[ipam.Uint128]string{{Lo: 1<<32 - 1}: "fd00:0:ffff:ffff::/64", {Lo: 1 << 32}: ""}},
		{"fd00::/32", 128, "79228162514264337593543950336", map[ipam.Uint128]string{{Hi: 1, Lo: 2}: "fd00:0:0:1::2/128", {Hi: 1 << 32}: ""}},
		{"::/0", 128, "340282366920938463463374607431768211456", map[ipam.Uint128]string{big: "8000::/128"}},
		{"::/0", 1, "2", map[ipam.Uint128]string{{Lo: 1}: "8000::/1", {Lo: 2}: "", {Lo: 1 << 63}: ""}},
	} {
		c := mustCut(t, test.size, ipam.RangeSpec{Range: test.spec})
		if got := c.Count().String(); got != test.count {
			t.Errorf("%s has %s slices of /%d, want %s", test.spec, got, test.size, test.count)
		}
		for i, want := range test.at {
			p, ok := c.At(i)
			if ok != (want != "") || ok && p.String() != want {
				t.Errorf("slice %s of %s is %s (%t), want %q", i, test.spec, p, ok, want)
			}
		}
	}
}

func TestHas(t *testing.T) {
	c := mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.64/26"}})
	for text, want := range map[string]bool{
		"10.0.0.0/26": true, "10.0.0.192/26": true,
		"10.0.0.64/26": false, "10.0.0.1/26": false, "10.0.0.0/25": false, "10.0.0.0/27": false, "10.0.1.0/26": false, "fd00::/26": false,
	} {
		if got := c.Has(netip.MustParsePrefix(text)); got != want {
			t.Errorf("%s is a slice: %t, want %t", text, got, want)
		}
	}
	if c.Has(netip.Prefix{}) {
		t.Error("the zero prefix is a slice")
	}
}

func TestZeroCutHasNothing(t *testing.T) {
	var c Cut
	_, at := c.At(ipam.Uint128{})
	if c.Count().Sign() != 0 || at || c.Serves(netip.MustParsePrefix("10.0.0.0/24")) || usable(c, netip.Addr{}, 1) != "" || c.Prefix().IsValid() {
		t.Error("the zero Cut has slices")
	}
}

func TestImpossibleSizes(t *testing.T) {
	for _, test := range []struct {
		spec  string
		size  int
		names []string
	}{
		{"192.168.2.0/24", 22, []string{`"/22"`, "192.168.2.0/24", `use "/24" to "/32"`}},
		{"192.168.2.0/24", 33, []string{`"/33"`, `use "/24" to "/32"`}},
		{"192.168.2.0/24", -1, []string{`"/-1"`}},
		{"fd00::/64", 26, []string{`"/26"`, "fd00::/64", `use "/64" to "/128"`}},
		{"fd00::/64", 129, []string{`"/129"`}},
	} {
		_, err := New(test.size, mustRange(t, ipam.RangeSpec{Range: test.spec}))
		if !errors.Is(err, ipam.ErrInvalid) {
			t.Errorf("%s by %d: error is %v, want one that wraps ErrInvalid", test.spec, test.size, err)
			continue
		}
		for _, name := range append(test.names, "node_slice_size") {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("error %q does not name %s", err, name)
			}
		}
	}
}

func TestViewsOfTwoNetworks(t *testing.T) {
	_, err := New(26, mustRange(t, ipam.RangeSpec{Range: "10.0.0.0/24"}), mustRange(t, ipam.RangeSpec{Range: "10.0.0.0/23"}))
	if !errors.Is(err, ipam.ErrInvalid) || !strings.Contains(err.Error(), "10.0.0.0/23") {
		t.Errorf("error is %v", err)
	}
}

// TestUsableSlicesMatchTheModel compares with asking every slice, and that with
// asking every address.
func TestUsableSlicesMatchTheModel(t *testing.T) {
	const scenarios = 300
	some := 0
	for seed := range uint64(scenarios) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		base, width, dotZero := netip.MustParseAddr("10.0.3.0"), 32, rnd.IntN(2) == 0
		if rnd.IntN(2) == 0 {
			base, width = netip.MustParseAddr("fd00::300"), 128
		}
		length := width - 1 - rnd.IntN(9)
		near := func() string {
			a, _ := ipam.AddOffset(base, ipam.Uint128{Lo: rnd.Uint64N(1 << (width - length))})
			return a.String()
		}
		var specs []ipam.RangeSpec
		for range 1 + rnd.IntN(3) {
			spec := ipam.RangeSpec{Range: fmt.Sprintf("%s/%d", base, length), AllowDotZero: dotZero}
			if rnd.IntN(2) == 0 {
				spec.Start = near()
			}
			if rnd.IntN(2) == 0 {
				spec.Gateway = near()
			}
			for range rnd.IntN(4) {
				spec.Exclude = append(spec.Exclude, fmt.Sprintf("%s/%d", near(), width-rnd.IntN(width-length+1)))
			}
			specs = append(specs, spec)
		}
		size := length + rnd.IntN(width-length+1)
		c := mustCut(t, size, specs...)
		var want []string
		for i := uint64(0); ; i++ {
			p, ok := c.At(ipam.Uint128{Lo: i})
			if !ok {
				break
			}
			if serves(t, specs, p) != c.Serves(p) || c.Serves(p) != c.Has(p) {
				t.Fatalf("seed %d: %+v: %s is of use: %t", seed, specs, p, c.Serves(p))
			}
			if c.Serves(p) {
				want = append(want, p.String())
			}
		}
		some += len(want)
		if got := usable(c, netip.Addr{}, 1<<20); got != strings.Join(want, " ") {
			t.Fatalf("seed %d: %+v by %d: slices are %s, want %s", seed, specs, size, got, want)
		}
	}
	if some < scenarios {
		t.Errorf("only %d slices were of use", some)
	}
}

// serves asks every address of a slice.
func serves(t *testing.T, specs []ipam.RangeSpec, p netip.Prefix) bool {
	return !slices.ContainsFunc(specs, func(spec ipam.RangeSpec) bool {
		r := mustRange(t, spec)
		for a := p.Addr(); a.IsValid() && p.Contains(a); a = a.Next() {
			if r.Eligible(a) {
				return false
			}
		}
		return true
	})
}
