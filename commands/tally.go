package commands

import (
	"context"
	"slices"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

// Results of calls, as the metrics name them.
const (
	callOK     = "ok"
	callFailed = "failed"
	callQueued = "queued"
)

// note leaves word of a call for the installer.
func (v verbs) note(c *call, t *task, a answer) {
	result := callOK
	switch {
	case a.Error == nil:
	case a.Unreachable && t.Verb == "DEL":
		result = callQueued
	default:
		result = callFailed
	}
	node.NewTally(c.cfg.RunDirectory).Note(node.Call{Verb: t.Verb, Result: result, Took: v.Now().Sub(t.Began)})
}

// noted takes down calls of the plugin. Words that no plugin writes would make series
// without end.
func (f *installFigures) noted(calls []node.Call) {
	for _, c := range calls {
		known := slices.Contains([]string{"ADD", "DEL"}, c.Verb) && slices.Contains([]string{callOK, callFailed, callQueued}, c.Result)
		if known {
			f.calls.add(1, c.Verb, c.Result)
			f.duration.observe(c.Took.Seconds(), c.Verb)
		}
	}
}

// tallyInterval is how often the calls of the plugin are counted. The file in which
// they are noted must not fill up.
const tallyInterval = 5 * time.Second

// count counts the calls of the plugin until the context ends.
func (r *replayer) count(ctx context.Context) {
	for {
		if _, here, err := r.configs(); err == nil && r.checkRunDirectory(here.RunDirectory) == nil {
			calls, err := node.NewTally(here.RunDirectory).Take()
			if err != nil {
				r.log.Debug("calls of the plugin are not counted", "error", err)
			}
			r.figures.noted(calls)
		}
		if !sleep(ctx, tallyInterval) {
			return
		}
	}
}
