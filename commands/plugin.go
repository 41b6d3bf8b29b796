package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

// How long a verb may take. Before the time for its work, an ADD or a DEL may wait
// for other calls of the node, so long as both stay below what a runtime allows
// (about two minutes).
const (
	addTimeout    = 60 * time.Second
	checkTimeout  = 30 * time.Second
	gcTimeout     = 60 * time.Second
	statusTimeout = 10 * time.Second

	// A DEL must not hold up the end of a pod: it gives up when the datastore
	// has not answered for delSilence. While it answers, and others are merely
	// faster, it goes on until delTimeout.
	delSilence  = 5 * time.Second
	delTimeout  = 25 * time.Second
	delRollback = 500 * time.Millisecond // of what a DEL does for others
)

var (
	addPatience = node.Patience{Still: 38 * time.Second, Limit: 38 * time.Second}
	delPatience = node.Patience{Still: 2500 * time.Millisecond, Limit: 25 * time.Second}
)

// Process is the edges of a process, passed in so that a role can run in a test.
type Process struct {
	Args     []string // os.Args
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Now      func() time.Time
	Version  string // of this build
}

// Plugin is the CNI plugin: it carries out the verb that CNI_COMMAND names and
// returns the exit code. stdout gets one JSON document, a result or an error (CNI
// spec 1.1, sections 3 and 5).
func Plugin(p Process) int {
	stdin, err := p.checkedStdin()
	if err == nil {
		// skel reads the process's own standard input.
		err = withStdin(stdin, func() *types.Error {
			v := verbs{p}
			funcs := skel.CNIFuncs{Add: v.add, Del: v.del, Check: v.check, GC: v.gc, Status: v.status}
			return skel.PluginMainFuncsWithError(funcs, cniversion.All, "CNI plugin whereabouts "+p.Version)
		})
	}
	if err == nil {
		return 0
	}
	data, _ := json.MarshalIndent(err, "", "    ") // three plain fields
	fmt.Fprintf(p.Stdout, "%s\n", data)
	return 1
}

// checkedStdin reads the network configuration. Text that is not JSON is refused
// here, with the place of the fault: what skel says of it would echo the input.
func (p Process) checkedStdin() ([]byte, *types.Error) {
	if command := p.Getenv("CNI_COMMAND"); command == "" || command == "VERSION" {
		return nil, nil
	}
	data, err := io.ReadAll(p.Stdin)
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "read the network configuration from stdin", err.Error())
	}
	if err := ipam.CheckJSON(data, "network configuration"); err != nil {
		return nil, cniError(err)
	}
	return data, nil
}

// withStdin runs f with data as the process's standard input.
func withStdin(data []byte, f func() *types.Error) *types.Error {
	r, w, err := os.Pipe()
	if err != nil {
		return types.NewError(types.ErrIOFailure, "pass on the network configuration", err.Error())
	}
	go func() {
		_, _ = w.Write(data) // a reader that stops early needs no more
		w.Close()
	}()
	original := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = original; r.Close() }()
	return f()
}

// verbs are the CNI verbs.
type verbs struct {
	Process
}

// call is one verb on its way.
type call struct {
	cfg       *ipam.Config
	owner     ipam.Owner
	allocator *ipam.Allocator
	log       *slog.Logger // of this call
	work      *slog.Logger // of work that may be done for other calls, too
	answered  func()       // called when the store answers; may be nil
}

// run reads the configuration, opens log and store, and calls f with a deadline.
// The error it returns is a *types.Error, whatever happens.
func (v verbs) run(verb string, args *skel.CmdArgs, timeout time.Duration, f func(context.Context, *call) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(v.Stderr, "whereabouts %s: panic: %v\n%s", verb, r, debug.Stack())
			err = types.NewError(codeInternal, fmt.Sprintf("whereabouts %s: internal error: %v", verb, r), "")
		}
	}()
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: args.StdinData, Args: args.Args, Getenv: v.Getenv, ReadFile: v.ReadFile})
	if err != nil {
		return cniError(err)
	}
	log, closeLog := openLog(cfg, v.Stderr)
	defer closeLog()
	c := &call{cfg: cfg, owner: ownerOf(cfg, args), work: log}
	c.log = log.With("verb", verb, "network", cfg.Name)
	if c.owner.ContainerID != "" {
		c.log = c.log.With("owner", c.owner)
	}
	for _, w := range cfg.Warnings {
		c.log.Warn("configuration", "warning", w)
	}
	defer c.close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := f(ctx, c); err != nil {
		c.log.Error("failed", "error", err)
		return describe(cniError(err), err, cfg)
	}
	return nil
}

// open opens the store, which a process that others work for never needs.
func (c *call) open(v verbs) error {
	if c.allocator != nil {
		return nil
	}
	store, err := openStore(c.cfg, v.Getenv, c.answered)
	if err != nil {
		return err
	}
	lists, _ := store.(ipam.Slices)
	c.allocator = &ipam.Allocator{
		Store: store, Slices: lists, Journal: node.NewJournal(c.cfg.StateDirectory), Contention: node.NewContention(c.cfg.RunDirectory),
		Now: v.Now, Rand: rand.IntN, Log: c.work,
	}
	return nil
}

func (c *call) close() {
	if c.allocator != nil {
		c.allocator.Store.Close()
	}
}

func ownerOf(cfg *ipam.Config, args *skel.CmdArgs) ipam.Owner {
	owner := ipam.Owner{
		ContainerID: args.ContainerID, IfName: args.IfName, PodRef: cfg.Pod.Ref(), Node: cfg.Node, Network: cfg.Name,
	}
	if owner.PodRef != "" {
		owner.UID = cfg.Pod.UID
	}
	return owner
}

// add gives addresses and prints the result.
func (v verbs) add(args *skel.CmdArgs) error {
	// skel makes this check after the verb, when the address would be lost.
	if err := checkNetNS(args); err != nil {
		return err
	}
	began := v.Now()
	return v.run("ADD", args, addPatience.Limit+addTimeout, func(ctx context.Context, c *call) error {
		if err := refuse(c.cfg); err != nil {
			return err
		}
		t := &task{Verb: "ADD", Stdin: args.StdinData, Args: args.Args, Owner: c.owner, Began: began}
		a := v.combine(ctx, c, t, addPatience, addTimeout)
		if a.Error != nil {
			return a.Error
		}
		c.log.Info("assigned", "addresses", addressesOf(a.Assigned))
		return printResult(v.Stdout, c.cfg, a.Assigned)
	})
}

// refuse answers what is wrong with a configuration for all verbs but DEL and GC,
// which never fail because of that.
func refuse(cfg *ipam.Config) error {
	err := errors.Join(append(cfg.Invalid, cfg.ArgsErr)...)
	if err == nil && cfg.Sliced() && cfg.Datastore != ipam.DatastoreKubernetes {
		// To ignore it would give out addresses of other nodes' slices.
		err = fmt.Errorf("%w: node_slice_size: datastore is %s, and slices need %s; remove one of the two keys",
			ipam.ErrInvalid, cfg.Datastore, ipam.DatastoreKubernetes)
	}
	return err
}

func checkNetNS(args *skel.CmdArgs) error {
	if args.NetnsOverride == "1" || args.NetnsOverride == "TRUE" || args.NetnsOverride == "true" {
		return nil
	}
	same, err := ns.CheckNetNS(args.Netns)
	if err != nil {
		return err
	}
	if same {
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace of the plugin itself; "+
			"it has to be the container's", args.Netns)
	}
	return nil
}

// del frees addresses. A release that cannot reach the datastore is queued on the
// node, to be carried out by a later call: the end of a pod does not wait for it.
func (v verbs) del(args *skel.CmdArgs) error {
	began := v.Now()
	return v.run("DEL", args, delPatience.Limit+delTimeout, func(ctx context.Context, c *call) error {
		previous, err := previousAddresses(c.cfg)
		if err != nil {
			c.log.Warn("previous result is ignored", "error", err)
		}
		if err := node.NewMarks(c.cfg.RunDirectory).Set(c.owner, began); err != nil {
			c.log.Debug("a late ADD of this container would not be noticed", "error", err)
		}
		t := &task{Verb: "DEL", Stdin: args.StdinData, Args: args.Args, Owner: c.owner, Previous: previous, Began: began}
		a := v.combine(ctx, c, t, delPatience, delTimeout)
		if a.Error == nil {
			return nil
		}
		if !a.Unreachable {
			return a.Error
		}
		c.log.Error("release is queued: the datastore cannot be reached", "error", a.Error)
		removal := ipam.NewRemoval(node.NewJournal(c.cfg.StateDirectory), c.cfg, c.owner, previous)
		if err := node.NewReleases(c.cfg.StateDirectory, storeName(c.cfg)).Put(removal, v.Now()); err != nil {
			return types.NewError(types.ErrTryAgainLater, a.Error.Msg, err.Error())
		}
		return nil
	})
}

// check verifies that the addresses in use are recorded.
func (v verbs) check(args *skel.CmdArgs) error {
	return v.run("CHECK", args, checkTimeout, func(ctx context.Context, c *call) error {
		if err := refuse(c.cfg); err != nil {
			return err
		}
		if c.cfg.PrevResult == nil {
			return fmt.Errorf("%w: prevResult is missing; CHECK needs the result of the ADD", ipam.ErrInvalid)
		}
		prev, err := previousAddresses(c.cfg)
		if err != nil {
			return err
		}
		if err := c.open(v); err != nil {
			return err
		}
		return c.allocator.Verify(ctx, c.cfg, c.owner, prev)
	})
}

// gc frees what the containers that are gone held of this network on this node.
func (v verbs) gc(args *skel.CmdArgs) error {
	return v.run("GC", args, gcTimeout, func(ctx context.Context, c *call) error {
		if c.cfg.ValidAttachments == nil {
			c.log.Debug("no list of valid attachments: nothing to free")
			return nil
		}
		valid := map[string]bool{}
		for _, a := range *c.cfg.ValidAttachments {
			valid[a.ContainerID] = true
		}
		if err := c.open(v); err != nil {
			return err
		}
		freed, err := c.allocator.Collect(ctx, c.cfg.Name, c.cfg.Node, valid)
		if err != nil {
			return err
		}
		c.log.Info("garbage collection", "freed", freed)
		return nil
	})
}

// statusPause lies between two looks at a datastore that does not answer.
const statusPause = 500 * time.Millisecond

// ready makes one cheap request; where nodes have slices, one for each range, which
// finds out whether this node has any.
func (c *call) ready(ctx context.Context) error {
	if !c.cfg.Sliced() {
		return c.allocator.Store.Ready(ctx)
	}
	return c.allocator.Serves(ctx, c.cfg)
}

// status says whether an ADD can be served. A short outage must not make the node
// unready, so it tries again for a while.
func (v verbs) status(args *skel.CmdArgs) error {
	err := v.run("STATUS", args, statusTimeout, func(ctx context.Context, c *call) error {
		if err := refuse(c.cfg); err != nil {
			return err
		}
		if err := c.open(v); err != nil {
			return err
		}
		for {
			err := c.ready(ctx)
			if err == nil || !isUnavailable(err) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(statusPause):
			}
		}
	})
	if e, ok := err.(*types.Error); ok && e.Code != types.ErrInvalidNetworkConfig && e.Code != types.ErrDecodingFailure {
		return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
	}
	return err
}
