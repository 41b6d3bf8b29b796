package etcd

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

func TestOldRecordsAreRead(t *testing.T) {
	s := open(t, testenv.StartEtcd(t, 1).Endpoints())
	write(t, s,
		putOp("/whereabouts/10.0.0.0-24", []byte("10.0.0.1 c1\n10.0.0.2 c2\n\n10.0.0.2 c3\n10.1.0.1 c4\n10.0.0.9\n")),
		putOp("/whereabouts/fd00---64", []byte("fd00::1 c5")),
		putOp("/whereabouts/2001-db8-0-5---64", []byte("")),
		putOp("/whereabouts/nonsense", []byte("10.0.0.1 c6\n")),
		putOp("/whereabouts-other/10.0.0.0-24", []byte("10.0.0.1 c7\n")),
	)
	pools, err := s.OldPools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]OldPool{
		"10.0.0.0/24": {
			Records: map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "c1", netip.MustParseAddr("10.0.0.2"): "c2"},
			Bad:     []string{"10.0.0.2 c3", "10.1.0.1 c4", "10.0.0.9"},
		},
		"fd00::/64":         {Records: map[netip.Addr]string{netip.MustParseAddr("fd00::1"): "c5"}},
		"2001:db8:0:5::/64": {},
		"invalid Prefix":    {Bad: []string{"10.0.0.1 c6"}},
	}
	for _, p := range pools {
		w, ok := want[p.Range.String()]
		if !ok || !maps.Equal(p.Records, w.Records) || !slices.Equal(p.Bad, w.Bad) {
			t.Errorf("got %+v, want %+v", p, w)
		}
	}
	if len(pools) != len(want) {
		t.Errorf("got %d ranges, want %d", len(pools), len(want))
	}
}
