package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	reconcileName = "reconcile"

	defaultGrace = time.Minute
	leastGrace   = addTimeout // what an ADD under way has written is half a record so long

	// leaveTimeout is how long the end of a role that runs on may take, with all
	// that is under way. It is asked to be gone within two seconds.
	leaveTimeout = 1500 * time.Millisecond
)

// reconcileCommands are the clean-up role under its own name and those of older
// versions. What was called ip-reconciler ended after one run: it is the command of
// CronJobs.
func reconcileCommands(p Process) []*cli.Command {
	own := reconcileCommand(p, reconcileName, false)
	loop := reconcileCommand(p, "ip-control-loop", false)
	job := reconcileCommand(p, "ip-reconciler", true)
	loop.Hidden, job.Hidden = true, true
	return []*cli.Command{own, loop, job}
}

func reconcileCommand(p Process, name string, once bool) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           "free the addresses that no pod holds any more, on changes in the cluster and on a schedule",
		HideHelpCommand: true,
		Flags: append([]cli.Flag{
			kubeconfigFlag(),
			&cli.StringFlag{Name: "schedule", Usage: "five-field cron `expression` in UTC; else that of --schedule-file, " + scheduleVariable + ", the flat file, " + defaultSchedule},
			&cli.StringFlag{Name: "schedule-file", Value: scheduleFile, Usage: "`path` of a file with the expression, which may change at any time"},
			&cli.BoolFlag{Name: "once", Value: once, Usage: "look once, and again after the grace time if need be, and end: 0 is clean, 1 something could not be freed"},
			&cli.StringFlag{Name: "grace", Value: defaultGrace.String(), Usage: "`time` for which a record has to look like an orphan where one look is not enough"},
			&cli.StringFlag{Name: "unreachable-node", Value: "release", Usage: "addresses of pods that are being deleted on a node that has been unreachable for long: `release` or keep"},
			listenFlag(defaultListen),
			logLevelFlag(),
			&cli.StringFlag{Name: "flat-file", Usage: "`path` of the flat file, which has what network definitions leave out"},
		}, ignoredFlags("timeout", "reconcile-timeout", "retries")...),
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return cli.Exit(err, exitUsage) },
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cli.Exit(fmt.Sprintf("%s takes no argument, found %q; options begin with --", name, c.Args().First()), exitUsage)
			}
			o, err := readReconcileOptions(c)
			if err != nil {
				return err
			}
			return o.run(p)
		},
	}
}

// ignoredFlags are options of older versions, of which manifests are left. They do
// nothing: each request has its own deadline and is tried again within that.
func ignoredFlags(names ...string) []cli.Flag {
	var flags []cli.Flag
	for _, name := range names {
		flags = append(flags, &cli.StringFlag{Name: name, Hidden: true})
	}
	return flags
}

func kubeconfigFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "kubeconfig", Usage: "`path` of a kubeconfig; without it the pod's own service account"}
}

func logLevelFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "log-level", Value: "verbose", Usage: "`level` of the log: debug, verbose, error or panic"}
}

// reconcileOptions is the command line of the clean-up.
type reconcileOptions struct {
	kubeconfig      string
	schedule        string
	scheduleFile    string
	once            bool
	grace           time.Duration
	keepUnreachable bool
	listen          string
	logLevel        string
	flatFile        string
}

func readReconcileOptions(c *cli.Context) (reconcileOptions, error) {
	o := reconcileOptions{
		kubeconfig: c.String("kubeconfig"), schedule: c.String("schedule"), scheduleFile: c.String("schedule-file"),
		once: c.Bool("once"), listen: c.String("listen"), logLevel: c.String("log-level"), flatFile: c.String("flat-file"),
	}
	var err error
	if o.grace, err = time.ParseDuration(c.String("grace")); err != nil || o.grace <= 0 {
		return o, cli.Exit(fmt.Sprintf("--grace: %q is not a time; write it like 60s or 5m", c.String("grace")), exitUsage)
	}
	switch found := c.String("unreachable-node"); found {
	case "release", "keep":
		o.keepUnreachable = found == "keep"
	default:
		return o, cli.Exit(fmt.Sprintf("--unreachable-node: found %q; write release or keep", found), exitUsage)
	}
	return o, nil
}

// run is the role. It ends by itself after --once, and else at a signal.
func (o reconcileOptions) run(p Process) error {
	return untilSignal(func(ctx context.Context) error {
		log := roleLog(p, o.logLevel)
		if o.grace < leastGrace {
			log.Warn("the grace time is shorter than what an ADD may take: its half-written records may be freed", "grace", o.grace, "at least", leastGrace)
		}
		flat, err := readReconcileFlatFile(p, o.flatFile, log)
		if err != nil {
			return err
		}
		if err := o.wantsKubernetes(flat); err != nil {
			return err
		}
		client, err := kube.NewClient(kube.Options{Kubeconfig: o.kubeconfig, AllowExec: true, Getenv: p.Getenv})
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		defer client.Close()
		role := reconcileRole{reconcileOptions: o, process: p, flat: flat, client: client, log: log}
		if o.once {
			return role.runOnce(ctx)
		}
		return role.runOn(ctx)
	})
}

// untilSignal runs a role until it returns, or SIGTERM or SIGINT ends it, which is
// no error. It does not wait for long then: whatever is under way may be cut off at
// any point without harm.
func untilSignal(role func(ctx context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- role(ctx) }()
	select {
	case err := <-done:
		if ctx.Err() != nil {
			return nil
		}
		return err
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(leaveTimeout):
	}
	return nil
}

// roleLog is the log of a role that is no plugin call: all of it goes to stderr. A
// level that is unknown is told and no reason to fail: older versions took it.
func roleLog(p Process, word string) *slog.Logger {
	level, known := logLevels[strings.ToLower(strings.TrimSpace(word))]
	switch {
	case strings.EqualFold(word, "info"):
		level, known = slog.LevelInfo, true
	case !known:
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level}))
	if !known {
		log.Warn("log level is unknown and ignored", "--log-level", word, "use", "debug, verbose, error or panic")
	}
	return log
}

// wantsKubernetes refuses a datastore outside of it: nothing there knows which
// containers live, so that nothing could be found to be an orphan.
func (o reconcileOptions) wantsKubernetes(flat reconcileFlatFile) error {
	if o.kubeconfig != "" || flat.datastore == "" || flat.datastore == ipam.DatastoreKubernetes {
		return nil
	}
	return cli.Exit(fmt.Errorf("flat file: datastore is %s, and reconcile compares records with the pods of Kubernetes; "+
		"elsewhere the container runtime frees what is left by CNI's GC, and a person by `ip-control release`", flat.datastore), exitUsage)
}

// reconcileFlatFile is what the clean-up uses of a flat file.
type reconcileFlatFile struct {
	content  []byte // nil if there is none
	schedule string // reconciler_cron_expression

	datastore string // "" if there is none
}

// readReconcileFlatFile reads the flat file that was named, or else the first that
// exists of the usual ones. One that was named has to be there.
func readReconcileFlatFile(p Process, path string, log *slog.Logger) (reconcileFlatFile, error) {
	inline := map[string]any{"type": PluginName}
	if path != "" {
		if _, err := p.ReadFile(path); err != nil {
			return reconcileFlatFile{}, cli.Exit(fmt.Errorf("--flat-file: %w; correct the path or leave it out", err), exitUsage)
		}
		inline["configuration_path"] = path
	}
	stdin, err := json.Marshal(map[string]any{"ipam": inline})
	if err != nil {
		return reconcileFlatFile{}, err
	}
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: stdin, Getenv: p.Getenv, ReadFile: p.ReadFile})
	if cfg == nil {
		return reconcileFlatFile{}, fmt.Errorf("flat file: %w", err)
	}
	if cfg.FlatFile == "" {
		return reconcileFlatFile{}, nil
	}
	content, err := p.ReadFile(cfg.FlatFile)
	if err != nil {
		return reconcileFlatFile{}, fmt.Errorf("flat file: %w", err)
	}
	log.Info("flat file has what definitions leave out", "path", cfg.FlatFile)
	return reconcileFlatFile{content, cfg.CronExpression, cfg.Datastore}, nil
}
