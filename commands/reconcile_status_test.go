package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// onePool is a cluster with one pool.
type onePool struct {
	stored
	pool *ipam.Pool
	err  error
}

func (o onePool) Snapshots(context.Context, bool) (map[string]*ipam.Snapshot, error) {
	return map[string]*ipam.Snapshot{"net": {Pools: []*ipam.Pool{o.pool}}}, o.err
}

// A status is written when the count has changed, and again when a write failed.
func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	id := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/29")}
	pool := &ipam.Pool{ID: id, Records: map[netip.Addr]ipam.Record{}}
	var written []string
	var fail error
	ranges := []ipam.Range{}
	k := &statusKeeper{
		stored: onePool{pool: pool}, now: time.Now, log: slog.New(slog.DiscardHandler),
		ranges: func(ipam.PoolID) []ipam.Range { return ranges },
		write: func(_ context.Context, namespace string, id ipam.PoolID, u ipam.Usage) error {
			written = append(written, fmt.Sprint(namespace, " ", id, " ", u.Used, " of ", u.Total, ", ", u.Free, " free, ", u.Excluded, " excluded"))
			return fail
		},
	}
	wants := func(what string, want ...string) {
		t.Helper()
		written = nil
		k.keep(t.Context(), false)
		if !slices.Equal(written, want) {
			t.Errorf("%s: written %q, want %q", what, written, want)
		}
	}
	wants("at first", "net 10.0.0.0/29 0 of 6, 6 free, 0 excluded")
	wants("nothing new")
	pool.Records[netip.MustParseAddr("10.0.0.1")] = ipam.Record{ContainerID: "c"}
	fail = errors.New("no")
	wants("one more, and it fails", "net 10.0.0.0/29 1 of 6, 5 free, 0 excluded")
	fail = nil
	wants("again after a failure", "net 10.0.0.0/29 1 of 6, 5 free, 0 excluded")
	r, _, err := ipam.ParseRange(ipam.RangeSpec{Range: "10.0.0.0/29", Exclude: []string{"10.0.0.4/31"}})
	if err != nil {
		t.Fatal(err)
	}
	ranges = append(ranges, r)
	wants("the definition is known now", "net 10.0.0.0/29 1 of 6, 3 free, 2 excluded")
	pool.Records[netip.MustParseAddr("10.0.0.2")] = ipam.Record{ContainerID: "d"}
	fail = kube.ErrNoStatus
	wants("the definitions are old", "net 10.0.0.0/29 2 of 6, 2 free, 2 excluded")
	fail = nil
	wants("never again")
	if due := k.due(); !due.IsZero() {
		t.Errorf("the next count is due at %v", due)
	}
}

func TestNobodyCounts(t *testing.T) {
	t.Parallel()
	var k *statusKeeper
	k.keep(t.Context(), true)
	if due := k.due(); !due.IsZero() {
		t.Errorf("nobody counts at %v", due)
	}
}
