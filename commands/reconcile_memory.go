package commands

import (
	"context"
	"runtime/debug"
	gauges "runtime/metrics"
	"time"
)

const (
	// leastMemory is what the runtime may take in any case, in bytes. With the
	// binary's own pages it makes 64 MiB, in which 20 000 pods fit.
	leastMemory = 44 << 20

	memoryInterval = time.Second
)

// keepSmall has the garbage collector begin early while the process would else grow
// beyond leastMemory: by itself it lets garbage become as large as what is in use,
// and a cluster is read page by page, with much garbage, to keep little. In larger
// clusters the limit grows with what is in use, or collecting would never end. An
// operator's own setting (GOMEMLIMIT, GOGC) stays. It returns when the context ends.
func keepSmall(ctx context.Context, getenv func(string) string) {
	if getenv("GOMEMLIMIT") != "" || getenv("GOGC") != "" {
		return
	}
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for limit := int64(0); ctx.Err() == nil; {
		if l := memoryLimit(memoryInUse()); l != limit {
			limit = l
			debug.SetMemoryLimit(limit)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// memoryInUse is what the last collection left, in bytes.
func memoryInUse() uint64 {
	sample := []gauges.Sample{{Name: "/gc/heap/live:bytes"}}
	gauges.Read(sample)
	if sample[0].Value.Kind() != gauges.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// memoryLimit is what the runtime may take while so much is in use: a quarter more, and
// some for what is no heap.
func memoryLimit(inUse uint64) int64 {
	return max(leastMemory, int64(inUse)/4*5+4<<20)
}
