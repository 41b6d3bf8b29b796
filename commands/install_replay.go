package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/whereabouts-cni/whereabouts/commands/installer"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

const (
	// replayInterval is how often queued releases are tried, and the queue is
	// looked at.
	replayInterval = 30 * time.Second

	// replayPause is what other calls of the node have between two batches, and
	// replayBackoff the least time after a try that failed.
	replayPause   = time.Second
	replayBackoff = 5 * time.Second
)

// replayer carries out the queued releases of a node as the plugin's calls do: under
// the same lock, and with the same credentials and code. A node that has no more
// calls would else keep its addresses.
type replayer struct {
	installOptions
	process Process
	log     *slog.Logger
	figures *installFigures // may be nil
	queued  chan struct{}   // something may have been queued

	said string // the last error that the log has told
}

func (o installOptions) replayer(p Process, log *slog.Logger) *replayer {
	return &replayer{installOptions: o, process: p, log: log, queued: make(chan struct{}, 1)}
}

// run goes on until the context ends.
func (r *replayer) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		more, err := r.round(ctx)
		pause, rest := time.Duration(0), replayInterval
		switch {
		case errors.Is(err, errAtWork) || more:
			pause, rest = replayPause, 0
		case err != nil:
			pause, rest = replayBackoff, min(replayBackoff<<min(failures, 10), replayInterval-replayBackoff)
			failures++
		default:
			failures = 0
		}
		if !sleep(ctx, pause) {
			return
		}
		select {
		case <-ctx.Done():
		case <-r.queued:
		case <-time.After(rest):
		}
	}
}

// round carries out some of what is queued, if anything is. more is true if that was
// of some use, and there is more: one batch has its limits.
func (r *replayer) round(ctx context.Context) (more bool, err error) {
	before := r.backlog()
	if before.Length == 0 {
		return false, nil
	}
	err = r.replay(ctx)
	after := r.backlog()
	switch {
	case ctx.Err() != nil: // no failure: it is the end
	case errors.Is(err, errAtWork):
		r.log.Debug("queued releases have to wait", "error", err)
	case err == nil:
		r.said = ""
	case err.Error() != r.said:
		r.said = err.Error()
		r.log.Warn("queued releases have to wait", "releases", before.Length, "error", err)
	}
	return after.Length > 0 && after.Length < before.Length, err
}

// backlog looks at the queue.
func (r *replayer) backlog() node.Backlog {
	b, err := r.releaseQueue("").Backlog()
	if err != nil {
		r.log.Debug("release queue cannot be read", "error", err)
		return node.Backlog{}
	}
	if r.figures != nil {
		r.figures.backlog(b)
	}
	return b
}

var errAtWork = errors.New("a call of the plugin is at work and sees to them")

// replay carries out one batch of what is queued. Before it takes the lock, for which
// calls of the plugin may wait, it makes sure that there is somebody to talk to.
func (r *replayer) replay(ctx context.Context) error {
	if err := r.ready(ctx); err != nil {
		return err
	}
	host, here, err := r.configs()
	if err != nil {
		return err
	}
	if err := r.checkRunDirectory(here.RunDirectory); err != nil {
		return err
	}
	v := verbs{Process{
		Getenv: noEnvironment, ReadFile: r.settings.ReadFile, Now: r.process.Now,
		Version: r.process.Version, Stderr: r.process.Stderr,
	}}
	queue, err := node.OpenQueue(here.RunDirectory, queueKey(host, v))
	if err != nil {
		return fmt.Errorf("WHEREABOUTS_RUN_DIR: %w", err)
	}
	var replayErr error
	did, err := queue.Try(func() {
		w := &worker{
			verbs: v, call: &call{cfg: here, log: r.log, work: r.log}, beat: queue.Beat,
			deliver: func(node.Request, []byte) bool { return false }, // carries out no requests
			queued:  r.releaseQueue(storeName(host)),
		}
		replayErr = r.carryOut(ctx, w)
	})
	if err == nil && !did {
		err = errAtWork
	}
	return errors.Join(err, replayErr)
}

// carryOut is the plugin's own code for queued releases. The lock is held.
func (r *replayer) carryOut(ctx context.Context, w *worker) error {
	ctx, cancel := context.WithTimeout(ctx, delTimeout)
	defer cancel()
	silence := time.AfterFunc(delSilence, cancel)
	defer silence.Stop()
	w.answered = func() { silence.Reset(delSilence); w.beat() }
	if err := w.open(w.verbs); err != nil {
		return err
	}
	defer w.close()
	replays := w.replays(nil)
	w.allocator.Run(ctx, nil, replays)
	w.finishReplays(replays)
	failed := 0
	for _, replay := range replays {
		if replay.Err != nil {
			failed++
		}
	}
	if r.figures != nil {
		r.figures.replays(len(replays)-failed, failed)
	}
	if done := len(replays) - failed; done > 0 {
		r.log.Info("carried out queued releases", "releases", done, "failed", failed)
	}
	return nil
}

// configs answers the configuration of the plugin's calls as they read it, and the
// same with the paths that this process has to use.
func (r *replayer) configs() (host, here *ipam.Config, err error) {
	stdin, err := json.Marshal(map[string]any{"ipam": map[string]any{
		"type": PluginName, "configuration_path": r.settings.FlatFileOnHost(),
	}})
	if err != nil {
		return nil, nil, err
	}
	host, err = ipam.ParseConfig(ipam.Sources{Stdin: stdin, Getenv: noEnvironment, ReadFile: r.settings.ReadFile})
	if err != nil {
		return nil, nil, err
	}
	view := *host
	here = &view
	here.Kubeconfig = r.settings.KubeconfigPath()
	here.RunDirectory = r.here(r.runDir, host.RunDirectory)
	here.StateDirectory = r.here(r.stateDir, host.StateDirectory)
	if r.stateDir != "" {
		host.StateDirectory = installer.OnHost(r.stateDir)
	}
	return host, here, nil
}

// here is where this process sees a directory of the host: where it was told, else
// under the same path or below /host, wherever it is mounted.
func (r *replayer) here(told, onHost string) string {
	if told != "" {
		return told
	}
	if mounted := "/host" + onHost; !exists(onHost) && exists(mounted) {
		return mounted
	}
	return onHost
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// checkRunDirectory makes sure, in a pod, that the host's directory is mounted: a
// lock in a directory that nobody else sees locks nothing.
func (r *replayer) checkRunDirectory(path string) error {
	if installer.InPod(r.settings.ConfDir) && !exists(path) {
		return fmt.Errorf("WHEREABOUTS_RUN_DIR: %s does not exist; mount the host's directory there: "+
			"until then queued releases wait for the next call of the plugin", path)
	}
	return nil
}

// stateDirectory is where this process sees the plugin's directory for what survives
// a reboot.
func (r *replayer) stateDirectory() string {
	if _, here, err := r.configs(); err == nil {
		return here.StateDirectory
	}
	return r.here(r.stateDir, ipam.DefaultStateDirectory)
}

func (r *replayer) releasesDirectory() string { return filepath.Join(r.stateDirectory(), "releases") }
