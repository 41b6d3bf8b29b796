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
	conforms(t, testenv.StartEtcd(t, 1))
}

// TestStoreConformsWithAMemberDown runs on three members of which one is dead, and
// stands in the list of endpoints all the same.
func TestStoreConformsWithAMemberDown(t *testing.T) {
	cluster := testenv.StartEtcd(t, 3)
	cluster.Members[2].Kill()
	conforms(t, cluster)
}

// TestStoreConformsInUnrest runs while members are killed and started again, lose
// their network and get it back, and the leader moves.
func TestStoreConformsInUnrest(t *testing.T) {
	cluster := testenv.StartEtcdApart(t, 3)
	rest := cluster.Unrest(t)
	conforms(t, cluster)
	rest()
}

// conforms runs the suite on a cluster whose members are reached through proxies.
func conforms(t *testing.T, cluster *testenv.Etcd) {
	h := &harness{faulty: proxiesOf(t, cluster), sound: proxiesOf(t, cluster)}
	storetest.Run(t, h.fresh)
}

// harness gives each case a cluster without records.
type harness struct {
	faulty, sound []*testenv.Proxy // ways to it
}

func proxiesOf(t *testing.T, cluster *testenv.Etcd) (all []*testenv.Proxy) {
	for _, m := range cluster.Members {
		all = append(all, m.Proxy(t))
	}
	return all
}

func (h *harness) fresh(t *testing.T) storetest.Harness {
	t.Helper()
	for _, p := range h.faulty {
		p.Reset()
	}
	direct := openThrough(t, h.sound...)
	write(t, direct, op{Delete: &remove{Key: root, End: text(end(root))}})
	return storetest.Harness{
		Store:   openThrough(t, h.faulty...),
		Other:   func(t *testing.T) ipam.Store { return openThrough(t, h.sound...) },
		Faults:  storefault.New(isWrite, h.faulty...),
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

// openThrough opens the store whose members are reached through proxies.
func openThrough(t *testing.T, proxies ...*testenv.Proxy) *Store {
	t.Helper()
	cfg := ipam.EtcdConfig{CAFile: filepath.Join(t.TempDir(), "ca.pem")}
	var ca []byte
	for _, p := range proxies {
		cfg.Endpoints, ca = append(cfg.Endpoints, p.URL), append(ca, p.CA...)
	}
	if err := os.WriteFile(cfg.CAFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return openWith(t, cfg)
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
