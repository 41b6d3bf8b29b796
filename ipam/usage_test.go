package ipam

import (
	"net/netip"
	"testing"
)

func TestUsage(t *testing.T) {
	slice := PoolID{Node: "n", Range: netip.MustParsePrefix("10.0.0.0/26")}
	for name, test := range map[string]struct {
		id      PoolID
		ranges  []RangeSpec
		held    []string
		total   string
		exclude string
		free    string
	}{
		"nothing known":            {pool("10.0.0.0/24"), nil, []string{"10.0.0.1"}, "254", "0", "253"},
		"IPv6 exact":               {pool("fd00::/64"), nil, []string{"fd00::1"}, "18446744073709551614", "0", "18446744073709551613"},
		"whole IPv6":               {pool("::/0"), nil, nil, "340282366920938463463374607431768211454", "0", "340282366920938463463374607431768211454"},
		"one address":              {pool("10.0.0.0/32"), nil, nil, "1", "0", "1"},
		"no .0":                    {pool("10.0.0.0/22"), nil, nil, "1019", "0", "1019"},
		"slice in full":            {slice, nil, nil, "63", "0", "63"},
		"defined":                  {pool("10.0.0.0/24"), []RangeSpec{{Range: "10.0.0.0/24", Start: "10.0.0.10", End: "10.0.0.19", Exclude: []string{"10.0.0.12/31"}, Gateway: "10.0.0.19"}}, []string{"10.0.0.10", "10.0.0.13"}, "10", "3", "6"},
		"two definitions":          {pool("10.0.0.0/24"), []RangeSpec{{Range: "10.0.0.0/24", End: "10.0.0.9"}, {Range: "10.0.0.0/24", Start: "10.0.0.8", End: "10.0.0.12", Exclude: []string{"10.0.0.9", "10.0.0.12"}}}, []string{"10.0.0.9"}, "12", "1", "10"},
		"held outside the bounds":  {pool("10.0.0.0/24"), []RangeSpec{{Range: "10.0.0.0/24", End: "10.0.0.2"}}, []string{"10.0.0.77"}, "2", "0", "2"},
		"one allows .0, all count": {pool("10.0.0.0/23"), []RangeSpec{{Range: "10.0.0.0/23", AllowDotZero: true}}, nil, "510", "0", "510"},
		"full":                     {pool("10.0.0.0/30"), nil, []string{"10.0.0.1", "10.0.0.2"}, "2", "0", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Pool{ID: test.id, Records: map[netip.Addr]Record{}}
			for _, a := range test.held {
				p.Records[netip.MustParseAddr(a)] = Record{ContainerID: "c"}
			}
			var ranges []Range
			for _, spec := range test.ranges {
				r, _, err := ParseRange(spec)
				if err != nil {
					t.Fatal(err)
				}
				ranges = append(ranges, r)
			}
			got := UsageOf(p, ranges...)
			if got.Total.String() != test.total || got.Excluded.String() != test.exclude || got.Free.String() != test.free || got.Used != len(test.held) {
				t.Errorf("total %s excluded %s free %s used %d, want %s %s %s %d", got.Total, got.Excluded, got.Free, got.Used,
					test.total, test.exclude, test.free, len(test.held))
			}
		})
	}
}

func pool(cidr string) PoolID { return PoolID{Range: netip.MustParsePrefix(cidr)} }

func TestRangesOfAPool(t *testing.T) {
	cfg, err := ParseConfig(Sources{Stdin: []byte(`{"ipam": {"type": "whereabouts", "datastore": "local", "node_slice_size": "/26",
		"range": "10.0.0.0/24", "range_end": "10.0.0.70", "ipRanges": [{"range": "10.0.1.0/24"}]}}`)})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		id   PoolID
		want string
	}{
		"whole":             {pool("10.0.1.0/24"), "10.0.1.0/24"},
		"slice":             {PoolID{Node: "n", Range: netip.MustParsePrefix("10.0.0.64/26")}, "10.0.0.64-10.0.0.70/24"},
		"slice without any": {PoolID{Node: "n", Range: netip.MustParsePrefix("10.0.0.128/26")}, ""},
		"another":           {pool("10.0.2.0/24"), ""},
	} {
		got := ""
		for _, r := range cfg.RangesOf(test.id) {
			got += r.String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRangesAsWritten(t *testing.T) {
	written, err := WrittenRanges(Sources{Stdin: []byte(`{"ipam": {"type": "whereabouts", "range": "10.0.0.9/24", "exclude": ["10.0.0.9/29", 5],
		"ipRanges": [{"Range": "10.1.0.0/24", "range_start": "10.1.0.7", "exclude": ["10.1.0.9/29"], "gateway": "10.1.0.1"}, {"gateway": "10.1.0.1"}]}}`)})
	if err != nil || len(written) != 2 {
		t.Fatalf("%v, %v", written, err)
	}
	if written[0].Range != "10.0.0.9/24" || written[0].Exclude != nil {
		t.Errorf("%+v", written[0])
	}
	if w := written[1]; w.Key != "ipRanges[0]" || w.Start != "10.1.0.7" || w.Gateway != "10.1.0.1" || len(w.Exclude) != 1 {
		t.Errorf("%+v", w)
	}
	if _, err := WrittenRanges(Sources{Stdin: []byte(`{`)}); err == nil {
		t.Error("no error for what is no JSON")
	}
}

func TestHostBitsOfAnExclude(t *testing.T) {
	for exclude, want := range map[string]string{
		"10.0.0.9/29": "10.0.0.8/29", "10.0.0.8/29": "", "10.0.0.9": "", "10.0.0.9/32": "", "10.0.0.1-10.0.0.9": "", "fd00::1/64": "fd00::/64",
	} {
		if got, found := HostBits(exclude); got != want || found != (want != "") {
			t.Errorf("%s: %q, %v", exclude, got, found)
		}
	}
}
