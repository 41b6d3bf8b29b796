package ipcontrol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// maxPurpose keeps entries small: a pool object has room for some ten thousand.
const maxPurpose = 100

const reserveHelp = `Keeps an address out of circulation, for a machine that is no pod. The clean-up leaves
it alone. ` + "`ip-control release`" + ` gives it back.`

func reserveCommand(env Env) *cli.Command {
	flags := append(choiceFlags(), &cli.StringFlag{Name: "for", Usage: "what it is kept for: a `text` of up to 100 characters"})
	return newCommand(env, "reserve", "IP", "keep an address out of circulation", reserveHelp, flags,
		func(ctx context.Context, c *cli.Context, o options) error {
			what, err := only(c, "an address")
			if err != nil {
				return err
			}
			address, err := ipam.ParseAddr(what)
			if err != nil {
				return usage("reserve: %w", err)
			}
			purpose := strings.TrimSpace(c.String("for"))
			if err := checkPurpose(purpose); err != nil {
				return err
			}
			a, err := o.open()
			if err != nil {
				return err
			}
			defer a.close()
			return reserver{options: o, access: a, purpose: purpose}.reserve(ctx, address)
		})
}

func checkPurpose(text string) error {
	switch {
	case text == "":
		return usage(`reserve: say what the address is kept for: --for "the printer"`)
	case len([]rune(text)) > maxPurpose:
		return usage("--for: the text has %d characters; write up to %d", len([]rune(text)), maxPurpose)
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return usage("--for: %q has characters that cannot be printed; write one line of text", text)
	}
	return nil
}

type reserver struct {
	options
	*access
	purpose string
}

// target is the pool that an address is recorded in; it need not exist yet.
type target struct {
	namespace string
	id        ipam.PoolID
}

func (t target) String() string {
	name := kube.PoolName(t.id)
	if t.namespace == "" {
		return name
	}
	return t.namespace + "/" + name
}

// reservedDocument is what reserve prints.
type reservedDocument struct {
	Reserved addressDocument `json:"reserved"`
}

func (r reserver) reserve(ctx context.Context, a netip.Addr) error {
	v, err := r.look(ctx, r.access, false)
	if err != nil {
		return err
	}
	at, err := r.target(v, a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	store := r.store(at.namespace)
	pool, err := store.Read(ctx, at.id)
	if err != nil {
		return err
	}
	if pool.Closed {
		return refuse("pool %s is closed: its slice is being taken from node %s; try again later", at, at.id.Node)
	}
	record, held := pool.Records[a]
	if held && record.ContainerID != ipam.ReservedID(r.purpose) {
		return refuse("%s of pool %s is held by %s", a, at, occupant(record))
	}
	if !held {
		record = ipam.NewRecord(ipam.Owner{ContainerID: ipam.ReservedID(r.purpose)}, r.Now())
		if err := r.take(ctx, store, at, a, record); err != nil {
			return err
		}
	}
	return r.tell(at, a, record, held)
}

func (r reserver) take(ctx context.Context, store ipam.Store, at target, a netip.Addr, record ipam.Record) error {
	err := store.Commit(ctx, []ipam.Change{{Pool: at.id, Address: a, After: &record, Overlap: true}})[0]
	var conflict *ipam.ConflictError
	if errors.As(err, &conflict) {
		through := ""
		if conflict.Range != "" {
			through = " through range " + conflict.Range
		}
		return refuse("%s of pool %s is held by %s%s", a, at, occupant(conflict.Holder), through)
	}
	return err
}

func occupant(r ipam.Record) string {
	if r.Reserved() {
		return fmt.Sprintf("%s; give it back with `%s release` first", holder(r), Name)
	}
	return holder(r)
}

func (r reserver) tell(at target, a netip.Addr, record ipam.Record, before bool) error {
	if r.machine() {
		d := addressDocument{Address: a.String(), Namespace: at.namespace, Pool: kube.PoolName(at.id), Network: at.id.Network, Reservation: true}
		d.describe(record)
		return r.print(reservedDocument{d})
	}
	already := ""
	if before {
		already = " already"
	}
	_, err := fmt.Fprintf(r.Stdout, "%s of pool %s is%s kept out of circulation for %q\n", a, at, already, r.purpose)
	return err
}

// target finds the pool of an address: among those that are stored, else among
// those that definitions name, else the one that --pool names by its range.
func (r reserver) target(v *view, a netip.Addr) (target, error) {
	var found []target
	for _, s := range v.pools(r.options) {
		if s.pool.ID.Range.Contains(a) {
			found = append(found, target{s.namespace, s.pool.ID})
		}
	}
	if len(found) == 0 {
		found = r.defined(v, a)
	}
	if p, err := ipam.ParsePrefix(r.pool); err == nil && len(found) == 0 {
		if !p.Contains(a) {
			return target{}, usage("--pool: %s does not lie in %s", a, p.Masked())
		}
		found = []target{{r.home(), ipam.PoolID{Network: r.network, Range: p.Masked()}}}
	}
	switch len(found) {
	case 0:
		return target{}, refuse("%s lies outside every pool and definition%s; name its range with --pool, and with --network if it has one", a, r.within())
	case 1:
		return found[0], nil
	}
	var names []string
	for _, t := range found {
		names = append(names, fmt.Sprintf("  %s (range %s)", t, t.id))
	}
	return target{}, usage("%s lies in %d pools; choose with --pool NAMESPACE/POOL, or with --network:\n%s", a, len(found), strings.Join(names, "\n"))
}

// defined are the pools that definitions name and that do not exist yet. A slice of
// a node is none of them: nobody knows here which node will have it, and the
// reservation keeps the address from it.
func (r reserver) defined(v *view, a netip.Addr) []target {
	var found []target
	seen := map[string]bool{}
	for _, d := range v.defined {
		for _, rng := range d.Ranges {
			id := ipam.PoolID{Network: d.NetworkName, Range: rng.Prefix}
			name := kube.PoolName(id)
			chosen := (r.network == "" || sameNetwork(r.network, id)) && (r.pool == "" || r.pool == name || isRange(r.pool, rng.Prefix))
			if rng.Contains(a) && chosen && !seen[name] {
				seen[name] = true
				found = append(found, target{r.home(), id})
			}
		}
	}
	return found
}

// home is the namespace of new objects.
func (r reserver) home() string {
	switch {
	case r.client == nil:
		return ""
	case r.namespace != "":
		return r.namespace
	}
	return r.client.Namespace()
}

func isRange(s string, p netip.Prefix) bool {
	found, err := ipam.ParsePrefix(s)
	return err == nil && found.Masked() == p
}
