package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/commands/installer"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

const (
	installName = "install"

	// installListen is on the host's network, since the installer has to work before
	// there is any other: not for everyone.
	installListen = "127.0.0.1:18080"

	// exitFailed is the exit code when the command line is fine and the work was
	// not done.
	exitFailed = 1

	// ownBinary is this process's, also when its file has been replaced or removed.
	ownBinary = "/proc/self/exe"
)

const installDescription = `Copies this binary into the directory of the CNI plugins and writes what the plugin
needs to reach the cluster, with the service account of the pod it runs in. Then it
keeps all that as it should be, renews the token, and carries out queued releases.

Environment: CNI_BIN_DIR (/host/opt/cni/bin), CNI_CONF_DIR (/host/etc/cni/net.d),
KUBECONFIG_MODE (600), WHEREABOUTS_KUBECONFIG_FILE_HOST, NODENAME,
WHEREABOUTS_NAMESPACE, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT,
KUBERNETES_SERVICE_PROTOCOL, KUBE_CA_FILE, SKIP_TLS_VERIFY,
WHEREABOUTS_RECONCILER_CRON, WHEREABOUTS_STATE_DIR, WHEREABOUTS_RUN_DIR,
SLEEP (false is --once).`

func installCommands(p Process) []*cli.Command {
	return []*cli.Command{{
		Name:            installName,
		Usage:           "put the plugin and its configuration on this node, and keep them there",
		Description:     installDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "kubeconfig", Usage: "`path` of a kubeconfig to install as it is; without it one is made of the pod's service account"},
			&cli.StringFlag{Name: "service-account", Value: installer.DefaultServiceAccount, Usage: "`directory` with token, ca.crt and namespace"},
			&cli.BoolFlag{Name: "once", Usage: "install and end"},
			&cli.BoolFlag{Name: "uninstall", Usage: "remove what was installed, and end; stop what installs it first"},
			listenFlag(installListen),
			logLevelFlag(),
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return cli.Exit(err, exitUsage) },
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cli.Exit(fmt.Sprintf("%s takes no argument, found %q; options begin with --", installName, c.Args().First()), exitUsage)
			}
			o, err := readInstallOptions(c, p)
			if err != nil {
				return cli.Exit(err, exitUsage)
			}
			return untilSignal(func(ctx context.Context) error { return o.run(ctx, p) })
		},
	}}
}

// installOptions is the command line and the environment of the installer.
type installOptions struct {
	settings        installer.Settings
	once, uninstall bool
	listen          string
	logLevel        string
	stateDir        string // where this process sees the plugin's directories;
	runDir          string // "" is where the plugin does
	badSleep        string // SLEEP, if it means nothing
}

func readInstallOptions(c *cli.Context, p Process) (installOptions, error) {
	o := installOptions{
		once: c.Bool("once"), uninstall: c.Bool("uninstall"), listen: c.String("listen"), logLevel: c.String("log-level"),
		stateDir: p.Getenv("WHEREABOUTS_STATE_DIR"), runDir: p.Getenv("WHEREABOUTS_RUN_DIR"),
	}
	if sleep := strings.TrimSpace(p.Getenv("SLEEP")); sleep != "" {
		stays, err := strconv.ParseBool(strings.ToLower(sleep))
		if err != nil {
			o.badSleep = sleep
		}
		o.once = o.once || err == nil && !stays
	}
	if c.IsSet("service-account") && !filepath.IsAbs(c.String("service-account")) {
		return o, fmt.Errorf("--service-account: found %q; write an absolute path", c.String("service-account"))
	}
	var err error
	if o.uninstall {
		o.settings, err = installer.ReadPlaces(p.Getenv)
	} else {
		o.settings, err = installer.ReadSettings(p.Getenv, c.String("kubeconfig"), c.String("service-account"))
	}
	for name, path := range map[string]string{"WHEREABOUTS_STATE_DIR": o.stateDir, "WHEREABOUTS_RUN_DIR": o.runDir} {
		if path != "" && !filepath.IsAbs(path) {
			err = errors.Join(err, fmt.Errorf("%s: found %q; write an absolute path, one that begins with /", name, path))
		}
	}
	return o, err
}

// run is the role. What cannot be installed now is tried again as long as it runs on:
// the token has to be kept fresh even if, say, the disk is too full for the binary.
func (o installOptions) run(ctx context.Context, p Process) error {
	log := roleLog(p, o.logLevel)
	if o.badSleep != "" {
		log.Warn("variable is ignored: it says neither true nor false", "SLEEP", o.badSleep)
	}
	if o.uninstall {
		return o.remove(p, log)
	}
	if o.settings.NodeName == "" {
		log.Warn("NODENAME is not set: the plugin takes the name of this node from /etc/hostname, which may be another one")
	}
	if o.settings.Mode&0o004 != 0 {
		log.Warn("everyone on this node may read the credentials", "KUBECONFIG_MODE", fmt.Sprintf("%o", o.settings.Mode))
	}
	role := newInstallRole(o, p, log)
	if err := role.apply(); err != nil && o.once {
		return cli.Exit(err, exitFailed)
	}
	if o.once {
		return nil
	}
	return role.runOn(ctx)
}

// remove is --uninstall.
func (o installOptions) remove(p Process, log *slog.Logger) error {
	state := o.replayer(p, log).stateDirectory()
	removed, err := installer.Remove(o.settings, p.Now())
	for _, path := range removed.Gone {
		log.Info("removed", "path", path)
	}
	for _, path := range removed.Left {
		log.Warn("left in place: there is something that was not installed by this", "path", path)
	}
	backlog, queueErr := node.NewReleases(state, "").Backlog()
	if left := backlog.Length + backlog.Corrupt; left > 0 || queueErr != nil {
		log.Warn("queued releases stay: the plugin carries them out when it is installed again, and until then the reconcile role frees their addresses",
			"directory", filepath.Join(state, "releases"), "releases", left)
	} else {
		// Only if they are empty: addresses of the local store may be in there, too.
		for _, directory := range []string{"releases", "journal", ""} {
			_ = os.Remove(filepath.Join(state, directory))
		}
	}
	if err = errors.Join(err, queueErr); err != nil {
		return cli.Exit(err, exitFailed)
	}
	return nil
}
