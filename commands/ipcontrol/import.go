package ipcontrol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/etcd"
)

const importHelp = `Takes over the records that version 0.5 left in etcd, into the datastore that the flat
file of this host names. The etcd is that of the flat file, too (etcd_host and the like).
It says first what it would do; --dry-run ends there. The old records stay as they are.
No host may run the old version any more, or an address could be given out twice.`

func importCommand(env Env) *cli.Command {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "from-etcd", Usage: "from the keys of version 0.5 in etcd; there is no other source"},
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done, and do nothing"},
		yesFlag(),
	}
	return newCommand(env, "import", "", "take over records of an old version", importHelp, flags,
		func(ctx context.Context, c *cli.Context, o options) error {
			if c.Args().Present() || !c.Bool("from-etcd") {
				return usage("import takes no arguments, and needs --from-etcd")
			}
			a, err := o.open()
			if err != nil {
				return err
			}
			defer a.close()
			return importer{options: o, access: a, dry: c.Bool("dry-run")}.run(ctx)
		})
}

type importer struct {
	options
	*access
	dry bool
}

func (i importer) run(ctx context.Context) error {
	pools, err := i.read(ctx)
	if err != nil {
		return err
	}
	changes, bad := i.plan(pools)
	if len(changes) == 0 || i.dry {
		return bad
	}
	if err := i.confirm(fmt.Sprintf("Take over %d records?", len(changes))); err != nil {
		return err
	}
	return errors.Join(i.write(ctx, changes), bad)
}

// read reads the old records.
func (i importer) read(ctx context.Context) ([]etcd.OldPool, error) {
	cfg, _, err := i.readFlatFile()
	if err != nil {
		return nil, err
	}
	store, err := i.openEtcd(cfg.Etcd)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return store.OldPools(ctx)
}

// plan says what is there, and answers what can be taken over. Old records name a
// container and neither pod nor interface.
func (i importer) plan(pools []etcd.OldPool) (changes []ipam.Change, bad error) {
	unreadable := 0
	for _, p := range pools {
		fmt.Fprintf(i.Stdout, "%s: %d records\n", p.Key, len(p.Records))
		for _, a := range slices.SortedFunc(maps.Keys(p.Records), netip.Addr.Compare) {
			fmt.Fprintf(i.Stdout, "  %s held by container %s\n", a, printable(p.Records[a]))
			changes = append(changes, ipam.Change{
				Pool: ipam.PoolID{Range: p.Range}, Address: a, After: &ipam.Record{ContainerID: p.Records[a]}, Overlap: true,
			})
		}
		for _, line := range p.Bad {
			fmt.Fprintf(i.Stdout, "  cannot be taken over: %q\n", line)
			unreadable++
		}
	}
	if unreadable > 0 {
		bad = refuse("%d lines cannot be taken over: see to them by hand, with `%s reserve` if the address is in use", unreadable, Name)
	}
	return changes, bad
}

func (i importer) write(ctx context.Context, changes []ipam.Change) error {
	namespace := i.namespace
	if i.client != nil && namespace == "" {
		namespace = i.client.Namespace()
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var failed []error
	for k, err := range i.store(namespace).Commit(ctx, changes) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s of %s: %w", changes[k].Address, changes[k].Pool, err))
		}
	}
	fmt.Fprintf(i.Stdout, "took over %d of %d records\n", len(changes)-len(failed), len(changes))
	if len(failed) > 0 {
		return refuse("%w", errors.Join(failed...))
	}
	return nil
}
