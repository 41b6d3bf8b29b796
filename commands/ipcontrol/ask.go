package ipcontrol

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks whether to go on, at a terminal; elsewhere only --yes is a yes.
func (o options) confirm(question string) error {
	if o.yes {
		return nil
	}
	if !o.terminal(o.Stdin) {
		return refuse("nothing was changed: nobody can be asked here; say --yes")
	}
	fmt.Fprintf(o.Stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(o.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return refuse("nothing was changed")
}
