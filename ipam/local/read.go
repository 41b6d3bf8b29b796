package local

import (
	"net/netip"

	"go.etcd.io/bbolt"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func emptyPool(id ipam.PoolID) *ipam.Pool {
	return &ipam.Pool{ID: id, Base: id.Range.Masked().Addr(), Records: map[netip.Addr]ipam.Record{}}
}

func readPool(id ipam.PoolID, b *bbolt.Bucket) *ipam.Pool {
	pool := emptyPool(id)
	pool.Exists = true
	_ = b.ForEach(func(key, value []byte) error {
		a, ok := parseAddressKey(key)
		e := decode(value)
		if !ok || e.unreadable {
			pool.Bad = append(pool.Bad, string(key))
		}
		if ok {
			pool.Records[a] = e.Record
		}
		return nil
	})
	return pool
}

func (s space) readPools(network string) []*ipam.Pool {
	pools := s.child(keyPools)
	if pools == nil {
		return nil
	}
	var all []*ipam.Pool
	_ = pools.ForEachBucket(func(key []byte) error {
		if id, ok := parsePoolKey(network, key); ok {
			all = append(all, readPool(id, pools.Bucket(key)))
		}
		return nil
	})
	return all
}

func (s space) readReservations(network string) []ipam.Reservation {
	reservations := s.child(keyReservations)
	if reservations == nil {
		return nil
	}
	var all []ipam.Reservation
	_ = reservations.ForEach(func(key, value []byte) error {
		if a, ok := parseAddressKey(key); ok {
			e := decode(value)
			all = append(all, ipam.Reservation{Space: network, Address: a, Record: e.Record, Range: e.pool, Version: string(value)})
		}
		return nil
	})
	return all
}
