package main

import (
	"fmt"
	"slices"
	"strings"
)

// plan says how many calls are made.
type plan struct {
	starts   int   // of VERSION
	singles  int   // ADDs, and DELs, of each kind, one at a time
	counted  int   // ADDs, and DELs, whose requests are counted
	burst    int   // ADDs in all, when many are made at once
	atOnce   []int // how many of them at once on one node
	nodes    int   // that the last of these is spread over
	records  []int // how many pools hold already
	perPool  int   // ADDs to each such pool
	peerADDs int   // one at a time, of each plugin
}

func fullPlan() plan {
	return plan{
		starts: 200, singles: 100, counted: 10, burst: 200, atOnce: []int{1, 10, 40}, nodes: 20,
		perPool: 40, peerADDs: 50,
	}
}

// shortPlan keeps what a figure is about, such as 40 at once, and makes fewer calls.
func shortPlan() plan {
	return plan{
		starts: 60, singles: 20, counted: 3, burst: 80, atOnce: []int{1, 10, 40}, nodes: 20,
		perPool: 10, peerADDs: 10,
	}
}

// most is the greatest number of calls at once.
func (p plan) most() int { return slices.Max(p.atOnce) }

func (o options) check() error {
	if !slices.Contains(formats(), o.format) {
		return fmt.Errorf("-format %q: use one of %s", o.format, strings.Join(formats(), ", "))
	}
	for _, name := range o.only {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("-only: there is no part %q: use some of %s", name, strings.Join(partNames(), ", "))
		}
	}
	if slices.Contains(o.only, "peer") && o.peer == "" {
		return fmt.Errorf("-only peer: name the other plugin by -peer")
	}
	return nil
}

// wanted reports whether a part is to be run.
func (o options) wanted(part string) bool {
	if part == "peer" && o.peer == "" {
		return false
	}
	return len(o.only) == 0 || slices.Contains(o.only, part)
}
