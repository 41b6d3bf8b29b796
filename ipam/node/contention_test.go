package node

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

var (
	contended = ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}
	quiet     = ipam.PoolID{Range: netip.MustParsePrefix("10.0.1.0/24")}
)

// writes is a write during which so many came through in all.
func writes(n int64, took time.Duration) ipam.Write {
	return ipam.Write{Took: took, Generation: 100 + n, Before: 100, Since: took}
}

func TestContentionIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	c := NewContention(t.TempDir())
	if c.Wrote(contended, writes(1, time.Second)); c.Met(contended) || c.Pause(contended) != 0 {
		t.Error("others are met after a write that met none")
	}
	if c.Note(contended); !c.Met(contended) || c.Pause(contended) != 0 {
		t.Error("a collision is remembered wrongly: it is no reason to hold back")
	}
	c.Wrote(contended, writes(43, 2*time.Second))
	c.Note(contended) // and it does not hide the pause
	// 43 in two seconds are 40 too many, which come through in about one second.
	for range 100 {
		if pause := c.Pause(contended); pause < 400*time.Millisecond || pause > 1500*time.Millisecond {
			t.Fatalf("the pause is %s, want about a second", pause)
		}
	}
	if c.Met(quiet) || c.Pause(quiet) != 0 {
		t.Error("another pool is contended, too")
	}
	old := time.Now().Add(-2 * contentionAge)
	if err := os.Chtimes(c.path(contended), old, old); err != nil {
		t.Fatal(err)
	}
	if c.Met(contended) || c.Pause(contended) != 0 {
		t.Error("others are remembered for ever")
	}
}

// The time since the last write counts: a node that had nothing to do has waited
// already.
func TestPauseRunsFromTheLastWrite(t *testing.T) {
	t.Parallel()
	c := NewContention(t.TempDir())
	c.Wrote(contended, writes(43, 2*time.Second))
	earlier := time.Now().Add(-1600 * time.Millisecond)
	if err := os.Chtimes(c.path(contended), earlier, earlier); err != nil {
		t.Fatal(err)
	}
	if pause := c.Pause(contended); pause != 0 {
		t.Errorf("1.6 s after the write the pause is %s", pause)
	}
}

func TestDamagedContentionIsNoPause(t *testing.T) {
	t.Parallel()
	c := NewContention(t.TempDir())
	for _, content := range []string{"", "x", "1", "-1000000000 1", "9223372036854775807 1", "1000000000 x"} {
		c.Note(contended)
		if err := os.WriteFile(c.path(contended), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if pause := c.Pause(contended); pause != 0 {
			t.Errorf("with %q the pause is %s", content, pause)
		}
		c.Wrote(contended, ipam.Write{Took: time.Second, Generation: 7})
	}
}

func TestNextPause(t *testing.T) {
	t.Parallel()
	second := time.Second
	last := turn{pause: second, generation: 100, at: time.Now().Add(-2 * second)}
	for _, c := range []struct {
		name     string
		last     turn
		write    ipam.Write
		from, to time.Duration
	}{
		{"alone", turn{}, writes(1, second), 0, 0},
		{"with two others", turn{}, writes(3, second), 0, 0},
		{"with 19 others", turn{}, writes(20, 2*second), 800 * time.Millisecond, 900 * time.Millisecond},
		{"with 49 others in a slow pool", turn{}, writes(50, 20*second), maxPause, maxPause},
		{"a read long before counts the rate alone", turn{}, ipam.Write{Took: second / 10, Generation: 140, Before: 100, Since: 2 * second}, 0, 0},
		{"what was not read is taken from the last write", last, ipam.Write{Took: 2 * second, Generation: 143}, 1900 * time.Millisecond, 2100 * time.Millisecond},
		{"nothing known at all", turn{}, ipam.Write{Took: 2 * second, Generation: 143}, 0, 0},
		{"still too many", last, writes(43, 2*second), 1900 * time.Millisecond, 2100 * time.Millisecond},
		{"few enough now", last, writes(2, second), second, second},
		{"alone now", last, writes(1, second), 750 * time.Millisecond, 750 * time.Millisecond},
		{"alone for long", turn{pause: minPause - 1, generation: 1}, writes(1, second), 0, 0},
		{"the pool was made again meanwhile", last, ipam.Write{Took: second, Generation: 2, Before: 100, Since: second}, second, second},
	} {
		if pause := nextPause(c.last, c.write); pause < c.from || pause > c.to {
			t.Errorf("%s: pause %s, want %s to %s", c.name, pause, c.from, c.to)
		}
	}
}
