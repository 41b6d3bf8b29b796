package commands

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// Conditions of a list. A definition has no status that they could be in.
const (
	conditionServed = "NodesServed"
	conditionValid  = "DefinitionsValid"
)

// summarize is what the status of a list says to people. It is that of before where
// nothing is known now.
func (j *sliceJob) summarize(problems []slice.Problem, now time.Time) *kube.SliceSummary {
	before := j.stored.Summary
	if j.err != nil || j.gone() || j.held && before == nil {
		return before
	}
	var summary, old kube.SliceSummary
	if before != nil {
		old = *before
	}
	served := condition(conditionServed, len(j.plan.Unserved) == 0, "AllNodesServed", reasonNoSlices)
	if j.held {
		summary = old
		served = find(old.Conditions, conditionServed)
	} else {
		summary = j.counts()
	}
	if len(j.plan.Unserved) > 0 {
		served.Message = unservedText(j)
	}
	texts := j.refused(problems)
	valid := condition(conditionValid, len(texts) == 0 && !j.held, "AllDefinitionsValid", reasonSliceProblem)
	valid.Message = problemText(texts, j.held)
	summary.Conditions = []kube.SliceCondition{since(served, old.Conditions, now), since(valid, old.Conditions, now)}
	return &summary
}

// counts is the numbers of a summary.
func (j *sliceJob) counts() kube.SliceSummary {
	assigned := len(owners(j.plan.Allocations))
	all := big.NewInt(int64(len(j.plan.Allocations)))
	if !j.plan.Whole { // there are too many to see which of them are of use
		all = j.cut.Count()
	}
	free := new(big.Int).Sub(all, big.NewInt(int64(assigned)))
	return kube.SliceSummary{Slices: all.String(), Assigned: assigned, Free: free.String(), Waiting: len(j.plan.Unserved)}
}

// refused is what is wrong with definitions that name the network of the list.
func (j *sliceJob) refused(problems []slice.Problem) []string {
	var texts []string
	for _, p := range problems {
		names := func(c slice.Parsed) bool {
			return c.Config != nil && cmp.Or(c.Config.NetworkName, c.Config.Name) == j.list.Network
		}
		if slices.ContainsFunc(p.Definition.Configs, names) {
			texts = append(texts, p.Definition.String()+": "+p.Text)
		}
	}
	return texts
}

func problemText(texts []string, held bool) string {
	if len(texts) == 0 && held {
		return "a network attachment definition that may be about this network cannot be understood, so the slices stay as they are; " +
			"events on the definitions say what to change"
	}
	more := ""
	if n := len(texts) - nodesNamed; n > 0 {
		texts, more = texts[:nodesNamed], fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(texts, "; ") + more
}

func condition(kind string, holds bool, yes, no string) kube.SliceCondition {
	reason := no
	if holds {
		reason = yes
	}
	return kube.SliceCondition{Type: kind, Status: title(strconv.FormatBool(holds)), Reason: reason}
}

// title makes the booleans of Go those of conditions.
func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func find(conditions []kube.SliceCondition, kind string) kube.SliceCondition {
	i := slices.IndexFunc(conditions, func(c kube.SliceCondition) bool { return c.Type == kind })
	if i < 0 {
		return condition(kind, true, "AllNodesServed", "")
	}
	return conditions[i]
}

// since puts in when the status of a condition changed last.
func since(c kube.SliceCondition, old []kube.SliceCondition, now time.Time) kube.SliceCondition {
	c.Since = now.UTC().Format(time.RFC3339)
	for _, before := range old {
		if before.Type == c.Type && before.Status == c.Status {
			c.Since = before.Since
		}
	}
	return c
}
