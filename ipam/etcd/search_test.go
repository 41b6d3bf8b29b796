package etcd

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

func mustRange(t testing.TB, spec ipam.RangeSpec) ipam.Range {
	t.Helper()
	r, warnings, err := ipam.ParseRange(spec)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	return r
}

func recordOf(pod string) ipam.Record {
	return ipam.NewRecord(ipam.Owner{ContainerID: "container-" + pod, IfName: "net1", PodRef: "default/" + pod}, time.Now())
}

// fill takes addresses as the store does.
func fill(t testing.TB, s *Store, id ipam.PoolID, addresses []netip.Addr) map[netip.Addr]ipam.Record {
	t.Helper()
	held := map[netip.Addr]ipam.Record{}
	var changes []ipam.Change
	for _, a := range addresses {
		r := recordOf("pod-" + a.String())
		held[a] = r
		changes = append(changes, ipam.Change{Pool: id, Address: a, After: &r, Overlap: true})
	}
	for i, err := range s.Commit(t.Context(), changes) {
		if err != nil {
			t.Fatalf("%s: %v", changes[i].Address, err)
		}
	}
	return held
}

// next is what an ADD would get, and how many addresses it knows.
func next(t testing.TB, s *Store, id ipam.PoolID, r ipam.Range) []netip.Addr {
	t.Helper()
	p, err := s.Search(t.Context(), ipam.Search{Pool: id, Ranges: []ipam.Range{r}, Free: 5})
	if err != nil {
		t.Fatal(err)
	}
	return ipam.Free(r.Without(p.Full), func(a netip.Addr) bool { _, held := p.Records[a]; return held }, 1)
}

// TestSearchFindsWhatReadingThePoolWouldFind holds Search, with notes of blocks that
// come and go, to the choice from all records.
func TestSearchFindsWhatReadingThePoolWouldFind(t *testing.T) {
	s := open(t, testenv.StartEtcd(t, 1).Endpoints())
	rng := rand.New(rand.NewPCG(7, 8))
	for _, cidr := range []string{"10.0.0.0/21", "fd00::/117"} {
		id := ipam.PoolID{Range: netip.MustParsePrefix(cidr)}
		all := mustRange(t, ipam.RangeSpec{Range: cidr})
		var everything []netip.Addr
		for a := id.Range.Addr(); id.Range.Contains(a); a = a.Next() {
			everything = append(everything, a)
		}
		ranges := []ipam.Range{
			all, all.From(everything[300]), all.From(everything[1000]).UpTo(everything[1100]), all.UpTo(everything[700]),
			all.Reserve(everything[256:600]...),
		}
		held := fill(t, s, id, everything[:1500])
		for round := range 60 {
			for i, r := range ranges {
				want := ipam.Free(r, func(a netip.Addr) bool { _, taken := held[a]; return taken }, 1)
				if got := next(t, s, id, r); !slices.Equal(got, want) {
					t.Fatalf("round %d, range %d of %s: the next address is %v, want %v", round, i, cidr, got, want)
				}
			}
			a := everything[rng.IntN(len(everything))]
			if r, taken := held[a]; taken {
				if err := s.Commit(t.Context(), []ipam.Change{{Pool: id, Address: a, Before: &r}})[0]; err != nil {
					t.Fatal(err)
				}
				delete(held, a)
			} else {
				held[a] = fill(t, s, id, []netip.Addr{a})[a]
			}
		}
	}
}

func TestSearchFindsOwnersAndAddressesFarAway(t *testing.T) {
	s := open(t, testenv.StartEtcd(t, 1).Endpoints())
	id := ipam.PoolID{Network: "a/b", Range: netip.MustParsePrefix("10.0.0.0/16")}
	var many []netip.Addr
	for i := range 2000 {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)}))
	}
	held := fill(t, s, id, many)
	far, wanted, r := many[1999], many[1500], mustRange(t, ipam.RangeSpec{Range: "10.0.0.0/16"})
	for name, owner := range map[string]ipam.Owner{
		"by its container":               {ContainerID: held[far].ContainerID, IfName: "net1"},
		"by its pod, in a new container": {ContainerID: "new", IfName: "net1", PodRef: held[far].PodRef},
	} {
		p, err := s.Search(t.Context(), ipam.Search{
			Pool: id, Owners: []ipam.Owner{owner}, Addresses: []netip.Addr{wanted, wanted.Prev()}, Ranges: []ipam.Range{r}, Free: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []netip.Addr{far, wanted} {
			if got := p.Records[a]; got != normal(held[a]) {
				t.Errorf("%s: %s is held by %+v, want %+v", name, a, got, held[a])
			}
		}
		if len(p.Records) > 1700 {
			t.Errorf("%s: %d of 2000 records were read", name, len(p.Records))
		}
	}
}

func normal(r ipam.Record) ipam.Record { r.Since = r.Since.UTC(); return r }

// TestReleaseInABlockCrossesItsNoteOut races a release with the reader that makes the
// note: the address must be found by whoever looks later.
func TestReleaseInABlockCrossesItsNoteOut(t *testing.T) {
	s := open(t, testenv.StartEtcd(t, 1).Endpoints())
	id := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/22")}
	r := mustRange(t, ipam.RangeSpec{Range: "10.0.0.0/22"})
	var all []netip.Addr
	for i := range 700 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i % 256)}))
	}
	held := fill(t, s, id, all)
	for i := range 40 {
		a := all[i*7+1]
		freed := make(chan error)
		before := held[a]
		go func() { freed <- s.Commit(t.Context(), []ipam.Change{{Pool: id, Address: a, Before: &before}})[0] }()
		for range 3 {
			next(t, s, id, r)
		}
		if err := <-freed; err != nil {
			t.Fatal(err)
		}
		if got := next(t, s, id, r); len(got) != 1 || got[0] != a {
			t.Fatalf("after the release of %s the next address is %v", a, got)
		}
		held[a] = fill(t, s, id, []netip.Addr{a})[a]
	}
}

// TestSearchOfSeveralRangesAtOnce has a block in which one range finds nothing and
// the other one does.
func TestSearchOfSeveralRangesAtOnce(t *testing.T) {
	s := open(t, testenv.StartEtcd(t, 1).Endpoints())
	id := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/22")}
	all := mustRange(t, ipam.RangeSpec{Range: "10.0.0.0/22"})
	hole := netip.MustParseAddr("10.0.1.77")
	fill(t, s, id, slices.DeleteFunc(ipam.Free(all, nil, 600), func(a netip.Addr) bool { return a == hole }))
	without := all.Reserve(hole)
	for range 3 { // the first one makes the note
		p, err := s.Search(t.Context(), ipam.Search{Pool: id, Ranges: []ipam.Range{without, all}, Free: 1})
		if err != nil {
			t.Fatal(err)
		}
		held := func(a netip.Addr) bool { _, held := p.Records[a]; return held }
		if got := ipam.Free(all.Without(p.Full), held, 1); len(got) != 1 || got[0] != hole {
			t.Errorf("the next address is %v, want %s", got, hole)
		}
		if got := ipam.Free(without.Without(p.Full), held, 1); len(got) != 1 || got[0] == hole || got[0].Less(hole) {
			t.Errorf("where it is excluded, the next address is %v", got)
		}
	}
	fill(t, s, id, []netip.Addr{hole}) // the note still has it as free
	if got := next(t, s, id, all); len(got) != 1 || got[0].Less(hole.Next()) {
		t.Errorf("once it is taken, the next address is %v", got)
	}
}

func TestReleaseLeavesNothingButNotesAndFences(t *testing.T) {
	s := open(t, testenv.StartEtcd(t, 1).Endpoints())
	id := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/22")}
	a, first, again := netip.MustParseAddr("10.0.0.5"), recordOf("a"), recordOf("a")
	again.ContainerID = "another"
	for _, c := range []ipam.Change{
		{Pool: id, Address: a, After: &first, Overlap: true},
		{Pool: id, Address: a, Before: &first, After: &again, Overlap: true},
	} {
		if err := s.Commit(t.Context(), []ipam.Change{c})[0]; err != nil {
			t.Fatal(err)
		}
	}
	keys := func() (found []string) {
		if err := s.each(t.Context(), below(root), func(kv pair) { found = append(found, string(kv.Key)) }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	const space = root + "network_name=/"
	want := []string{
		space + "owners/10.0.0.0/22/container=another/010.000.000.005", space + "owners/10.0.0.0/22/pod=default%2Fa/010.000.000.005",
		space + "pools/10.0.0.0/22/010.000.000.005", space + "reservations/010.000.000.005",
	}
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("after a rewrite there is %v, want %v", got, want)
	}
	if err := s.Commit(t.Context(), []ipam.Change{{Pool: id, Address: a, Before: &again}})[0]; err != nil {
		t.Fatal(err)
	}
	want = []string{space + "blocks/10.0.0.0/22/010.000.000.000", fenceKey("", "another")}
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("after a release there is %v, want %v", got, want)
	}
}
