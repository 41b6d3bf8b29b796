package ipcontrol

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// Name is the command; Alias is the name under which kubectl runs it, as
// "kubectl whereabouts".
const (
	Name  = "ip-control"
	Alias = "kubectl-whereabouts"
)

const (
	exitProblems = 1
	exitUsage    = 2

	// readTimeout is how long it may take to read a cluster, writeTimeout to write.
	readTimeout  = 2 * time.Minute
	writeTimeout = 30 * time.Second
)

// Command is ip-control with its subcommands. Its arguments have to pass through
// Arguments first.
func Command(env Env) *cli.Command {
	return &cli.Command{
		Name:            Name,
		Aliases:         []string{Alias},
		Usage:           "show who holds which address, find and repair problems, release and reserve addresses",
		HideHelpCommand: true,
		Subcommands: []*cli.Command{
			showCommand(env), checkCommand(env), releaseCommand(env), reserveCommand(env), importCommand(env), lintCommand(env), completionCommand(env),
		},
		OnUsageError: usageError,
		BashComplete: completeCommands,
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return cli.ShowSubcommandHelp(c)
			}
			var names []string
			for _, sub := range c.Command.Subcommands {
				names = append(names, sub.Name)
			}
			slices.Sort(names)
			return usage("there is no %s command %q; commands: %s", Name, c.Args().First(), strings.Join(names, ", "))
		},
	}
}

func usageError(_ *cli.Context, err error, _ bool) error { return cli.Exit(err, exitUsage) }

func usage(format string, args ...any) error { return cli.Exit(fmt.Errorf(format, args...), exitUsage) }

// refuse is the error of a command that could do what it was asked for, and does not.
func refuse(format string, args ...any) error {
	return cli.Exit(fmt.Errorf(format, args...), exitProblems)
}

// options are what all commands have in common.
type options struct {
	Env
	kubeconfig, local, flatFile string
	namespace, network, pool    string
	output                      string
	yes                         bool
}

func accessFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kubeconfig", Usage: "`path` of a kubeconfig; else KUBECONFIG, the node's own as its flat file names it, the pod's service account"},
		&cli.StringFlag{Name: "local", Usage: "`path` of the file of a local datastore, instead of a cluster"},
		&cli.StringFlag{Name: "flat-file", Usage: "`path` of the node's flat file; else the first of the usual ones"},
		&cli.StringFlag{Name: "namespace", Aliases: []string{"n"}, Usage: "only pools whose objects are in this `namespace`; else in all"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "`form` of the output: table, wide, json or yaml"},
	}
}

func choiceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "network", Usage: "only pools of this `network_name`"},
		&cli.StringFlag{Name: "pool", Usage: "only this `pool`: the name of its object or its range"},
	}
}

func yesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"}
}

// newCommand is one subcommand. It runs until it is done, or a signal ends it.
func newCommand(env Env, name, arguments, what, more string, flags []cli.Flag, run func(context.Context, *cli.Context, options) error) *cli.Command {
	return &cli.Command{
		Name: name, Usage: what, ArgsUsage: arguments, Description: more,
		HideHelpCommand: true,
		Flags:           append(flags, accessFlags()...),
		OnUsageError:    usageError,
		BashComplete:    completeFlags,
		Action: func(c *cli.Context) error {
			o := options{
				Env: env, kubeconfig: c.String("kubeconfig"), local: c.String("local"), flatFile: c.String("flat-file"),
				namespace: c.String("namespace"), network: c.String("network"), pool: c.String("pool"),
				output: c.String("output"), yes: c.Bool("yes"),
			}
			if !slices.Contains([]string{"table", "wide", "json", "yaml"}, o.output) {
				return usage("--output: found %q; write table, wide, json or yaml", o.output)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return ended(ctx, run(ctx, c, o))
		},
	}
}

// ended gives an error without an exit code that of no access.
func ended(ctx context.Context, err error) error {
	var exit cli.ExitCoder
	switch {
	case err == nil || errors.As(err, &exit):
		return err
	case ctx.Err() != nil:
		return cli.Exit("interrupted; what was under way may be half done, and can be done again", exitProblems)
	}
	return cli.Exit(plain(err), exitUsage)
}

// only is the argument of a command that takes one.
func only(c *cli.Context, what string) (string, error) {
	if c.Args().Len() != 1 {
		return "", usage("%s takes one argument, %s; found %d: %s", c.Command.Name, what, c.Args().Len(), strings.Join(c.Args().Slice(), " "))
	}
	return c.Args().First(), nil
}
