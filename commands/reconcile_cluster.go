package commands

import (
	"context"
	"log/slog"
	"sync"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// reconcileRole is the clean-up with all that it needs.
type reconcileRole struct {
	reconcileOptions
	process Process
	flat    reconcileFlatFile
	client  *kube.Client
	log     *slog.Logger
}

// view is how a role sees the cluster.
type view interface {
	stored
	reclaim.Cluster
	reclaim.Networks
	Ranges(ipam.PoolID) []ipam.Range
}

// reconciler puts the parts together, without a schedule.
func (r reconcileRole) reconciler(v view, events reclaim.Recorder, m *metrics) *reconciler {
	live := kube.Live(r.client)
	return &reconciler{
		status: &statusKeeper{
			stored: v, ranges: v.Ranges, now: r.process.Now, log: r.log,
			write: func(ctx context.Context, namespace string, id ipam.PoolID, u ipam.Usage) error {
				return kube.NewStore(r.client.In(namespace), nil).WriteStatus(ctx, id, u)
			},
		},
		stored: v, ranges: v.Ranges, figures: newReconcileFigures(m), heart: newHeart(r.process.Now), now: r.process.Now, log: r.log,
		newClean: func(namespace string) cleaner {
			return namespaceCleaner{&reclaim.Reclaimer{
				Store: kube.NewStore(r.client.In(namespace), nil), Known: v, Live: live, Networks: v, Events: events,
				Grace: r.grace, KeepUnreachable: r.keepUnreachable, Now: r.process.Now, Log: r.log.With("namespace", namespace),
			}}
		},
	}
}

// runOnce lists the cluster, without watches, once or twice.
func (r reconcileRole) runOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go keepSmall(ctx, r.process.Getenv)
	events := kube.NewRecorder(r.client)
	defer events.Close()
	return r.reconciler(&pictures{client: r.client, flat: r.flat.content}, events, newMetrics()).once(ctx, r.grace)
}

// runOn watches the cluster until the context ends.
func (r reconcileRole) runOn(ctx context.Context) error {
	m := newMetrics()
	m.buildInfo(r.process.Version)
	events := kube.NewRecorder(r.client)
	defer events.Close()
	m.counterOf("whereabouts_events_dropped_total", "Events on pods that could not be delivered; nothing else is lost with them.",
		func() float64 { return float64(events.Dropped()) })
	watcher := kube.NewWatcher(r.client, r.flat.content)
	loop := r.reconciler(watched{watcher}, events, m)
	loop.waiting = &waitingTeller{stored: watched{watcher}, waiting: watcher.Waiting, ranges: watcher.Ranges, events: events, now: r.process.Now, log: r.log}
	stop, err := observed{metrics: m, alive: loop.heart.alive, ready: watcher.Ready}.serve(r.listen, r.log)
	if err != nil {
		return err
	}
	defer stop()
	loop.schedule = newSchedule(scheduleSources{
		flag: r.schedule, file: r.scheduleFile, env: r.process.Getenv(scheduleVariable), flatFile: r.flat.schedule,
		readFile: r.process.ReadFile,
	}, r.process.Now, r.log)
	var group sync.WaitGroup
	group.Go(func() { watcher.Run(ctx) })
	group.Go(func() { loop.schedule.watch(ctx) })
	group.Go(func() { keepSmall(ctx, r.process.Getenv) })
	loop.run(ctx)
	group.Wait()
	return nil
}

// watched is a cluster that is watched.
type watched struct{ *kube.Watcher }

func (w watched) Snapshots(ctx context.Context, fresh bool) (map[string]*ipam.Snapshot, error) {
	if fresh {
		return w.Fresh(ctx)
	}
	return w.Watcher.Snapshots(ctx)
}

// pictures is a cluster that is listed anew for each look.
type pictures struct {
	client *kube.Client
	flat   []byte
	*kube.Picture
}

func (p *pictures) Snapshots(ctx context.Context, _ bool) (map[string]*ipam.Snapshot, error) {
	p.Picture = nil // or there would be two in memory
	picture, err := kube.ReadCluster(ctx, p.client, p.flat)
	if err != nil {
		return nil, err
	}
	p.Picture = picture
	return picture.Snapshots(ctx)
}

func (p *pictures) Changed() <-chan struct{} { return nil }
func (p *pictures) Ready() error             { return nil }

// namespaceCleaner is a Reclaimer in the words of the loop.
type namespaceCleaner struct{ *reclaim.Reclaimer }

func (c namespaceCleaner) Pass(ctx context.Context, snapshot *ipam.Snapshot) report {
	found := c.Reclaimer.Pass(ctx, snapshot)
	return report{
		Records: found.Records, Freed: found.Freed, Completed: found.Completed, Removed: found.Removed,
		Duplicates: found.Duplicates, Unreadable: found.Unreadable, Failed: found.Failed, Waiting: found.Waiting, Due: found.Due,
	}
}
