package etcd

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/integration/testenv/storefault"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
)

func TestStoreConforms(t *testing.T) {
	cluster := testenv.StartEtcd(t, 1)
	storetest.Run(t, func(t *testing.T) storetest.Harness { return newHarness(t, cluster) })
}

// TestStoreConformsWithAMemberDown runs on three members of which one is dead, and
// stands in the list of endpoints all the same.
func TestStoreConformsWithAMemberDown(t *testing.T) {
	cluster := testenv.StartEtcd(t, 3)
	cluster.Members[2].Kill()
	storetest.Run(t, func(t *testing.T) storetest.Harness { return newHarness(t, cluster) })
}

// newHarness empties the cluster.
func newHarness(t *testing.T, cluster *testenv.Etcd) storetest.Harness {
	t.Helper()
	direct := open(t, cluster.Endpoints())
	write(t, direct, op{Delete: &remove{Key: root, End: text(end(root))}})
	proxy := cluster.Members[0].Proxy(t)
	return storetest.Harness{
		Store:   openThrough(t, proxy),
		Other:   func(t *testing.T) ipam.Store { return open(t, cluster.Endpoints()) },
		Faults:  storefault.New(proxy, isWrite),
		Details: true,
		SeedReservation: func(t *testing.T, r ipam.Reservation) {
			write(t, direct, putOp(reservationKey(r.Space, r.Address), encode(r.Record, r.Range)))
		},
		SeedRecord: func(t *testing.T, id ipam.PoolID, a netip.Addr, r ipam.Record) {
			write(t, direct, putOp(recordKey(id, a), encodeRecord(r)))
		},
	}
}

func open(t testing.TB, endpoints string) *Store {
	t.Helper()
	return openWith(t, ipam.EtcdConfig{Endpoints: strings.Split(endpoints, ",")})
}

func openThrough(t *testing.T, proxy *testenv.Proxy) *Store {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, proxy.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	return openWith(t, ipam.EtcdConfig{Endpoints: []string{proxy.URL}, CAFile: ca})
}

func openWith(t testing.TB, cfg ipam.EtcdConfig) *Store {
	t.Helper()
	s, err := Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write changes keys past the rules.
func write(t *testing.T, s *Store, ops ...op) {
	t.Helper()
	if err := s.client.call(t.Context(), "/v3/kv/txn", transaction{Then: ops}, &outcome{}); err != nil {
		t.Fatal(err)
	}
}

func isWrite(r testenv.Request) bool {
	return strings.Contains(string(r.Body), `"request_put"`) || strings.Contains(string(r.Body), `"request_delete_range"`)
}
