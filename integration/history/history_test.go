package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestHistoryShort is the short form for every day.
func TestHistoryShort(t *testing.T) {
	if os.Getenv(timeVariable) != "" {
		t.Skip("TestHistory runs instead, since " + timeVariable + " is set")
	}
	testHistory(t, 20*time.Second)
}

// TestHistory is the long form: HISTORY_TIME says how long.
func TestHistory(t *testing.T) {
	text := os.Getenv(timeVariable)
	if text == "" {
		t.Skip("TestHistoryShort runs instead; set " + timeVariable + " to a duration such as 10m")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", timeVariable, err)
	}
	testHistory(t, length)
}

const (
	timeVariable = "HISTORY_TIME"
	seedVariable = "HISTORY_SEED"
)

func testHistory(t *testing.T, length time.Duration) {
	w := newWorld(t, seed(t))
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
