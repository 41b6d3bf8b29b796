package ipcontrol

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
)

// bashCompletion asks the program itself what may stand at the cursor. zsh
// understands it with bashcompinit.
const bashCompletion = `_whereabouts_ip_control() {
  local words=("${COMP_WORDS[@]:0:COMP_CWORD}") current="${COMP_WORDS[COMP_CWORD]}"
  if [[ "$current" == -* ]]; then words+=("$current"); fi
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$current"))
}
complete -o default -F _whereabouts_ip_control ip-control kubectl-whereabouts
`

const fishCompletion = `function __whereabouts_ip_control
  set -l words (commandline -opc) (commandline -ct)
  $words[1..-2] (string match -- '-*' $words[-1]) --generate-bash-completion 2>/dev/null
end
complete -c ip-control -f -a '(__whereabouts_ip_control)'
complete -c kubectl-whereabouts -f -a '(__whereabouts_ip_control)'
`

// completeCommands and completeFlags print what may stand at the cursor; the shell
// picks what fits.
func completeCommands(c *cli.Context) {
	for _, sub := range c.Command.Subcommands {
		fmt.Fprintln(c.App.Writer, sub.Name)
	}
}

func completeFlags(c *cli.Context) {
	for _, flag := range c.Command.Flags {
		fmt.Fprintln(c.App.Writer, "--"+flag.Names()[0])
	}
}

func completionCommand(env Env) *cli.Command {
	return newCommand(env, "completion", "bash|zsh|fish", "print what makes a shell complete this command",
		"Put into the shell's start-up file:\n  bash, zsh: source <(ip-control completion bash), or zsh\n  fish:      ip-control completion fish | source",
		nil, func(_ context.Context, c *cli.Context, o options) error {
			shell, err := only(c, "the name of a shell")
			if err != nil {
				return err
			}
			switch shell {
			case "bash":
				_, err = fmt.Fprint(o.Stdout, bashCompletion)
			case "zsh":
				_, err = fmt.Fprint(o.Stdout, "autoload -U +X bashcompinit && bashcompinit\n"+bashCompletion)
			case "fish":
				_, err = fmt.Fprint(o.Stdout, fishCompletion)
			default:
				return usage("completion: there is none for %q; write bash, zsh or fish", shell)
			}
			return err
		})
}
