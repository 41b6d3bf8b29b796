package ipcontrol

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const defaultInterval = 2 * time.Second

// clearScreen moves the cursor home and clears what is below.
const clearScreen = "\x1b[H\x1b[2J"

const showHelp = `  ip-control show                  all pools
  ip-control show 10.0.0.0-24      the addresses of a pool, by the name of its object or by its range
  ip-control show 10.0.0.17        who has an address
  ip-control show default/web-0    the addresses of a pod`

func showCommand(env Env) *cli.Command {
	flags := append(choiceFlags(),
		&cli.BoolFlag{Name: "map", Usage: "draw the pool: which addresses are free, held, reserved or excluded"},
		&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print again whenever it has changed, until interrupted"},
		&cli.StringFlag{Name: "interval", Value: defaultInterval.String(), Usage: "`time` between two looks of --watch"},
	)
	return newCommand(env, "show", "[POOL|IP|NAMESPACE/POD]", "show pools, the addresses of a pool or a pod, or who has an address", showHelp, flags,
		func(ctx context.Context, c *cli.Context, o options) error {
			if c.Args().Len() > 1 {
				return usage("show takes one argument, a pool, an address or NAMESPACE/POD; found %d: %s",
					c.Args().Len(), strings.Join(c.Args().Slice(), " "))
			}
			if c.Bool("map") && (o.machine() || !c.Args().Present()) {
				return usage("--map draws one pool for a person: name the pool, without -o json or yaml")
			}
			interval, err := time.ParseDuration(c.String("interval"))
			if err != nil || interval <= 0 {
				return usage("--interval: %q is not a time; write it like 2s", c.String("interval"))
			}
			a, err := o.open()
			if err != nil {
				return err
			}
			defer a.close()
			s := shower{options: o, access: a, what: c.Args().First(), drawn: c.Bool("map")}
			if !c.Bool("watch") {
				return s.once(ctx)
			}
			return s.again(ctx, interval)
		})
}

// shower shows one thing.
type shower struct {
	options
	*access
	what  string
	drawn bool
}

// again shows it whenever it has changed. A look that fails is told and tried again.
func (s shower) again(ctx context.Context, interval time.Duration) error {
	out, last := s.Stdout, ""
	for {
		var text bytes.Buffer
		s.Stdout = &text
		err := s.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.warn("%s", plain(err))
		}
		if text.Len() > 0 && text.String() != last {
			last = text.String()
			if s.terminal(out) {
				last = clearScreen + last
			}
			if _, err := io.WriteString(out, last); err != nil {
				return err
			}
			last = text.String()
		}
		if s.sleep(ctx, interval) != nil {
			return nil
		}
	}
}

func (s shower) once(ctx context.Context) error {
	v, err := s.look(ctx, s.access, false)
	if err != nil {
		return err
	}
	if s.what == "" {
		return s.showPools(v, v.pools(s.options))
	}
	if address, err := ipam.ParseAddr(s.what); err == nil {
		return s.showAddress(ctx, v, address)
	}
	s.options.pool = s.what
	if found := v.pools(s.options); len(found) > 0 {
		return s.showPool(v, found)
	}
	s.options.pool = ""
	if namespace, pod, ok := strings.Cut(s.what, "/"); ok && namespace != "" && pod != "" && !isPrefix(s.what) {
		return s.showPod(v)
	}
	return refuse("there is no pool %q; `%s show` lists them, and a pod is written NAMESPACE/POD", s.what, Name)
}

func isPrefix(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
}

// showPools lists pools.
func (s shower) showPools(v *view, found []stored) error {
	document := poolsDocument{Pools: []poolDocument{}}
	for _, pool := range found {
		document.Pools = append(document.Pools, v.poolDocument(pool))
	}
	if s.machine() {
		return s.print(document)
	}
	if len(document.Pools) == 0 {
		_, err := io.WriteString(s.Stdout, "no pools: no pod has asked for an address yet\n")
		return err
	}
	t := &table{}
	head := []string{"NAMESPACE", "POOL", "NETWORK", "RANGE", "TOTAL", "USED", "EXCLUDED", "FREE"}
	if s.wide() {
		head = append(head, "NODE", "UNREADABLE", "DEFINED", "STATE")
	}
	t.row(head...)
	for i := range document.Pools {
		t.row(s.poolRow(&document.Pools[i])...)
	}
	return t.write(s.Stdout)
}

// showPod lists what a pod holds.
func (s shower) showPod(v *view) error {
	document := addressesDocument{Addresses: []addressDocument{}}
	for _, pool := range v.pools(s.options) {
		for _, a := range v.addresses(pool, func(r ipam.Record) bool { return r.PodRef == s.what }) {
			a.Namespace, a.Pool, a.Network = pool.namespace, pool.name(), pool.pool.ID.Network
			document.Addresses = append(document.Addresses, a)
		}
	}
	if s.machine() {
		return s.print(document)
	}
	if len(document.Addresses) == 0 {
		return refuse("no address is recorded for pod %s, and there is no pool of that name", s.what)
	}
	t := &table{}
	head := []string{"ADDRESS", "POOL", "NETWORK", "INTERFACE", "NODE", "CONTAINER", "AGE"}
	t.row(append(head, s.wideHead()...)...)
	for i := range document.Addresses {
		a := &document.Addresses[i]
		t.row(append([]string{a.Address, a.Pool, a.Network, a.Interface, a.Node, short(a.ContainerID), age(s.Now(), a.Since)}, s.wideCells(a)...)...)
	}
	return t.write(s.Stdout)
}
