package ipcontrol

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

const (
	defaultGrace = time.Minute

	// leastGrace is the time that one ADD has: until then half a record may be one
	// that is being written.
	leastGrace = time.Minute
)

const checkHelp = `Finds what contradicts itself in the datastore, and what contradicts the cluster:
duplicates, records without pods, pods without records, halves of records, addresses
outside their range, entries that cannot be read, and releases left on this node.

--fix repairs what is safe, just as the clean-up does: it frees what no living pod
holds and completes half records of living ones. Some of it takes two looks, one
grace time apart.`

func checkCommand(env Env) *cli.Command {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "fix", Usage: "repair what is safe; asks first, or needs --yes"},
		yesFlag(),
		&cli.StringFlag{Name: "grace", Value: defaultGrace.String(), Usage: "`time` between the two looks of --fix, and for which a record counts as under way; not below 60s without need"},
	}
	return newCommand(env, "check", "", "find what is wrong with what is stored, and repair what is safe", checkHelp, flags,
		func(ctx context.Context, c *cli.Context, o options) error {
			if c.Args().Present() {
				return usage("check takes no argument, found %q; -n restricts it to one namespace", c.Args().First())
			}
			grace, err := time.ParseDuration(c.String("grace"))
			if err != nil || grace <= 0 {
				return usage("--grace: %q is not a time; write it like 60s", c.String("grace"))
			}
			a, err := o.open()
			if err != nil {
				return err
			}
			defer a.close()
			ch := checker{options: o, access: a, grace: grace}
			if c.Bool("fix") {
				return ch.checkAndFix(ctx)
			}
			found, err := ch.find(ctx)
			if err != nil {
				return err
			}
			return ch.finish(found, nil)
		})
}

// checker finds problems.
type checker struct {
	options
	*access
	grace time.Duration
}

// finding is what a check found.
type finding struct {
	problems []problem
	unread   []string // what could not be looked at
	pools    int
	records  int
}

// checkDocument is what check prints.
type checkDocument struct {
	Problems []problem       `json:"problems"`
	Unread   []string        `json:"notLookedAt,omitempty"`
	Pools    int             `json:"pools"`
	Records  int             `json:"records"`
	Repaired *repairDocument `json:"repaired,omitempty"` // of --fix
}

// finish prints what was found and makes the exit code. Something that was not
// looked at is no access: nobody shall take it for a clean result.
func (ch checker) finish(f finding, repaired *repairDocument) error {
	var err error
	if ch.machine() {
		err = ch.print(checkDocument{f.problems, f.unread, f.pools, f.records, repaired})
	} else {
		err = ch.write(f)
	}
	switch {
	case err != nil:
		return err
	case len(f.problems) > 0:
		return refuse("%s found", plural(len(f.problems), "problem"))
	case len(f.unread) > 0:
		return usage("not everything could be looked at: %s", strings.Join(f.unread, "; "))
	}
	return nil
}

func (ch checker) write(f finding) error {
	for _, words := range f.unread {
		ch.warn("not looked at: %s", words)
	}
	last := problemKind("")
	for i := range f.problems {
		p := &f.problems[i]
		if p.Kind != last {
			if last != "" {
				fmt.Fprintln(ch.Stdout)
			}
			title, remedy := p.Kind.words()
			fmt.Fprintf(ch.Stdout, "%s (%d)\n  what to do: %s\n", title, f.count(p.Kind), remedy)
			last = p.Kind
		}
		fmt.Fprintf(ch.Stdout, "  - %s\n", printable(p.line()))
	}
	if len(f.problems) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(ch.Stdout, "no problems: %s with %s\n", plural(f.pools, "pool"), plural(f.records, "record"))
	return err
}

func (f finding) count(kind problemKind) int {
	n := 0
	for _, p := range f.problems {
		if p.Kind == kind {
			n++
		}
	}
	return n
}
