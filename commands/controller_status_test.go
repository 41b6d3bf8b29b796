package commands

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

func TestSummaryOfAList(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	cut := func(written string, size int) slice.Cut {
		prefix := netip.MustParsePrefix(written)
		c, err := slice.New(size, ipam.Range{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	definition := func(network string) slice.Definition {
		return slice.Definition{Namespace: "ns", Name: "d", Configs: []slice.Parsed{{Config: &ipam.Config{NetworkName: network}}}}
	}
	problems := []slice.Problem{{Definition: definition("storage"), Text: "why"}, {Definition: definition("other"), Text: "no matter"}}
	job := func(written string, size int, plan slice.Plan) *sliceJob {
		return &sliceJob{sliceTask: &sliceTask{name: "storage", list: ipam.SliceList{Network: "storage"}, cut: cut(written, size)}, plan: plan}
	}
	few := slice.Plan{Whole: true, Allocations: []slice.Allocation{{NodeName: "a", SliceRange: "10.0.0.0/26"}, {SliceRange: "10.0.0.64/26"}}}
	full := few
	full.Unserved = []string{"b"}

	summary := job("10.0.0.0/25", 26, few).summarize(nil, early)
	wantSummary(t, summary, "2 slices, 1 assigned, 1 free, 0 waiting", "NodesServed=True AllNodesServed", "DefinitionsValid=True AllDefinitionsValid")

	j := job("10.0.0.0/25", 26, full)
	j.stored.Summary = summary
	next := j.summarize(problems, late)
	wantSummary(t, next, "2 slices, 1 assigned, 1 free, 1 waiting", "NodesServed=False NodeSlicesExhausted", "DefinitionsValid=False NodeSlicesInvalid")
	if text := next.Conditions[0].Message; !strings.Contains(text, "for b ") {
		t.Errorf("the node without a slice is not named: %q", text)
	}
	if text := next.Conditions[1].Message; text != "ns/d: why" {
		t.Errorf("the definition's problem is told as %q", text)
	}
	j.stored.Summary = next
	if again := j.summarize(problems, late.Add(time.Hour)); !reflect.DeepEqual(again, next) {
		t.Errorf("a status that has not changed is written again: %v, %v", again, next)
	}

	many := slice.Plan{Allocations: few.Allocations}
	wantSummary(t, job("10.0.0.0/8", 27, many).summarize(nil, early), "524288 slices, 1 assigned, 524287 free, 0 waiting",
		"NodesServed=True AllNodesServed", "DefinitionsValid=True AllDefinitionsValid")

	held := job("10.0.0.0/25", 26, slice.Plan{})
	held.held, held.stored.Summary = true, summary
	wantSummary(t, held.summarize(nil, late), "2 slices, 1 assigned, 1 free, 0 waiting", "NodesServed=True AllNodesServed", "DefinitionsValid=False NodeSlicesInvalid")
	gone := &sliceJob{sliceTask: &sliceTask{name: "storage"}}
	gone.stored.Summary = summary
	if kept := gone.summarize(nil, late); kept != summary {
		t.Errorf("the status of a list that is to go is %v", kept)
	}
}

func wantSummary(t *testing.T, s *kube.SliceSummary, numbers string, conditions ...string) {
	t.Helper()
	got := fmt.Sprintf("%s slices, %d assigned, %s free, %d waiting", s.Slices, s.Assigned, s.Free, s.Waiting)
	if got != numbers {
		t.Errorf("the status counts %s, want %s", got, numbers)
	}
	for i, want := range conditions {
		c := s.Conditions[i]
		if got := c.Type + "=" + c.Status + " " + c.Reason; got != want {
			t.Errorf("condition %d is %s, want %s", i, got, want)
		}
	}
}

// pruning is an API server with resource definitions of old versions.
type pruning struct{ sliceCluster }

func (p pruning) WriteSlicePool(ctx context.Context, list kube.SlicePool) (*kube.SlicePool, error) {
	list.Summary = nil
	return p.sliceCluster.WriteSlicePool(ctx, list)
}

// What the API server does not keep is not written again and again.
func TestStatusThatIsPrunedIsWrittenOnce(t *testing.T) {
	for _, prunes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newSliceWorld(t, 1)
			w.define("net", threeSlices)
			w.nodes = map[string]bool{"a": true, "b": true}
			before := w.writes
			c := w.controller(false, 1<<30)
			if prunes {
				c.cluster = pruning{c.cluster}
			}
			go func() {
				for range 5 {
					if err := c.pass(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}()
			for synctest.Wait(); w.turn.next(w.rnd); {
				synctest.Wait()
			}
			if n := w.writes - before; n != 1 {
				t.Errorf("prunes %t: %d writes, want 1", prunes, n)
			}
			if kept := w.lists["net"].Summary != nil; kept == prunes {
				t.Errorf("prunes %t: the list has a summary: %t", prunes, kept)
			}
		})
	}
}
