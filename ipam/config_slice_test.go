package ipam

import (
	"fmt"
	"testing"
)

func sliceSizesOf(ranges []Range) []int {
	var sizes []int
	for _, r := range ranges {
		sizes = append(sizes, r.SliceSize)
	}
	return sizes
}

func TestSliceSizeOfEachRange(t *testing.T) {
	for _, test := range []struct{ says, ipam, want string }{
		{"none", `"range": "10.0.0.0/20", "ipRanges": [{"range": "fd00::/64"}]`, "[0 0]"},
		{"one for both", `"range": "10.0.0.0/20", "ipRanges": [{"range": "10.1.0.0/20"}], "node_slice_size": 24`, "[24 24]"},
		{"its own wins", `"range": "10.0.0.0/20", "ipRanges": [{"range": "fd00::/64", "node_slice_size": "/80"}], "node_slice_size": 24`, "[24 80]"},
		{"its own alone", `"range": "10.0.0.0/20", "ipRanges": [{"range": "fd00::/64", "nodeSliceSize": 80}]`, "[0 80]"},
		{"switched off for one", `"range": "10.0.0.0/20", "ipRanges": [{"range": "fd00::/64", "node_slice_size": 0}], "node_slice_size": 24`, "[24 0]"},
		{"without a top-level range", `"ipRanges": [{"range": "10.0.0.0/20", "node_slice_size": 24}, {"range": "fd00::/64", "node_slice_size": "80"}]`, "[24 80]"},
	} {
		cfg := configHost{env: inPod}.mustParse(t, test.ipam)
		wantEqual(t, test.says, fmt.Sprint(sliceSizesOf(cfg.Ranges)), test.want)
	}
}

func TestListsOfSlicesAreThoseOfRangesThatAreCut(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `"network_name": "n", "range": "10.0.0.0/20", "ipRanges": [{"range": "fd00::/64", "node_slice_size": 80}]`)
	lists := cfg.SliceLists()
	if len(lists) != 1 || lists[0].First || lists[0].Range.String() != "fd00::/64" {
		t.Errorf("got %v", lists)
	}
	cfg = configHost{env: inPod}.mustParse(t, `"network_name": "n", "range": "10.0.0.0/20", "node_slice_size": 24`)
	if lists := cfg.SliceLists(); len(lists) != 1 || !lists[0].First {
		t.Errorf("got %v", lists)
	}
}
