package ipcontrol

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func (s shower) poolRow(p *poolDocument) []string {
	row := []string{p.Namespace, p.Name, p.Network, p.Range, count(p.total), strconv.Itoa(p.Used), count(p.excluded), count(p.free)}
	if !s.wide() {
		return row
	}
	state, definition := "open", "no"
	if p.Closed {
		state = "closed"
	}
	if p.Defined {
		definition = "yes"
	}
	return append(row, p.Node, strconv.Itoa(p.Unreadable), definition, state)
}

// showPool shows the addresses of a pool, or of each pool of that name.
func (s shower) showPool(v *view, found []stored) error {
	document := poolsDocument{}
	for _, pool := range found {
		p := v.poolDocument(pool)
		addresses := v.addresses(pool, nil)
		p.Addresses = &addresses
		document.Pools = append(document.Pools, p)
	}
	if s.machine() {
		return s.print(document)
	}
	for i := range document.Pools {
		if i > 0 {
			fmt.Fprintln(s.Stdout)
		}
		if err := s.writePool(v, found[i], &document.Pools[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s shower) writePool(v *view, pool stored, p *poolDocument) error {
	fmt.Fprintf(s.Stdout, "pool %s, range %s: %d of %s used, %s excluded, %s free\n",
		printable(pool.String()), p.Range, p.Used, count(p.total), count(p.excluded), count(p.free))
	if p.Unreadable > 0 {
		fmt.Fprintf(s.Stdout, "%d of its entries cannot be read; `%s check` names them\n", p.Unreadable, Name)
	}
	if p.Closed {
		fmt.Fprintf(s.Stdout, "it is closed: the slice is being taken from node %s\n", printable(p.Node))
	}
	if s.drawn {
		return s.draw(v, pool)
	}
	if len(*p.Addresses) == 0 {
		return nil
	}
	fmt.Fprintln(s.Stdout)
	t := &table{}
	t.row(append([]string{"ADDRESS", "POD", "INTERFACE", "NODE", "CONTAINER", "AGE"}, s.wideHead()...)...)
	for i := range *p.Addresses {
		a := &(*p.Addresses)[i]
		t.row(append([]string{a.Address, a.holder(), a.Interface, a.Node, short(a.ContainerID), age(s.Now(), a.Since)}, s.wideCells(a)...)...)
	}
	return t.write(s.Stdout)
}

// holder is who has an address, for the column of pods.
func (d *addressDocument) holder() string {
	switch {
	case d.State == stateReserved:
		return "reserved: " + d.Purpose
	case d.State == stateUnreadable:
		return "(cannot be read)"
	}
	return d.Pod
}

func (s shower) wideHead() []string {
	if !s.wide() {
		return nil
	}
	return []string{"CNI NETWORK", "UID", "RESERVATION", "CONTAINER ID"}
}

func (s shower) wideCells(a *addressDocument) []string {
	if !s.wide() {
		return nil
	}
	reservation := "no"
	if a.Reservation {
		reservation = "yes"
	}
	return []string{a.CNINetwork, a.UID, reservation, a.ContainerID}
}

// addresses are the records of a pool in order, or those that are wanted.
func (v *view) addresses(s stored, wanted func(ipam.Record) bool) []addressDocument {
	reserved := map[netip.Addr]bool{}
	for i := range s.Reservations {
		if r := &s.Reservations[i]; r.Space == s.pool.ID.Network {
			if record, ok := s.pool.Records[r.Address]; ok {
				reserved[r.Address] = r.Beside(s.pool.ID, record)
			}
		}
	}
	found := []addressDocument{}
	for _, a := range sortedAddresses(s.pool) {
		record := s.pool.Records[a]
		if wanted != nil && !wanted(record) {
			continue
		}
		d := addressDocument{Address: a.String(), Reservation: reserved[a]}
		d.describe(record)
		found = append(found, d)
	}
	return found
}

func sortedAddresses(p *ipam.Pool) []netip.Addr {
	all := make([]netip.Addr, 0, len(p.Records))
	for a := range p.Records {
		all = append(all, a)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
