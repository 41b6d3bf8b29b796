package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestHistory takes 20 seconds; HISTORY_TIME asks for another time.
func TestHistory(t *testing.T) { testHistory(t, 20*time.Second, newKubeStore) }

// TestHistoryOnEtcd takes 15 seconds, or HISTORY_TIME.
func TestHistoryOnEtcd(t *testing.T) { testHistory(t, 15*time.Second, newEtcdStore) }

const (
	timeVariable = "HISTORY_TIME"
	seedVariable = "HISTORY_SEED"
)

func testHistory(t *testing.T, length time.Duration, open func(*testing.T, *atlas) datastore) {
	if text := os.Getenv(timeVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", timeVariable, err)
		}
	}
	w := newWorld(t, seed(t), open)
	fmt.Printf("history: %s=%d\n", seedVariable, w.seed)
	w.run(length)
	w.settle()
	fmt.Println(w.summary())
	if w.stats.total() == 0 || w.audited.Load() == 0 {
		t.Error("nothing was tried, or nothing was looked at")
	}
}

func seed(t *testing.T) uint64 {
	text := os.Getenv(seedVariable)
	if text == "" {
		return rand.Uint64N(1_000_000)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	return n
}
