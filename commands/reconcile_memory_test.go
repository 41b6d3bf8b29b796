package commands

import (
	"runtime"
	"testing"
)

func TestMemoryLimitGrowsWithWhatIsInUse(t *testing.T) {
	for inUse, want := range map[uint64]int64{
		0: 44 << 20, 10 << 20: 44 << 20, 32 << 20: 44 << 20, 40 << 20: 54 << 20, 400 << 20: 504 << 20,
	} {
		if got := memoryLimit(inUse); got != want {
			t.Errorf("%d MiB in use: limit %d MiB, want %d", inUse>>20, got>>20, want>>20)
		}
	}
}

func TestMemoryInUseIsMeasured(t *testing.T) {
	runtime.GC()
	before := memoryInUse()
	kept := make([]byte, 32<<20)
	runtime.GC()
	if grown := int64(memoryInUse()) - int64(before); grown < 16<<20 {
		t.Errorf("32 MiB more in use, and %d bytes of it are seen", grown)
	}
	runtime.KeepAlive(kept)
}
