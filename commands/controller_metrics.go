package commands

import "time"

// controllerFigures are the metrics of the controller.
type controllerFigures struct {
	assigned, full, unserved gaugeFamily
	problems                 gaugeFamily
	passes, writes           counterFamily
	duration                 histogramFamily
	success                  gaugeFamily
}

func newControllerFigures(m *metrics) *controllerFigures {
	return &controllerFigures{
		assigned: m.gauge("whereabouts_controller_slices_assigned", "Slices that nodes have, of each slice pool.", "pool"),
		full:     m.gauge("whereabouts_controller_slices_full", "1 when the range of the slice pool has no free slice left: the next node gets none.", "pool"),
		unserved: m.gauge("whereabouts_controller_nodes_without_slice", "Nodes on which no pod of the network starts, since all slices are in use.", "pool"),
		problems: m.gauge("whereabouts_controller_definition_problems", "Mistakes in network attachment definitions because of which they get no slices; their events say what to change."),
		passes:   m.counter("whereabouts_controller_passes_total", "Looks at all networks, by how they ended; after a conflict another controller was faster, and after a failure the log has the reason.", "result"),
		writes:   m.counter("whereabouts_controller_writes_total", "Objects that were written: slice pools (list), and pools of nodes that were marked or opened (pool).", "object"),
		duration: m.histogram("whereabouts_controller_pass_duration_seconds", "How long looks at all networks took.", []float64{0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60}),
		success:  m.gauge("whereabouts_controller_last_success_timestamp_seconds", "When the last look ended that did not fail, in seconds since 1970; zero before the first one."),
	}
}

// passed takes down one pass.
func (f *controllerFigures) passed(err error, took time.Duration, now time.Time) {
	result := "success"
	switch {
	case err == nil:
		f.success.set(float64(now.UnixMilli()) / 1000)
	case onlyChanged(err):
		result = "conflict"
	default:
		result = "failure"
	}
	f.passes.add(1, result)
	f.duration.observe(took.Seconds())
}

func (f *controllerFigures) written(object string) { f.writes.add(1, object) }

// lists takes down the state of each list, as it shall be.
func (f *controllerFigures) lists(p *slicePass) {
	f.problems.set(float64(len(p.problems)))
	for gauge, value := range map[gaugeFamily]func(j *sliceJob) int{
		f.assigned: func(j *sliceJob) int { return len(owners(j.plan.Allocations)) },
		f.unserved: func(j *sliceJob) int { return len(j.plan.Unserved) },
		f.full: func(j *sliceJob) int {
			if j.plan.Full {
				return 1
			}
			return 0
		},
	} {
		gauge.replace(func(set func(float64, ...string)) {
			for i, j := range p.jobs {
				if i < maxPoolSeries && j.err == nil && !j.gone() {
					set(float64(value(j)), j.name)
				}
			}
		})
	}
}
