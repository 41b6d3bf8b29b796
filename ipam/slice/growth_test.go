package slice

import (
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestWanted(t *testing.T) {
	for _, test := range []struct {
		says  string
		loads []Load
		want  int
	}{
		{"a first one", nil, 1},
		{"one that is empty", []Load{{64, 0}}, 1},
		{"one with an eighth left", []Load{{64, 56}}, 1},
		{"one with less than an eighth left", []Load{{64, 57}}, 2},
		{"one that is full", []Load{{2, 2}}, 2},
		{"more entries than addresses", []Load{{2, 5}}, 2},
		{"a new one is kept", []Load{{64, 57}, {64, 0}}, 2},
		{"an empty one is kept while the others are nearly full", []Load{{64, 49}, {64, 0}}, 2},
		{"an empty one goes when the others have room", []Load{{64, 48}, {64, 0}}, 1},
		{"one in use stays", []Load{{64, 0}, {64, 1}}, 2},
		{"several empty ones go", []Load{{64, 10}, {64, 0}, {64, 0}}, 1},
		{"holes count", []Load{{64, 40}, {64, 64}}, 2},
		{"huge ones", []Load{{maxCapacity, 7}, {maxCapacity, 0}, {maxCapacity, 0}, {maxCapacity, 0}, {maxCapacity, 0}}, 1},
	} {
		if got := Wanted(test.loads); got != test.want {
			t.Errorf("%s: %v asks for %d, want %d", test.says, test.loads, got, test.want)
		}
	}
}

func TestCapacity(t *testing.T) {
	cut := mustCut(t, 26, ipam.RangeSpec{Range: "10.0.0.0/24", Exclude: []string{"10.0.0.64/27"}, End: "10.0.0.140"})
	for slice, want := range map[string]int{"10.0.0.0/26": 63, "10.0.0.64/26": 32, "10.0.0.128/26": 13, "10.0.0.192/26": 0} {
		if got := cut.Capacity(netip.MustParsePrefix(slice)); got != want {
			t.Errorf("%s has %d addresses, want %d", slice, got, want)
		}
	}
	wide := mustCut(t, 64, ipam.RangeSpec{Range: "fd00::/48"})
	if got := wide.Capacity(netip.MustParsePrefix("fd00::/64")); got != maxCapacity {
		t.Errorf("an IPv6 slice has %d addresses", got)
	}
}
