package commands

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/kube"
)

const (
	reasonSliceProblem = "NodeSlicesInvalid"
	reasonNoSlices     = "NodeSlicesExhausted"

	// tellAgain is how often what is still so is told again. Events are kept for an
	// hour.
	tellAgain = 30 * time.Minute

	// nodesNamed is how many nodes a message names.
	nodesNamed = 5
)

// sliceTeller tells the writers of definitions what is wrong with them, by events. The
// name of an event is made from what it says and when, so that several controllers, or
// one that starts again, do not say it twice.
type sliceTeller struct {
	post func(kube.DefinitionEvent)
	now  func() time.Time
	log  *slog.Logger
	told map[string]bool // names of events
}

func newSliceTeller(now func() time.Time, log *slog.Logger) *sliceTeller {
	return &sliceTeller{post: func(kube.DefinitionEvent) {}, now: now, log: log, told: map[string]bool{}}
}

// tell posts what has not been told lately.
func (t *sliceTeller) tell(p *slicePass) {
	told := map[string]bool{}
	definitions := map[string]kube.SliceDefinition{}
	for _, d := range p.Definitions {
		definitions[d.String()] = d
	}
	for _, problem := range p.problems {
		t.warn(told, definitions[problem.Definition.String()], reasonSliceProblem, problem.Text, problem.Text)
	}
	for _, j := range p.jobs {
		for _, text := range j.plan.Problems {
			t.once(told, j.name+text, func() { t.log.Warn("slice pool is odd", "list", j.name, "problem", text) })
		}
		if j.gone() || len(j.plan.Unserved) == 0 {
			continue
		}
		for _, name := range j.definitions {
			t.warn(told, definitions[name], reasonNoSlices, j.name, unservedText(j))
		}
	}
	t.told = told
}

func unservedText(j *sliceJob) string {
	nodes := j.plan.Unserved
	more := ""
	if len(nodes) > nodesNamed {
		more = fmt.Sprintf(" and %d more", len(nodes)-nodesNamed)
		nodes = nodes[:nodesNamed]
	}
	return fmt.Sprintf(`node_slice_size: "/%d" leaves no slice of range %s for %s%s (slice pool %s); widen the range, make node_slice_size longer, or exclude less`,
		j.cut.Size(), j.cut.Prefix(), strings.Join(nodes, ", "), more, j.name)
}

// warn posts one event. What is the same as before is told by content.
func (t *sliceTeller) warn(told map[string]bool, d kube.SliceDefinition, reason, content, message string) {
	slot := t.now().Truncate(tellAgain).Unix()
	name := kube.EventNameOf(d.Name, fmt.Sprint(d.UID, reason, content, slot))
	t.once(told, d.Namespace+"/"+name, func() {
		t.log.Warn("network attachment definition cannot have its slices", "definition", d.String(), "problem", message)
		t.post(kube.DefinitionEvent{Definition: d, Reason: reason, Message: message, Name: name})
	})
}

func (t *sliceTeller) once(told map[string]bool, key string, f func()) {
	if !t.told[key] && !told[key] {
		f()
	}
	told[key] = true
}
