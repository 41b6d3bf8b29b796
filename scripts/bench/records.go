package main

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"strings"
)

// holders are who holds which address: container ids.
type holders map[netip.Addr]string

// granted are the addresses that ADDs were given. The error is the first that is
// wrong.
func granted(adds []outcome) (holders, error) {
	held, wrong := grant(adds)
	return held, firstOf(wrong)
}

// grant answers the addresses that ADDs were given, and all that is wrong with them:
// calls that failed, and addresses given out twice.
func grant(adds []outcome) (held holders, wrong []error) {
	held = holders{}
	for _, add := range adds {
		addresses, err := add.addresses()
		if err != nil {
			wrong = append(wrong, err)
		}
		for _, a := range addresses {
			if other, twice := held[a]; twice {
				wrong = append(wrong, fmt.Errorf("%s was given to %s and to %s", a, other, add.call.container()))
			}
			held[a] = add.call.container()
		}
	}
	return held, wrong
}

// check compares what is stored at a site with who should hold addresses. With
// overlap protection each has a reservation, too.
func (s *site) check(ctx context.Context, want holders, protected bool) error {
	read := s.recorded
	if s.etcd != nil {
		read = s.recordedInEtcd
	}
	entries, reserved, err := read(ctx)
	if err != nil {
		return err
	}
	if err := compare("the pools", entries, want); err != nil {
		return err
	}
	if !protected {
		want = nil
	}
	return compareNames(reserved, want)
}

// recorded are the holders according to the pools, and the containers in the
// reservations, by name.
func (s *site) recorded(ctx context.Context) (holders, map[string]string, error) {
	entries, err := s.entries(ctx)
	if err != nil {
		return nil, nil, err
	}
	reserved, err := s.reserved(ctx)
	return entries, reserved, err
}

// entries are the holders according to the pools.
func (s *site) entries(ctx context.Context) (holders, error) {
	list, err := s.client.List(ctx, s.collection(pools))
	if err != nil {
		return nil, err
	}
	held := holders{}
	for _, pool := range list {
		written := pool.String("spec", "range")
		base, err := netip.ParsePrefix(written)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", pool.Name(), err)
		}
		allocations, _ := pool.Field("spec", "allocations").(map[string]any)
		for key, value := range allocations {
			address, ok := offset(base.Addr(), key)
			entry, isObject := value.(map[string]any)
			if !ok || !isObject {
				return nil, fmt.Errorf("pool %s: entry %q cannot be read", pool.Name(), key)
			}
			if other, twice := held[address]; twice {
				return nil, fmt.Errorf("%s is held in two pools, by %s and %v", address, other, entry["id"])
			}
			held[address], _ = entry["id"].(string)
		}
	}
	return held, nil
}

// reserved are the containers in the reservations, by name.
func (s *site) reserved(ctx context.Context) (map[string]string, error) {
	list, err := s.client.List(ctx, s.collection(reservations))
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, r := range list {
		held[r.Name()] = r.String("spec", "containerid")
	}
	return held, nil
}

// offset is the address that a pool's key stands for.
func offset(base netip.Addr, key string) (netip.Addr, bool) {
	n, ok := new(big.Int).SetString(key, 10)
	if !ok || n.Sign() < 0 {
		return netip.Addr{}, false
	}
	bytes := base.AsSlice()
	n.Add(n, new(big.Int).SetBytes(bytes))
	if n.BitLen() > 8*len(bytes) {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(n.FillBytes(bytes))
}

// reservationName is for the networks of the bench, which have no network_name.
func reservationName(a netip.Addr) string { return strings.ReplaceAll(a.String(), ":", "-") }

func compare(where string, got, want holders) error {
	for address, container := range want {
		if got[address] != container {
			return fmt.Errorf("%s say that %s is held by %q; it was given to %s", where, address, got[address], container)
		}
	}
	for address, container := range got {
		if _, known := want[address]; !known {
			return fmt.Errorf("%s still say that %s is held by %s (%d entries, want %d)", where, address, container, len(got), len(want))
		}
	}
	return nil
}

func compareNames(got map[string]string, want holders) error {
	left := maps.Clone(got)
	for address, container := range want {
		name := reservationName(address)
		if got[name] != container {
			return fmt.Errorf("the reservation %s is held by %q; the address was given to %s", name, got[name], container)
		}
		delete(left, name)
	}
	for name, container := range left {
		return fmt.Errorf("the reservation %s is still held by %s (%d reservations, want %d)", name, container, len(got), len(want))
	}
	return nil
}
