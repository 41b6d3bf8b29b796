package commands

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"

	"github.com/whereabouts-cni/whereabouts/commands/ipcontrol"
)

// PluginName is the name under which a runtime calls the CNI plugin.
const PluginName = "whereabouts"

// exitUsage is the exit code of a command line that makes no sense.
const exitUsage = 2

// Main runs the role that the name of the binary and its arguments ask for, and
// returns the exit code. Called by the name of the plugin without an argument it is
// the plugin: a runtime passes none. A symbolic link with the name of a subcommand
// runs that.
func Main(p Process) int {
	name := filepath.Base(p.Args[0])
	if name == PluginName && len(p.Args) == 1 {
		return Plugin(p)
	}
	app := newApp(p)
	arguments := p.Args[1:]
	if app.Command(name) != nil {
		arguments = append([]string{name}, arguments...)
	}
	if len(arguments) > 0 && (arguments[0] == ipcontrol.Name || arguments[0] == ipcontrol.Alias) {
		arguments = append(arguments[:1:1], ipcontrol.Arguments(arguments[1:])...)
	}
	err := app.Run(append([]string{PluginName}, arguments...))
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.Stderr, "%s: %v\n", PluginName, err)
	var exit cli.ExitCoder
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return exitUsage
}

func newApp(p Process) *cli.App {
	app := &cli.App{
		Name:      PluginName,
		Usage:     "IP addresses for Kubernetes' secondary networks, unique in the whole cluster",
		UsageText: "a container runtime runs it as a CNI plugin, without arguments; else: whereabouts COMMAND",
		Version:   p.Version,
		Writer:    p.Stdout,
		ErrWriter: p.Stderr,
		Commands: slices.Concat([]*cli.Command{{
			Name:  "version",
			Usage: "print the version",
			Action: func(c *cli.Context) error {
				_, err := fmt.Fprintln(c.App.Writer, p.Version)
				return err
			},
		}}, reconcileCommands(p), controllerCommands(p), installCommands(p), []*cli.Command{ipcontrol.Command(ipcontrolEnv(p))}),
		EnableBashCompletion: true,
		ExitErrHandler:       func(*cli.Context, error) {}, // Main prints and picks the code
		Action: func(c *cli.Context) error {
			if c.Args().Len() == 0 {
				return cli.ShowAppHelp(c)
			}
			return unknownCommand(c)
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return cli.Exit(err, exitUsage) },
	}
	return app
}

func ipcontrolEnv(p Process) ipcontrol.Env {
	return ipcontrol.Env{
		Getenv: p.Getenv, ReadFile: p.ReadFile, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Now: p.Now,
	}
}

// unknownCommand names the commands there are, and the one that may be meant.
func unknownCommand(c *cli.Context) error {
	given := c.Args().First()
	var names []string
	for _, command := range c.App.VisibleCommands() {
		names = append(names, command.Name)
	}
	slices.Sort(names)
	hint := ""
	if meant := nearest(given, names); meant != "" {
		hint = fmt.Sprintf("; did you mean %q?", meant)
	}
	return cli.Exit(fmt.Sprintf("there is no command %q%s; commands: %s", given, hint, strings.Join(names, ", ")), exitUsage)
}

// nearEnough is the Jaro-Winkler similarity from which on a name may be meant; 1 is
// equal.
const nearEnough = 0.8

// nearest returns the name most like the given one, or "" when none is like it.
func nearest(given string, names []string) string {
	meant, most := "", nearEnough
	for _, name := range names {
		if likeness := smetrics.JaroWinkler(given, name, 0.7, 4); likeness >= most {
			meant, most = name, likeness
		}
	}
	return meant
}
