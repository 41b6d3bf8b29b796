package main

import (
	"context"
	"os"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/etcd"
)

// newEtcdSite makes a site whose records are in the control plane's etcd, under a
// network_name of its own. Its plugin goes through the proxy if there is one.
func (b *bench) newEtcdSite(_ context.Context, name string, via *proxy) (*site, error) {
	s, err := b.newPlace(name)
	if err != nil {
		return nil, err
	}
	endpoints := b.cp.Etcd.Endpoints()
	if s.etcd, err = etcd.Open(ipam.EtcdConfig{Endpoints: []string{endpoints}}, nil); err != nil {
		return nil, err
	}
	s.store = Object{"datastore": "etcd", "etcd_host": endpoints, "network_name": s.namespace}
	if via != nil {
		s.store["etcd_host"], s.store["etcd_ca_cert_file"] = via.url(), s.path("ca.pem")
		if err := os.WriteFile(s.path("ca.pem"), via.ca(), 0o600); err != nil {
			return nil, err
		}
	}
	return s, s.writeFlatFile("etcd")
}

// recordedInEtcd is recorded for a site on etcd.
func (s *site) recordedInEtcd(ctx context.Context) (holders, map[string]string, error) {
	stored, err := s.etcd.Snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	entries, reserved := holders{}, map[string]string{}
	for _, pool := range stored.Pools {
		if pool.ID.Network != s.namespace {
			continue
		}
		for address, record := range pool.Records {
			entries[address] = record.ContainerID
		}
	}
	for _, r := range stored.Reservations {
		if r.Space == s.namespace {
			reserved[reservationName(r.Address)] = r.ContainerID
		}
	}
	return entries, reserved, nil
}
