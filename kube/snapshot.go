package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// pageSize is how many objects one list request asks for.
const pageSize = 500

// Snapshot lists the pools and reservations of the namespace, page by page, and
// puts the details that reservations hold into the records of the pools. Pools
// that cannot be read are left out: nothing safe can be said about them.
func (s *Store) Snapshot(ctx context.Context) (*ipam.Snapshot, error) {
	var snapshot ipam.Snapshot
	// Pools first: a record that is taken in between then merely lacks its
	// details, and nothing is freed that has none.
	var objects []ipPool
	err := s.list(ctx, poolResource, func(item json.RawMessage) error {
		var object ipPool
		if err := json.Unmarshal(item, &object); err != nil {
			return err
		}
		objects = append(objects, object)
		return nil
	})
	if err != nil {
		return nil, err
	}
	reserved := map[string]ipam.Reservation{} // by object name
	err = s.list(ctx, reservationResource, func(item json.RawMessage) error {
		var object reservation
		if err := json.Unmarshal(item, &object); err != nil {
			return err
		}
		if r, ok := parseReservation(object); ok {
			reserved[object.Metadata.Name] = r
			snapshot.Reservations = append(snapshot.Reservations, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		pool, err := readPool(poolIDOf(object, snapshot.Reservations), object)
		if err != nil {
			continue
		}
		addDetails(pool, reserved)
		snapshot.Pools = append(snapshot.Pools, pool)
	}
	slices.SortFunc(snapshot.Pools, func(a, b *ipam.Pool) int { return cmp.Compare(PoolName(a.ID), PoolName(b.ID)) })
	return &snapshot, nil
}

// list calls f for each object of a resource.
func (s *Store) list(ctx context.Context, resource string, f func(json.RawMessage) error) error {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var page struct {
			Metadata listMeta          `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		err := s.client.read(ctx, request{method: http.MethodGet, path: s.path(resource, ""), query: query}, &page)
		if err != nil {
			return s.client.explain("list "+resource, err)
		}
		for _, item := range page.Items {
			if err := f(item); err != nil {
				return s.client.explain("list "+resource, err)
			}
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// addDetails completes records from the reservations beside them. Details count
// only while the container id is the record's.
func addDetails(pool *ipam.Pool, reserved map[string]ipam.Reservation) {
	for address, record := range pool.Records {
		r, ok := reserved[ReservationName(pool.ID.Network, address)]
		if !ok || r.ContainerID != record.ContainerID || r.ContainerID == "" {
			continue
		}
		record.UID, record.Node, record.Network, record.Since = r.UID, r.Node, r.Network, r.Since
		pool.Records[address] = record
	}
}

// poolIDOf finds out of which network, and which node's slice, a pool object is.
// Names do not tell the two apart ("a-b-10.0.0.0-26" may be network a's slice of
// node b, or network a-b's pool); the reservations of a slice's records do.
func poolIDOf(object ipPool, reservations []ipam.Reservation) ipam.PoolID {
	prefix, err := ipam.ParsePrefix(object.Spec.Range)
	if err != nil {
		return ipam.PoolID{}
	}
	id := ipam.PoolID{Range: prefix.Masked()}
	bare := PoolName(id)
	if object.Metadata.Name == bare {
		return id
	}
	tail := bare
	if strings.HasPrefix(bare, "0-") {
		tail = bare[1:] // the '0' stands there only when the name would begin with '-'
	}
	id.Network = strings.TrimSuffix(object.Metadata.Name, "-"+tail)
	for _, r := range reservations {
		slice := ipam.PoolID{Network: r.Space, Node: r.Node, Range: id.Range}
		if r.Node != "" && r.Range == id.Range.String() && PoolName(slice) == object.Metadata.Name {
			return slice
		}
	}
	return id
}

// parseReservation reads network and address from the object's name, which is
// all that old ones have. An address in a name is written with '-' for ':'.
func parseReservation(object reservation) (ipam.Reservation, bool) {
	network, address, ok := splitReservationName(object.Metadata.Name)
	if !ok {
		return ipam.Reservation{}, false
	}
	return ipam.Reservation{Space: network, Address: address, Record: object.Spec.record(), Range: object.Spec.Range}, true
}

// splitReservationName finds the address at the end of a name: the longest tail
// that is one and whose name it would be.
func splitReservationName(name string) (string, netip.Addr, bool) {
	for i := 0; i < len(name); i++ {
		if i > 0 && name[i-1] != '-' {
			continue
		}
		network := strings.TrimSuffix(name[:i], "-")
		for _, text := range []string{name[i:], strings.ReplaceAll(name[i:], "-", ":")} {
			address, err := netip.ParseAddr(text)
			if err == nil && ReservationName(network, address) == name {
				return network, address, true
			}
		}
	}
	return "", netip.Addr{}, false
}
