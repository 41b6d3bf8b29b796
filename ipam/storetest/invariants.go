package storetest

import (
	"context"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// CheckInvariants fails the test for everything that ipam.Check finds in a store
// in which every record was taken with overlap protection: no address twice,
// each record with its reservation and each reservation with its record. Nobody
// may write to the store meanwhile.
func CheckInvariants(t testing.TB, s ipam.Store) {
	t.Helper()
	always := func(ipam.PoolID, ipam.Record) bool { return true }
	for _, finding := range ipam.Check(snapshot(t, s), ipam.CheckOptions{NeedsReservation: always}) {
		t.Errorf("invariant broken (%s): %s", finding.Kind, finding.Text)
	}
}

func snapshot(t testing.TB, s ipam.Store) *ipam.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	all, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	return all
}
