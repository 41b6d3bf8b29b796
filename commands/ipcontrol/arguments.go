package ipcontrol

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// completionFlag is asked for by shells, behind all other arguments.
const completionFlag = "--generate-bash-completion"

// Arguments puts what stands behind the command's name into the order that the
// command line library needs: the subcommand, its options, the other arguments.
// People write options anywhere, as in "release 10.0.0.1 --yes". What follows "--"
// is no option.
func Arguments(args []string) []string {
	if len(args) > 0 && args[len(args)-1] == completionFlag {
		return args
	}
	takesValue := valueFlags()
	var options, rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		options = append(options, arg)
		if takesValue[strings.TrimLeft(arg, "-")] && i+1 < len(args) {
			i++
			options = append(options, args[i])
		}
	}
	if len(rest) == 0 {
		return options
	}
	ordered := append([]string{rest[0]}, options...)
	if len(rest) > 1 {
		ordered = append(append(ordered, "--"), rest[1:]...)
	}
	return ordered
}

// valueFlags are the names of all options that have a value. An option has the same
// kind under every subcommand.
func valueFlags() map[string]bool {
	found := map[string]bool{}
	for _, sub := range Command(Env{}).Subcommands {
		for _, flag := range sub.Flags {
			if _, isBool := flag.(*cli.BoolFlag); isBool {
				continue
			}
			for _, name := range flag.Names() {
				found[name] = true
			}
		}
	}
	return found
}
