// Command bench measures the plugin as a runtime meets it: the built binary, one
// process for each call, against a real API server on this machine (see package
// testenv). It prints each figure with its ratio to a floor that is measured in
// the same run and in turn with it, since figures alone say more about the machine:
//
//   - an empty Go program, for what starting a process costs;
//   - a program that makes one GET and one small CREATE over a fresh TLS
//     connection with the standard library, for what recording an address costs.
//
// Usage, in the repository:
//
//	go run ./scripts/bench [-short] [-format text|markdown|json] [-peer BINARY]
//
// After each part it checks that no call failed, no address was given out twice,
// and nothing is left when all are released. If something is, the exit code is 1.
// No time ever makes it fail. Another IPAM plugin for comparison (-peer) is run in
// turn with ours, with the same configuration; what that one does wrong is told,
// and changes no exit code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	report, err := measure(ctx, o, stderr)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitInterrupted
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n%s", err, list("PROBLEMS until then", report.Problems))
		return exitFailed
	}
	if err := report.write(stdout, o.format); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	if len(report.Problems) > 0 {
		return exitFailed
	}
	return 0
}

// options are the command line.
type options struct {
	binary, peer string // "" for ours: build it; for the peer: none
	format       string
	only         []string // names of parts; none is all
	plan         plan
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	binary := flags.String("binary", "", "measure this `file` instead of building the plugin")
	peer := flags.String("peer", "", "another CNI IPAM plugin (a `file`) to compare with")
	format := flags.String("format", "text", "text, markdown or json")
	short := flags.Bool("short", false, "fewer calls of everything, for a quick look")
	only := flags.String("only", "", "`parts` to run, separated by commas: "+strings.Join(partNames(), ", "))
	records := flags.String("records", "0,100,1000", "fill pools with these `numbers` of records, the first is compared with")
	if err := flags.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = fmt.Errorf("command line: %w", err)
		}
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	o := options{binary: *binary, peer: *peer, format: *format, plan: fullPlan()}
	if *short {
		o.plan = shortPlan()
	}
	var err error
	if o.plan.records, err = parseNumbers(*records); err != nil {
		return o, fmt.Errorf("-records: %w", err)
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	return o, o.check()
}

func parseNumbers(list string) ([]int, error) {
	var numbers []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > mostRecords {
			return nil, fmt.Errorf("%q is not a number of records up to %d: use a list like 0,100,1000", text, mostRecords)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
