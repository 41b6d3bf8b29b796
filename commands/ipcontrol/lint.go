package ipcontrol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const lintHelp = `Reads a network configuration, or a list of plugins, as the plugin would on a node, and
explains what it does. What the plugin tolerates and ignores is an error here.
Where a cluster can be reached, its other definitions and its own ranges are compared.`

func lintCommand(env Env) *cli.Command {
	flags := []cli.Flag{
		&cli.StringSliceFlag{Name: "pod-cidr", Usage: "`range` of the cluster's pods, to look for overlaps; may come several times"},
		&cli.StringSliceFlag{Name: "service-cidr", Usage: "`range` of the cluster's services; may come several times"},
	}
	return newCommand(env, "lint", "FILE|-|NAMESPACE/DEFINITION", "explain a network configuration, and what is wrong with it", lintHelp, flags,
		func(ctx context.Context, c *cli.Context, o options) error {
			what, err := only(c, "a file, - or NAMESPACE/DEFINITION")
			if err != nil {
				return err
			}
			l := linter{options: o, doc: &lintDocument{Findings: []lintFinding{}, Ranges: []rangeDocument{}}}
			for flag, use := range map[string]string{"pod-cidr": "pods", "service-cidr": "services"} {
				for _, cidr := range c.StringSlice(flag) {
					p, err := ipam.ParsePrefix(cidr)
					if err != nil {
						return usage("--%s: %w", flag, err)
					}
					l.taken = append(l.taken, kube.ClusterRange{Range: p.Masked(), For: use})
				}
			}
			return l.lint(ctx, what)
		})
}

// lintDocument is what lint prints.
type lintDocument struct {
	Source   string          `json:"source"`
	Ranges   []rangeDocument `json:"ranges"`
	Findings []lintFinding   `json:"findings"`
}

// rangeDocument explains one range.
type rangeDocument struct {
	Key      string   `json:"key"` // where it is written
	Network  string   `json:"network,omitempty"`
	Range    string   `json:"range"`
	First    string   `json:"first"`
	Last     string   `json:"last"`
	Usable   string   `json:"usable"`   // from first to last
	Excluded string   `json:"excluded"` // of usable
	Count    string   `json:"count"`    // that are handed out
	Blocked  []string `json:"blocked,omitempty"`
	Slices   string   `json:"slices,omitempty"` // how many nodes can have one
	PerSlice string   `json:"perSlice,omitempty"`
	Pool     string   `json:"pool,omitempty"` // name of the object, unless each slice has its own
	Overlap  bool     `json:"overlapProtection"`
}

// lintFinding is something that is said about a configuration.
type lintFinding struct {
	Level string `json:"level"` // error, warning or note
	Text  string `json:"text"`
}

const (
	levelError   = "error"
	levelWarning = "warning"
	levelNote    = "note"
)

type linter struct {
	options
	doc   *lintDocument
	taken []kube.ClusterRange
	self  string // the definition itself, which is no other one
	rows  []lintRange
}

// lintRange is a range with what it belongs to.
type lintRange struct {
	key string
	cfg *ipam.Config
	ipam.Range
}

func (l *linter) say(level, format string, args ...any) {
	l.doc.Findings = append(l.doc.Findings, lintFinding{level, fmt.Sprintf(format, args...)})
}

func (l *linter) lint(ctx context.Context, what string) error {
	l.doc.Source = what
	a, accessErr := l.open()
	if accessErr == nil {
		defer a.close()
	}
	text, err := l.read(ctx, what, a, accessErr)
	if err != nil {
		return err
	}
	l.explain(text)
	l.compareOwn()
	if accessErr == nil && a.client != nil {
		l.compareCluster(ctx, a)
	}
	l.compareTaken()
	return l.finish()
}

// read answers the text of a file, of stdin or of a definition of the cluster. A file
// that exists comes first.
func (l *linter) read(ctx context.Context, what string, a *access, accessErr error) ([]byte, error) {
	if what == "-" {
		return io.ReadAll(l.Stdin)
	}
	data, err := l.ReadFile(what)
	if err == nil {
		return data, nil
	}
	namespace, name, ok := strings.Cut(what, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, usage("lint: %w; name a file, - for stdin, or NAMESPACE/DEFINITION", err)
	}
	if accessErr != nil {
		return nil, fmt.Errorf("lint: there is no file %s, and the cluster cannot be asked: %w", what, accessErr)
	}
	if a.client == nil {
		return nil, usage("lint: there is no file %s, and a local datastore has no definitions", what)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	in, err := kube.Inspect(ctx, a.client, a.flat, kube.Scope{})
	if err != nil {
		return nil, err
	}
	for _, d := range in.Definitions {
		if d.Namespace == namespace && d.Name == name {
			l.self = d.String()
			return []byte(d.Config), nil
		}
	}
	if len(in.Missing) > 0 {
		return nil, errors.Join(in.Missing...)
	}
	return nil, refuse("lint: there is neither a file nor a network attachment definition %s", what)
}

func (l *linter) finish() error {
	if l.machine() {
		if err := l.print(l.doc); err != nil {
			return err
		}
	} else {
		l.write()
	}
	errs := 0
	for _, f := range l.doc.Findings {
		if f.Level == levelError {
			errs++
		}
	}
	if errs > 0 {
		return refuse("%s found", plural(errs, "error"))
	}
	return nil
}

func (l *linter) write() {
	for _, r := range l.doc.Ranges {
		fmt.Fprintf(l.Stdout, "%s: %s", r.Key, r.Range)
		if r.Network != "" {
			fmt.Fprintf(l.Stdout, " of network %s", printable(r.Network))
		}
		fmt.Fprintf(l.Stdout, "\n  hands out   %s to %s\n  addresses   %s (%s usable, %s excluded)\n", r.First, r.Last, countText(r.Count), countText(r.Usable), countText(r.Excluded))
		if r.Pool == "" {
			fmt.Fprintln(l.Stdout, "  pool        one for each slice")
		} else {
			fmt.Fprintf(l.Stdout, "  pool        %s\n", r.Pool)
		}
		if len(r.Blocked) > 0 {
			fmt.Fprintf(l.Stdout, "  left out    %s\n", strings.Join(r.Blocked, ", "))
		}
	}
	for _, f := range l.doc.Findings {
		fmt.Fprintf(l.Stdout, "%s: %s\n", f.Level, printable(f.Text))
	}
	if len(l.doc.Findings) == 0 {
		fmt.Fprintln(l.Stdout, "nothing is wrong with it")
	}
}
