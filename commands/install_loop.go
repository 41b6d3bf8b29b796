package commands

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/commands/installer"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	// installPoll is how often all files are looked at without being told that one
	// changed.
	installPoll = 30 * time.Second

	// applyGap lies between two looks, whatever happens. After one that failed it
	// doubles up to applyBackoff: what failed may itself change files.
	applyGap     = 200 * time.Millisecond
	applyBackoff = 30 * time.Second

	// Whether the credentials work is asked seldom, since every node asks.
	credentialsInterval = 5 * time.Minute
	credentialsRetry    = 15 * time.Second
	credentialsTimeout  = 10 * time.Second
)

// installRole keeps a node as it should be.
type installRole struct {
	installOptions
	process   Process
	log       *slog.Logger
	installer *installer.Installer
	replayer  *replayer
	metrics   *metrics
	figures   *installFigures
	heart     *heart

	touched   chan struct{} // something on disk may have changed
	rewritten chan struct{} // the kubeconfig has
	seen      time.Time     // when it was written last
	refused   atomic.Bool   // the node's credentials are

	mutex       sync.Mutex
	problem     error // of the last look at the files
	credentials error // of the last try
}

var errUntried = errors.New("the credentials have not been tried yet")

func newInstallRole(o installOptions, p Process, log *slog.Logger) *installRole {
	m := newMetrics()
	m.buildInfo(p.Version)
	r := &installRole{
		installOptions: o, process: p, log: log, metrics: m, figures: newInstallFigures(m), heart: newHeart(p.Now),
		installer: installer.New(o.settings, ownBinary, p.Version, p.Now, log.Warn),
		touched:   make(chan struct{}, 1), rewritten: make(chan struct{}, 1), credentials: errUntried,
	}
	r.replayer = o.replayer(p, log)
	r.replayer.figures = r.figures
	return r
}

// knock leaves a message for a loop, if there is none yet.
func knock(door chan<- struct{}) {
	select {
	case door <- struct{}{}:
	default:
	}
}

// runOn goes on until the context ends.
func (r *installRole) runOn(ctx context.Context) error {
	stop, err := observed{r.metrics, r.alive, r.ready}.serve(r.listen, r.log)
	if err != nil {
		return cli.Exit(err, exitFailed)
	}
	defer stop()
	touch := func() { knock(r.touched) }
	watches := []directoryWatch{
		{directory: r.settings.Directory(), look: touch},
		{directory: r.settings.BinDir, look: touch},
		{directory: r.replayer.releasesDirectory(), look: func() { knock(r.replayer.queued) }},
	}
	for _, source := range r.settings.Sources() {
		watches = append(watches, directoryWatch{directory: source, look: touch})
	}
	var all sync.WaitGroup
	for _, w := range watches {
		w.poll, w.log = installPoll, r.log
		all.Go(func() { w.run(ctx) })
	}
	all.Go(func() { r.keep(ctx) })
	all.Go(func() { r.tryCredentials(ctx) })
	all.Go(func() { r.replayer.run(ctx) })
	all.Go(func() { r.replayer.count(ctx) })
	all.Wait()
	return nil
}

// keep looks at the files when they may have changed, and now and then.
func (r *installRole) keep(ctx context.Context) {
	failures := 0
	for {
		r.heart.beat()
		if !sleep(ctx, min(applyGap<<min(failures, 10), applyBackoff)) {
			return
		}
		if failures == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.touched:
			case <-time.After(installPoll):
			}
		}
		failures++
		if r.apply() == nil {
			failures = 0
		}
	}
}

// sleep answers false when the context has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// apply has everything put in place that is not.
func (r *installRole) apply() error {
	if r.refused.Swap(false) {
		r.installer.Reclaim()
	}
	written, err := r.installer.Apply()
	for _, path := range written {
		r.log.Info("installed", "path", path)
	}
	r.lookAtKubeconfig()
	r.figures.applied(written, err, r.settings.TokenExpiry(), r.process.Now())
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case err != nil && (r.problem == nil || r.problem.Error() != err.Error()):
		r.log.Error("installation is not complete", "error", err)
	case err == nil && r.problem != nil:
		r.log.Info("installation is complete")
	}
	r.problem = err
	return err
}

// lookAtKubeconfig has the credentials tried when there are others, of whomever.
func (r *installRole) lookAtKubeconfig() {
	info, err := os.Stat(r.settings.KubeconfigPath())
	if err == nil && !info.ModTime().Equal(r.seen) {
		r.seen = info.ModTime()
		knock(r.rewritten)
	}
}

// tryCredentials asks the API server now and then whether the plugin may work with
// what is installed.
func (r *installRole) tryCredentials(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.replayer.ready(ctx)
		if ctx.Err() != nil {
			return
		}
		r.noteCredentials(err)
		pause := credentialsInterval
		if err != nil {
			pause = credentialsRetry
		}
		if errors.Is(err, ipam.ErrDenied) {
			r.refused.Store(true)
			knock(r.touched)
		}
		select {
		case <-ctx.Done():
		case <-r.rewritten:
		case <-time.After(pause):
		}
	}
}

func (r *installRole) noteCredentials(err error) {
	r.figures.tried(err)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case err != nil && (r.credentials == nil || r.credentials.Error() != err.Error()):
		r.log.Error("the node's credentials do not work", "error", err)
	case err == nil && r.credentials != nil:
		r.log.Info("the node's credentials work")
		knock(r.replayer.queued)
	}
	r.credentials = err
}

func (r *installRole) alive() error {
	if r.heart.alive() != nil {
		return errors.New("the installer is stuck: a directory of the host does not answer")
	}
	return nil
}

// ready answers what keeps the plugin on this node from working.
func (r *installRole) ready() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err := errors.Join(r.problem, r.credentials); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// ready makes one cheap request with the node's credentials.
func (r *replayer) ready(ctx context.Context) error {
	client, err := kube.NewClient(kube.Options{Kubeconfig: r.settings.KubeconfigPath(), Getenv: noEnvironment})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	return kube.NewStore(client, nil).Ready(ctx)
}

func noEnvironment(string) string { return "" }

// releaseQueue is the node's queue, as this process sees it.
func (r *replayer) releaseQueue(store string) *node.Releases {
	return node.NewReleases(r.stateDirectory(), store)
}
