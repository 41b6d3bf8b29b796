package reclaim

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// nothing is a store of which nothing is asked.
type nothing struct{ ipam.Store }

// mapped is a cluster in memory that makes no garbage of its own.
type mapped map[[2]string]*Pod

func (m mapped) Pod(_ context.Context, namespace, name string) (*Pod, error) {
	return m[[2]string{namespace, name}], nil
}
func (mapped) Node(context.Context, string) (*Node, error) { return nil, nil }

// BenchmarkPass looks at 20 000 records of live pods, with their reservations, in 20
// pools; of each hundredth the pod does not show the address.
func BenchmarkPass(b *testing.B) {
	snapshot, pods := &ipam.Snapshot{}, mapped{}
	a := netip.MustParseAddr("10.0.0.1")
	for i := range 20 {
		id := ipam.PoolID{Network: fmt.Sprint("n", i), Range: netip.MustParsePrefix("10.0.0.0/16")}
		pool := &ipam.Pool{ID: id, Exists: true, Records: map[netip.Addr]ipam.Record{}}
		snapshot.Pools = append(snapshot.Pools, pool)
		for j := range 1000 {
			name := fmt.Sprintf("p%d-%d", i, j)
			r := orphan(name)
			pod := &Pod{Namespace: "default", Name: name, UID: r.UID, Phase: Running, Networks: true, Addresses: []netip.Addr{another, a}}
			if j%100 == 0 {
				pod.Addresses = pod.Addresses[:1]
			}
			pods[[2]string{"default", name}] = pod
			pool.Records[a] = r
			snapshot.Reservations = append(snapshot.Reservations, ipam.Reservation{
				Space: id.Network, Address: a, Record: r, Range: id.Range.String(), Version: name,
			})
			a = a.Next()
		}
	}
	r := &Reclaimer{Store: nothing{}, Known: pods, Grace: testGrace, Log: slog.New(slog.DiscardHandler)}
	b.ReportAllocs()
	for b.Loop() {
		if report := r.Pass(context.Background(), snapshot); report.Waiting != 200 || report.Kept[ReasonShown] != 20*1000-200 {
			b.Fatalf("got %+v", report)
		}
	}
}
