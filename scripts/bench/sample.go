package main

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sample is how long each of several calls took.
type sample []time.Duration

// quantile is the smallest value that a share q of the sample does not exceed; 0
// of an empty sample.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func (s sample) median() time.Duration { return s.quantile(0.5) }
func (s sample) p99() time.Duration    { return s.quantile(0.99) }

// atOnce calls f with 0 to n-1, so that up to so many calls run at the same time,
// and answers how long all of them took together.
func atOnce(n, workers int, f func(i int)) time.Duration {
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range min(workers, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	group.Wait()
	return time.Since(began)
}
