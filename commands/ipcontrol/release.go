package ipcontrol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

const releaseHelp = `Frees the record of an address, and its reservation, or all records of a pod. It refuses
while the pod lives: the address would be given to another one beside it. An address
that was reserved by ` + "`ip-control reserve`" + ` is given back the same way.`

func releaseCommand(env Env) *cli.Command {
	flags := append(choiceFlags(), yesFlag(),
		&cli.BoolFlag{Name: "force", Usage: "although the pod lives, or it cannot be told whether it does"})
	return newCommand(env, "release", "IP|NAMESPACE/POD", "free an address, or all addresses of a pod", releaseHelp, flags,
		func(ctx context.Context, c *cli.Context, o options) error {
			what, err := only(c, "an address or NAMESPACE/POD")
			if err != nil {
				return err
			}
			a, err := o.open()
			if err != nil {
				return err
			}
			defer a.close()
			return releaser{options: o, access: a, force: c.Bool("force")}.release(ctx, what)
		})
}

// releaser frees what a person names.
type releaser struct {
	options
	*access
	force bool
}

// holding is a record, or a reservation without one, that is to be freed.
type holding struct {
	stored
	address     netip.Addr
	record      ipam.Record
	reservation *ipam.Reservation // set: there is no record
}

func (h holding) String() string {
	if h.reservation != nil {
		return fmt.Sprintf("the reservation of %s for %s (network %q)", h.address, holder(h.record), h.reservation.Space)
	}
	return fmt.Sprintf("%s of pool %s, held by %s", h.address, h.stored, holder(h.record))
}

func (h holding) store(r releaser) ipam.Store { return r.access.store(h.namespace) }

func (r releaser) release(ctx context.Context, what string) error {
	v, err := r.look(ctx, r.access, false)
	if err != nil {
		return err
	}
	found, err := r.findHoldings(v, what)
	if err != nil {
		return err
	}
	var refused []error
	for _, h := range found {
		refused = append(refused, r.mayFree(ctx, h))
	}
	if err := errors.Join(refused...); err != nil {
		return refuse("%w", err)
	}
	if !r.machine() {
		for _, h := range found {
			fmt.Fprintf(r.Stdout, "will free %s\n", printable(h.String()))
		}
	}
	if err := r.confirm("free " + plural(len(found), "address") + "?"); err != nil {
		return err
	}
	return r.freeAll(ctx, found)
}

// findHoldings are those of an address, which has to be one, or of a pod.
func (r releaser) findHoldings(v *view, what string) ([]holding, error) {
	address, err := ipam.ParseAddr(what)
	namespace, pod, isPod := strings.Cut(what, "/")
	switch {
	case err == nil:
		return r.holdingsOf(v, address)
	case !isPod || namespace == "" || pod == "":
		return nil, usage("release: %q is neither an address nor NAMESPACE/POD", what)
	}
	found := r.search(v, func(_ netip.Addr, record ipam.Record) bool { return record.PodRef == what })
	if len(found) == 0 {
		return nil, refuse("no address is recorded for pod %s%s", what, r.within())
	}
	return found, nil
}

func (r releaser) holdingsOf(v *view, address netip.Addr) ([]holding, error) {
	found := r.search(v, func(a netip.Addr, _ ipam.Record) bool { return a == address })
	if len(found) == 0 {
		return nil, refuse("%s is not recorded%s: there is nothing to release", address, r.within())
	}
	if len(found) > 1 {
		var lines []string
		for _, h := range found {
			lines = append(lines, "  "+printable(h.String()))
		}
		return nil, usage("%s is recorded %d times; choose with --pool NAMESPACE/POOL, or with --network:\n%s", address, len(found), strings.Join(lines, "\n"))
	}
	return found, nil
}

// within repeats what restricts the search.
func (o options) within() string {
	words := ""
	for _, w := range []struct{ name, value string }{{"namespace", o.namespace}, {"network", o.network}, {"pool", o.pool}} {
		if w.value != "" {
			words += " in " + w.name + " " + w.value
		}
	}
	return words
}

// search finds records, and reservations that no record stands beside.
func (r releaser) search(v *view, wanted func(netip.Addr, ipam.Record) bool) []holding {
	var found []holding
	for _, s := range v.pools(r.options) {
		for _, a := range sortedAddresses(s.pool) {
			if record := s.pool.Records[a]; wanted(a, record) {
				found = append(found, holding{stored: s, address: a, record: record})
			}
		}
	}
	if r.pool != "" {
		return found
	}
	for _, s := range v.spaces {
		for i := range s.Reservations {
			reservation := &s.Reservations[i]
			bare := !slices.ContainsFunc(s.Pools, func(p *ipam.Pool) bool {
				_, held := p.Records[reservation.Address]
				return held && p.ID.Network == reservation.Space
			})
			if bare && (r.network == "" || r.network == reservation.Space) && wanted(reservation.Address, reservation.Record) {
				found = append(found, holding{stored: stored{space: s}, address: reservation.Address, record: reservation.Record, reservation: reservation})
			}
		}
	}
	return found
}

// mayFree answers why a holding is not freed, asking live.
func (r releaser) mayFree(ctx context.Context, h holding) error {
	if (h.record == ipam.Record{}) {
		return fmt.Errorf("%s is recorded by an entry that cannot be read, so that it cannot be said whose it is; take it out of the object by hand", h.address)
	}
	if h.reservation != nil && !h.record.Since.IsZero() && r.Now().Sub(h.record.Since) < leastGrace {
		return fmt.Errorf("%s was reserved less than %s ago and its record may be on its way; try again later", h.address, leastGrace)
	}
	if r.force || h.record.Reserved() {
		return nil
	}
	if h.record.PodRef == "" {
		return fmt.Errorf("%s is held by %s, which is no pod: it cannot be told whether it lives; use --force if it does not", h.address, holder(h.record))
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c := reclaim.Case{Address: h.address, Record: h.record, Now: r.Now(), First: r.Now().Add(-defaultGrace), Grace: defaultGrace}
	if err := ask(ctx, r.live(), &c); err != nil {
		return fmt.Errorf("it cannot be told whether %s lives, which holds %s: %s; use --force if it does not", holder(h.record), h.address, plain(err))
	}
	verdict := reclaim.Judge(c)
	switch verdict.Action {
	case reclaim.Free, reclaim.Complete:
		return nil
	case reclaim.Keep, reclaim.Wait:
	}
	return fmt.Errorf("%s is held by %s and is kept: %s; delete the pod first, or use --force", h.address, holder(h.record), verdict.Reason.Words())
}

// releasedDocument is what release prints.
type releasedDocument struct {
	Released []addressDocument `json:"released"`
	Failed   []string          `json:"failed,omitempty"`
}

func (r releaser) freeAll(ctx context.Context, found []holding) error {
	document := releasedDocument{Released: []addressDocument{}}
	for _, h := range found {
		if err := r.free(ctx, h); err != nil {
			document.Failed = append(document.Failed, fmt.Sprintf("%s: %s", h.address, plain(err)))
			continue
		}
		d := addressDocument{Address: h.address.String(), Namespace: h.namespace, Reservation: h.reservation != nil}
		d.describe(h.record)
		if h.pool != nil {
			d.Pool, d.Network = h.name(), h.pool.ID.Network
		}
		d.State = stateFree
		document.Released = append(document.Released, d)
	}
	if r.machine() {
		if err := r.print(document); err != nil {
			return err
		}
	} else {
		for _, d := range document.Released {
			fmt.Fprintf(r.Stdout, "freed %s\n", d.Address)
		}
	}
	if len(document.Failed) > 0 {
		return refuse("not freed: %s", strings.Join(document.Failed, "; "))
	}
	return nil
}

// free looks again, live, and frees exactly what was found before.
func (r releaser) free(ctx context.Context, h holding) error {
	if err := r.mayFree(ctx, h); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	store := h.store(r)
	change := ipam.Change{Address: h.address, Strict: true}
	if h.reservation != nil {
		now, err := store.Reservation(ctx, h.reservation.Space, h.address)
		if err != nil {
			return err
		}
		if now == nil || now.Version != h.reservation.Version {
			return errChanged
		}
		change.Pool, change.Seen = ipam.PoolID{Network: h.reservation.Space}, now
		return r.commit(ctx, store, change)
	}
	pool, err := store.Read(ctx, h.pool.ID)
	if err != nil {
		return err
	}
	now, held := pool.Records[h.address]
	if !held || !now.Same(h.record) || now.Gen != h.record.Gen || now.PodRef != h.record.PodRef {
		return errChanged
	}
	change.Pool, change.Before = h.pool.ID, &h.record
	return r.commit(ctx, store, change)
}

var errChanged = errors.New("it has changed since it was looked at, and is left alone; look again")

func (r releaser) commit(ctx context.Context, store ipam.Store, change ipam.Change) error {
	err := store.Commit(ctx, []ipam.Change{change})[0]
	if errors.Is(err, ipam.ErrConflict) {
		return errChanged
	}
	return err
}
