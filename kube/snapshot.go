package kube

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func (o *ipPool) ident() identity      { return o.Metadata.ident() }
func (o *reservation) ident() identity { return o.Metadata.ident() }

// Snapshot lists the pools and reservations of the namespace, page by page, and
// puts the details that reservations hold into the records of the pools. Pools
// that cannot be read are left out: nothing safe can be said about them.
func (s *Store) Snapshot(ctx context.Context) (*ipam.Snapshot, error) {
	records := newRecords(s.client, s.client.namespace)
	if err := records.list(ctx); err != nil {
		return nil, err
	}
	return records.snapshot(s.client.namespace, nil), nil
}

// records is what is stored in one namespace, or in all.
type records struct {
	client       *Client
	from         recordCollections
	pools        *mirror[ipPool, *ipPool, *storedPool]
	reservations *mirror[reservation, *reservation, *ipam.Reservation]
}

type recordCollections struct{ pools, reservations collection }

// newRecords takes the records of a namespace, or of all when it is "".
func newRecords(c *Client, namespace string) *records {
	in := "apis/" + apiVersion + "/"
	if namespace != "" {
		in += "namespaces/" + namespace + "/"
	}
	return &records{
		client: c,
		from: recordCollections{
			pools:        collection{name: poolResource, path: in + poolResource, page: poolPageSize},
			reservations: collection{name: reservationResource, path: in + reservationResource},
		},
		pools:        newMirror(keepPool, nil),
		reservations: newMirror(keepReservation(interner{}), nil),
	}
}

// list reads pools first: a record that is taken in between then merely lacks its
// details, and nothing is freed that has none.
func (r *records) list(ctx context.Context) error {
	if err := listAgain(ctx, r.client, r.from.pools, r.pools); err != nil {
		return err
	}
	return listAgain(ctx, r.client, r.from.reservations, r.reservations)
}

// snapshots are those of all namespaces that have anything.
func (r *records) snapshots(nets *definitions) map[string]*ipam.Snapshot {
	all := map[string]*ipam.Snapshot{}
	r.pools.each(func(key objectKey, _ *storedPool) { all[key.namespace] = nil })
	r.reservations.each(func(key objectKey, _ *ipam.Reservation) { all[key.namespace] = nil })
	for namespace := range all {
		all[namespace] = r.snapshot(namespace, nets)
	}
	return all
}

func (r *records) snapshot(namespace string, nets *definitions) *ipam.Snapshot {
	var pools []*storedPool
	r.pools.each(func(key objectKey, p *storedPool) {
		if key.namespace == namespace {
			pools = append(pools, p)
		}
	})
	return assemble(namespace, pools, r.reservations, nets)
}

// assemble puts together what belongs together: pools, in the order of their names,
// with the reservations of their records. It stores the completed pools in place of
// those given. nets may be nil.
func assemble(namespace string, pools []*storedPool, reservations *mirror[reservation, *reservation, *ipam.Reservation], nets *definitions) *ipam.Snapshot {
	many := 0
	reservations.each(func(key objectKey, _ *ipam.Reservation) {
		if key.namespace == namespace {
			many++
		}
	})
	// There may be tens of thousands: growing would leave as many again behind.
	snapshot := &ipam.Snapshot{Reservations: make([]ipam.Reservation, 0, many)}
	reservations.each(func(key objectKey, r *ipam.Reservation) {
		switch {
		case key.namespace != namespace:
		case keptTurn(r):
			snapshot.Turns = append(snapshot.Turns, ipam.Turn{Name: key.name, UID: r.UID, Since: r.Since})
		default:
			snapshot.Reservations = append(snapshot.Reservations, *r)
		}
	})
	slices.SortFunc(pools, func(a, b *storedPool) int { return cmp.Compare(a.name, b.name) })
	named := sliceNames(snapshot.Reservations)
	reserved := func(name string) *ipam.Reservation {
		r, _ := reservations.get(namespace, name)
		return r
	}
	for _, p := range pools {
		if p.pool == nil {
			snapshot.Unreadable = append(snapshot.Unreadable, p.name)
			continue
		}
		p.complete(p.identify(named, nets), reserved)
		snapshot.Pools = append(snapshot.Pools, p.pool)
	}
	settle(snapshot)
	slices.SortFunc(snapshot.Reservations, func(a, b ipam.Reservation) int {
		return cmp.Or(cmp.Compare(a.Space, b.Space), a.Address.Compare(b.Address))
	})
	return snapshot
}

// settle finds out, by the records, what the names of reservations mean that may be
// read in several ways and do not say their range.
func settle(s *ipam.Snapshot) {
	var holding map[string][]*ipam.Pool // by network; made when it is needed
	for i := range s.Reservations {
		r := &s.Reservations[i]
		if r.Address.Is4() || r.Range != "" {
			continue
		}
		readings := readingsOf(ReservationName(r.Space, r.Address))
		if len(readings) < 2 {
			continue
		}
		if holding == nil {
			holding = map[string][]*ipam.Pool{}
			for _, p := range s.Pools {
				holding[p.ID.Network] = append(holding[p.ID.Network], p)
			}
		}
		for _, at := range readings {
			if slices.ContainsFunc(holding[at.network], func(p *ipam.Pool) bool { return has(p, at.address) }) {
				r.Space, r.Address = at.network, at.address
				break
			}
		}
	}
}

func has(p *ipam.Pool, a netip.Addr) bool {
	_, ok := p.Records[a]
	return ok
}

// storedPool is the content of a pool object.
type storedPool struct {
	name    string
	version string // of the object, as it was read
	node    string // that the object says it is of
	// pool is nil when the object cannot be understood. Once given to others, who
	// may still read it, it is not changed any more, but replaced.
	pool  *ipam.Pool
	given bool
}

func keepPool(object *ipPool) (*storedPool, bool) {
	p := &storedPool{
		name: object.Metadata.Name, version: object.Metadata.ResourceVersion, node: object.Metadata.Annotations[nodeAnnotation],
	}
	written, err := ipam.ParsePrefix(object.Spec.Range)
	if err != nil {
		return p, true
	}
	p.pool, _ = readPool(ipam.PoolID{Range: written.Masked()}, *object)
	return p, true
}

// complete gives the pool its name and its records the details of the reservations
// beside them. Details count only while the container id is the record's. A record
// taken without protection has its own.
func (p *storedPool) complete(id ipam.PoolID, reserved func(name string) *ipam.Reservation) {
	records, own := p.pool.Records, !p.given // own: to be changed
	p.given = true
	for address, before := range p.pool.Records {
		if before.Unprotected {
			continue
		}
		after := ipam.Record{ContainerID: before.ContainerID, IfName: before.IfName, PodRef: before.PodRef, Gen: before.Gen}
		r := reserved(ReservationName(id.Network, address))
		if r != nil && r.ContainerID == before.ContainerID && r.ContainerID != "" {
			after = detailed(after, r)
		}
		if after == before {
			continue
		}
		if !own {
			records, own = maps.Clone(records), true
		}
		records[address] = after
	}
	completed := *p.pool
	completed.ID, completed.Records = id, records
	p.pool = &completed
}

// detailed is a record with the details of its reservation. Equal strings share their
// memory.
func detailed(record ipam.Record, r *ipam.Reservation) ipam.Record {
	record.UID, record.Node, record.Network, record.Since = r.UID, r.Node, r.Network, r.Since
	record.ContainerID = r.ContainerID
	if record.PodRef == r.PodRef {
		record.PodRef = r.PodRef
	}
	if record.IfName == r.IfName {
		record.IfName = r.IfName
	}
	return record
}

// identify finds out of which network, and which node's slice, a pool object is.
// Names do not tell the two apart ("a-b-10.0.0.0-26" may be network a's slice of
// node b, or network a-b's pool); the object itself may, the reservations of a
// slice's records do, and the definitions.
func (p *storedPool) identify(named map[string]ipam.PoolID, nets *definitions) ipam.PoolID {
	id := ipam.PoolID{Range: p.pool.ID.Range}
	if p.name == PoolName(id) {
		return id
	}
	if slice, ok := nodePoolNamed(p.name, p.node, id.Range); ok {
		return slice
	}
	if slice, ok := named[p.name]; ok && slice.Range == id.Range {
		return slice
	}
	if nets != nil {
		if slice, ok := nets.sliceOf(p.name, id.Range); ok {
			return slice
		}
	}
	id.Network = networkOf(p.name, nameTail(id.Range))
	return id
}

// sliceNames tells the slices that reservations speak of by the names their objects
// would have.
func sliceNames(reservations []ipam.Reservation) map[string]ipam.PoolID {
	type place struct{ space, node, written string }
	seen := map[place]bool{}
	named := map[string]ipam.PoolID{}
	for i := range reservations {
		r := &reservations[i]
		at := place{r.Space, r.Node, r.Range}
		if r.Node == "" || seen[at] {
			continue
		}
		seen[at] = true
		if written, err := netip.ParsePrefix(r.Range); err == nil {
			id := ipam.PoolID{Network: r.Space, Node: r.Node, Range: written}
			named[PoolName(id)] = id
		}
	}
	return named
}

// nameTail is how the name of a pool object with a network or node ends.
func nameTail(r netip.Prefix) string {
	return dashed(r.String())
}

// networkOf is what stands before the range in a name.
func networkOf(name, tail string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, tail), "-")
}

// keepReservation reads network and address from the object's name, which is all
// that old ones have. An address in a name is written with '-' for ':'.
func keepReservation(names interner) func(*reservation) (*ipam.Reservation, bool) {
	return func(object *reservation) (*ipam.Reservation, bool) {
		if object.isTurn() {
			return keepTurn(object), true
		}
		network, address, ok := splitReservationName(object.Metadata.Name, object.Spec.Range)
		if !ok {
			return nil, false
		}
		r := &ipam.Reservation{
			Space: names.of(network), Address: address, Record: object.Spec.record(), Range: names.of(object.Spec.Range),
			Version: object.version(),
		}
		r.Node, r.Network, r.IfName = names.of(r.Node), names.of(r.Network), names.of(r.IfName)
		return r, true
	}
}

// reading is one way to read the name of a reservation.
type reading struct {
	network string
	address netip.Addr
}

// splitReservationName finds network and address in a name. The end of a network's
// name may look like the start of an IPv6 address (that of network "vlan-10" and
// fd00::1 is "vlan-10-fd00--1"); then the range that is written in the reservation
// tells, and without it the longest address is only a guess (see settle).
func splitReservationName(name, written string) (string, netip.Addr, bool) {
	readings := readingsOf(name)
	if len(readings) == 0 {
		return "", netip.Addr{}, false
	}
	at := readings[0]
	if within, err := netip.ParsePrefix(written); err == nil {
		i := slices.IndexFunc(readings, func(r reading) bool { return within.Contains(r.address) })
		at = readings[max(i, 0)]
	}
	return at.network, at.address, true
}

// readingsOf are all tails of a name that are an address and whose name it would be,
// the longest first.
func readingsOf(name string) []reading {
	var found []reading
	for i := range len(name) {
		if i > 0 && name[i-1] != '-' {
			continue
		}
		network := strings.TrimSuffix(name[:i], "-")
		for _, text := range []string{name[i:], strings.ReplaceAll(name[i:], "-", ":")} {
			address, err := netip.ParseAddr(text)
			if err == nil && ReservationName(network, address) == name {
				found = append(found, reading{network, address})
				break
			}
		}
	}
	return found
}
