package ipam_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

var rewriteScenarios = flag.Bool("rewrite", false, "rewrite the expected output in testdata/*.txt")

// TestScenarios runs testdata/*.txt against a real local store. A file is a list
// of steps, each a command, lines of input if it takes any, "----" and the output:
//
//	network NAME                  a network; then its ipam object
//	add NETWORK CONTAINER IF POD  an ADD; POD is namespace/name, with #uid if known, - for none
//	del NETWORK CONTAINER IF POD  a DEL; more words are addresses of the previous result
//	check NETWORK CONTAINER IF POD ADDRESS...
//	gc NETWORK VALID-CONTAINER...
//	forget                        the node loses its journal
//	wait DURATION                 time passes
//	show                          everything that is recorded
//	node NAME                     the calls that follow are on this node; node1 before
//	slices LIST NODE=SLICE...     a list of slices, as "network" or "network, range CIDR"; none at all if nothing follows
//	close NODE SLICE [unseen]     a pool is closed, with "unseen" just after it is read once more
//	serves NETWORK                STATUS
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newScenario(t)
	var rewritten strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		input, want, found := strings.Cut(block+"\n", "----\n")
		if !found { // prose
			rewritten.WriteString(block + "\n\n")
			continue
		}
		command, body, _ := strings.Cut(input, "\n")
		got := s.run(strings.Fields(command), body)
		if got != want && !*rewriteScenarios {
			t.Errorf("%s: %s\ngot:\n%swant:\n%s", file, command, got, want)
		}
		rewritten.WriteString(input + "----\n" + got + "\n")
	}
	if *rewriteScenarios {
		if err := os.WriteFile(file, []byte(strings.TrimSpace(rewritten.String())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

type scenario struct {
	t         *testing.T
	allocator *ipam.Allocator
	state     string
	now       time.Time
	networks  map[string]string
	node      string
	sliced    *slicedStore
}

func newScenario(t *testing.T) *scenario {
	dir := t.TempDir()
	store, err := local.Open(filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := &scenario{
		t: t, state: filepath.Join(dir, "state"), networks: map[string]string{}, node: "node1",
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), sliced: newSlicedStore(store),
	}
	s.allocator = &ipam.Allocator{
		Store: s.sliced, Slices: s.sliced, Journal: node.NewJournal(s.state), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return s.now }, Rand: func(int) int { return 0 },
	}
	return s
}

func (s *scenario) run(command []string, body string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	switch verb := command[0]; verb {
	case "network":
		s.networks[command[1]] = body
		return ""
	case "add":
		assigned, err := s.allocator.Add(ctx, s.config(command[1]), s.owner(command[1:]))
		return outcomeOf(assigned, err)
	case "del":
		return outcomeOf(nil, s.allocator.Release(ctx, s.config(command[1]), s.owner(command[1:]), addresses(command[5:])))
	case "check":
		return outcomeOf(nil, s.allocator.Verify(ctx, s.config(command[1]), s.owner(command[1:]), addresses(command[5:])))
	case "gc":
		valid := map[string]bool{}
		for _, container := range command[2:] {
			valid[container] = true
		}
		n, err := s.allocator.Collect(ctx, command[1], s.node, valid)
		return fmt.Sprintf("freed %d\n", n) + outcomeOf(nil, err)
	case "forget":
		return outcomeOf(nil, os.RemoveAll(s.state))
	case "wait":
		d, err := time.ParseDuration(command[1])
		s.now = s.now.Add(d)
		return outcomeOf(nil, err)
	case "show":
		return s.show(ctx)
	case "node":
		s.node = command[1]
		return ""
	case "slices":
		return s.slices(command[1:])
	case "close":
		s.sliced.close(ipam.PoolID{Node: command[1], Range: netip.MustParsePrefix(command[2])}, len(command) > 3)
		return ""
	case "serves":
		cfg := s.config(command[1])
		cfg.Node = s.node
		return outcomeOf(nil, s.allocator.Serves(ctx, cfg))
	default:
		s.t.Fatalf("no command %q", verb)
		return ""
	}
}

func (s *scenario) config(network string) *ipam.Config {
	stdin := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "bridge", "ipam": %s}`, network, s.networks[network])
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: []byte(stdin)})
	if err != nil && !strings.Contains(err.Error(), "kubeconfig") {
		s.t.Fatal(err)
	}
	return cfg
}

// slices replaces a list; its name may be several words.
func (s *scenario) slices(words []string) string {
	n := 0
	for n < len(words) && !strings.Contains(words[n], "=") {
		n++
	}
	var list []ipam.NodeSlice
	for _, word := range words[n:] {
		node, prefix, _ := strings.Cut(word, "=")
		list = append(list, ipam.NodeSlice{Node: node, Range: netip.MustParsePrefix(prefix)})
	}
	s.sliced.lists[strings.Join(words[:n], " ")] = list
	return ""
}

func (s *scenario) owner(words []string) ipam.Owner {
	o := ipam.Owner{Network: words[0], ContainerID: words[1], IfName: words[2], Node: s.node}
	if words[3] != "-" {
		o.PodRef, o.UID, _ = strings.Cut(words[3], "#")
	}
	return o
}

func addresses(words []string) []netip.Addr {
	var list []netip.Addr
	for _, w := range words {
		list = append(list, netip.MustParseAddr(w))
	}
	return list
}

func outcomeOf(assigned []ipam.Assigned, err error) string {
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ") + "\n"
	}
	var out strings.Builder
	for _, a := range assigned {
		out.WriteString(a.Address.String())
		if a.Gateway.IsValid() {
			out.WriteString(" gateway " + a.Gateway.String())
		}
		out.WriteString("\n")
	}
	return out.String()
}

// show lists the records by pool, and reports what a checker finds.
func (s *scenario) show(ctx context.Context) string {
	snapshot, err := s.allocator.Store.Snapshot(ctx)
	if err != nil {
		return outcomeOf(nil, err)
	}
	var lines []string
	for _, pool := range snapshot.Pools {
		for address, r := range pool.Records {
			lines = append(lines, fmt.Sprintf("%s: %s %s %s %s", pool.ID, address, r.ContainerID, r.IfName, r.Holder()))
		}
	}
	slices.SortFunc(lines, strings.Compare)
	return strings.Join(append(lines, ""), "\n")
}
