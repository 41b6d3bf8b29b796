package ipam

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func checkedPool(network, cidr string, records map[string]Record) *Pool {
	p := &Pool{
		ID:     PoolID{Network: network, Range: netip.MustParsePrefix(cidr)},
		Exists: true, Records: map[netip.Addr]Record{},
	}
	for a, r := range records {
		p.Records[netip.MustParseAddr(a)] = r
	}
	return p
}

func checkedReservation(network, address, cidr string, r Record) Reservation {
	return Reservation{Space: network, Address: netip.MustParseAddr(address), Record: r, Range: cidr}
}

func TestCheck(t *testing.T) {
	a := Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a"}
	b := Record{ContainerID: "c2", IfName: "net1", PodRef: "default/b"}
	noPod := Record{ContainerID: "c3", IfName: "net1"}
	const wide, narrow = "10.0.0.0/16", "10.0.0.0/24"
	type records = map[string]Record
	always := func(PoolID, Record) bool { return true }

	tests := []struct {
		name     string
		pools    []*Pool
		reserved []Reservation
		needs    func(PoolID, Record) bool
		want     []FindingKind
		text     string // part of the first finding's text
	}{
		{name: "an empty store is fine", needs: always},
		{
			name:     "a record with its reservation is fine",
			pools:    []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", narrow, a)}, needs: always,
		},
		{
			name:     "a reservation without range or container id is an old one and fine",
			pools:    []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", "", Record{PodRef: "default/a"})}, needs: always,
		},
		{
			name:  "a reservation whose container id lags behind an adoption is fine",
			pools: []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", narrow,
				Record{ContainerID: "old", IfName: "net1", PodRef: "default/a"})}, needs: always,
		},
		{
			name: "the same address in two pools of one network is a duplicate",
			pools: []*Pool{
				checkedPool("", narrow, records{"10.0.0.5": a}), checkedPool("", wide, records{"10.0.0.5": b}),
			},
			want: []FindingKind{FindingDuplicate},
			text: "default/a interface net1 (range 10.0.0.0/24) and default/b interface net1 (range 10.0.0.0/16)",
		},
		{
			name: "the reservation of one of two holders does not hide the duplicate",
			pools: []*Pool{
				checkedPool("", narrow, records{"10.0.0.5": a}), checkedPool("", wide, records{"10.0.0.5": b}),
			},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", wide, b)},
			want:     []FindingKind{FindingDuplicate}, text: "10.0.0.5 is held 2 times",
		},
		{
			name: "the same address in two networks is fine",
			pools: []*Pool{
				checkedPool("", narrow, records{"10.0.0.5": a}), checkedPool("n", narrow, records{"10.0.0.5": b}),
			},
		},
		{
			name:  "a record without a reservation is half a record where protection is on",
			pools: []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})}, needs: always,
			want: []FindingKind{FindingHalfRecord}, text: "without a reservation",
		},
		{
			name:  "a record without a reservation is fine where protection is off",
			pools: []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			needs: func(PoolID, Record) bool { return false },
		},
		{
			name:     "a reservation of another network is no reservation",
			pools:    []*Pool{checkedPool("m", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("n", "10.0.0.5", narrow, a)}, needs: always,
			want: []FindingKind{FindingHalfRecord, FindingBareReservation}, text: "of network m",
		},
		{
			name:     "a reservation without a record is bare",
			reserved: []Reservation{checkedReservation("", "10.0.0.5", narrow, a)},
			want:     []FindingKind{FindingBareReservation}, text: "reserved for default/a",
		},
		{
			name:     "reservation and record of different pods disagree",
			pools:    []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", narrow, b)},
			want:     []FindingKind{FindingDisagree}, text: "reserved for default/b interface net1 through range 10.0.0.0/24",
		},
		{
			name:  "reservation and record of different interfaces disagree",
			pools: []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", narrow,
				Record{ContainerID: "c1", IfName: "net2", PodRef: "default/a"})},
			want: []FindingKind{FindingDisagree}, text: "interface net2",
		},
		{
			name:     "reservation and record of different containers without pods disagree",
			pools:    []*Pool{checkedPool("", narrow, records{"10.0.0.5": noPod})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", "", Record{ContainerID: "c9", IfName: "net1"})},
			want:     []FindingKind{FindingDisagree}, text: "reserved for container c9",
		},
		{
			name:     "a reservation that names another pool than the record's disagrees",
			pools:    []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", wide, a)},
			want:     []FindingKind{FindingDisagree}, text: "through range 10.0.0.0/16",
		},
		{
			name:  "a record outside its range is reported",
			pools: []*Pool{checkedPool("", narrow, records{"10.0.1.5": a})},
			want:  []FindingKind{FindingOutside}, text: "recorded in range 10.0.0.0/24",
		},
		{
			name:     "an unreadable reservation is reported, and neither bare nor in disagreement",
			pools:    []*Pool{checkedPool("", narrow, records{"10.0.0.5": a})},
			reserved: []Reservation{checkedReservation("", "10.0.0.5", "", Record{})}, needs: always,
			want: []FindingKind{FindingUnreadable}, text: "reservation of 10.0.0.5",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Check(&Snapshot{Pools: tt.pools, Reservations: tt.reserved}, CheckOptions{NeedsReservation: tt.needs})
			if len(got) != len(tt.want) {
				t.Fatalf("got %d findings, want %d: %+v", len(got), len(tt.want), got)
			}
			for i, want := range tt.want {
				if got[i].Kind != want {
					t.Errorf("finding %d is %s, want %s: %s", i, got[i].Kind, want, got[i].Text)
				}
			}
			if len(got) > 0 && !strings.Contains(got[0].Text, tt.text) {
				t.Errorf("text %q does not contain %q", got[0].Text, tt.text)
			}
		})
	}
}

func TestCheckReportsUnreadableEntriesOnce(t *testing.T) {
	p := checkedPool("n", "10.0.0.0/24", map[string]Record{"10.0.0.5": {}})
	p.ID.Node = "node1"
	p.Bad = []string{"10.0.0.5", "x"}
	got := Check(&Snapshot{Pools: []*Pool{p}}, CheckOptions{
		NeedsReservation: func(PoolID, Record) bool { return true },
	})
	if len(got) != 2 || got[0].Kind != FindingUnreadable || got[1].Kind != FindingUnreadable {
		t.Fatalf("got %+v, want the two unreadable entries and nothing else", got)
	}
	if got[0].Address.IsValid() || got[1].Address.String() != "10.0.0.5" {
		t.Errorf("addresses are %v and %v, want none and 10.0.0.5", got[0].Address, got[1].Address)
	}
	if got[0].Pool != p.ID || got[0].Network != "n" || !strings.Contains(got[0].Text, `"x" of range 10.0.0.0/24 of network n, node node1`) {
		t.Errorf("finding does not say where: %+v", got[0])
	}
}

func TestCheckIgnoresDetails(t *testing.T) {
	r := Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a", Gen: "g"}
	detailed := r
	detailed.Gen, detailed.UID, detailed.Node, detailed.Since = "", "u", "n", time.Unix(1, 0)
	got := Check(&Snapshot{
		Pools:        []*Pool{checkedPool("", "10.0.0.0/24", map[string]Record{"10.0.0.5": r})},
		Reservations: []Reservation{checkedReservation("", "10.0.0.5", "10.0.0.0/24", detailed)},
	}, CheckOptions{})
	if len(got) != 0 {
		t.Errorf("got %+v, want nothing", got)
	}
}
