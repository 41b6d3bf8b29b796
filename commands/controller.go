package commands

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/kube"
)

const controllerName = "controller"

// controllerCommands are the role that gives slices to nodes, under its own name and
// that of older versions.
func controllerCommands(p Process) []*cli.Command {
	own := controllerCommand(p, controllerName)
	old := controllerCommand(p, "node-slice-controller")
	old.Hidden = true
	return []*cli.Command{own, old}
}

func controllerCommand(p Process, name string) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           "give each node its slice of the networks that have a node_slice_size",
		HideHelpCommand: true,
		Flags: []cli.Flag{
			kubeconfigFlag(),
			listenFlag(defaultListen),
			logLevelFlag(),
			&cli.StringFlag{Name: "flat-file", Usage: "`path` of the flat file, which has what network definitions leave out"},
			&cli.DurationFlag{Name: "forget-after", Value: forgetAfter, Usage: "remove the closed pool object of a slice that its node has not had for this `time`; it has to be longer than any ADD takes"},
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return cli.Exit(err, exitUsage) },
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cli.Exit(fmt.Sprintf("%s takes no argument, found %q; options begin with --", name, c.Args().First()), exitUsage)
			}
			return controllerOptions{
				kubeconfig: c.String("kubeconfig"), listen: c.String("listen"),
				logLevel: c.String("log-level"), flatFile: c.String("flat-file"), forgetAfter: c.Duration("forget-after"),
			}.run(p)
		},
	}
}

// controllerOptions is the command line of the controller.
type controllerOptions struct {
	kubeconfig, listen, logLevel, flatFile string
	forgetAfter                            time.Duration
}

// run is the role, until a signal ends it.
func (o controllerOptions) run(p Process) error {
	return untilSignal(func(ctx context.Context) error {
		log := roleLog(p, o.logLevel)
		flat, err := readReconcileFlatFile(p, o.flatFile, log)
		if err != nil {
			return err
		}
		client, err := kube.NewClient(kube.Options{Kubeconfig: o.kubeconfig, AllowExec: true, Getenv: p.Getenv})
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		defer client.Close()
		return o.watch(ctx, p, client, flat.content, log)
	})
}

// watch puts the parts together.
func (o controllerOptions) watch(ctx context.Context, p Process, client *kube.Client, flat []byte, log *slog.Logger) error {
	m := newMetrics()
	m.buildInfo(p.Version)
	events := kube.NewRecorder(client)
	defer events.Close()
	m.counterOf("whereabouts_events_dropped_total", "Events on definitions that could not be delivered; nothing else is lost with them.",
		func() float64 { return float64(events.Dropped()) })
	cluster := watchedSlices{kube.NewSliceWatcher(client, flat), kube.NewStore(client, nil), client, flat}
	loop := newSliceController(cluster, flat, m, p.Now, log.With("namespace", client.Namespace()))
	loop.attic.keep = o.forgetAfter
	loop.teller.post = events.Definition
	stop, err := observed{metrics: m, alive: loop.heart.alive, ready: cluster.Ready}.serve(o.listen, log)
	if err != nil {
		return err
	}
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { cluster.Run(ctx) })
	group.Go(func() { keepSmall(ctx, p.Getenv) })
	loop.run(ctx)
	group.Wait()
	return nil
}

// watchedSlices is a cluster that is watched, and where slices are written down.
type watchedSlices struct {
	*kube.SliceWatcher
	*kube.Store
	client *kube.Client
	flat   []byte
}

func (w watchedSlices) Ready() error { return w.SliceWatcher.Ready() }

func (w watchedSlices) Read(ctx context.Context) (kube.SlicePicture, error) {
	return kube.ReadSlices(ctx, w.client, w.flat)
}
