package node

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestContentionIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	c := NewContention(t.TempDir())
	pool := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}
	other := ipam.PoolID{Range: netip.MustParsePrefix("10.0.1.0/24")}
	if c.Wrote(pool, slowWrite-1); c.Met(pool) || c.Pause(pool) != 0 {
		t.Error("others are met after a write that was not slow")
	}
	if c.Note(pool); !c.Met(pool) || c.Pause(pool) != 0 {
		t.Error("a collision is remembered wrongly: it is no reason to hold back")
	}
	c.Wrote(pool, time.Minute)
	c.Note(pool) // and it does not hide the slow write
	longest := time.Duration(0)
	for range 100 {
		longest = max(longest, c.Pause(pool))
	}
	if longest == 0 || longest > maxPause {
		t.Errorf("after a slow write the longest of 100 pauses is %s", longest)
	}
	if c.Met(other) || c.Pause(other) != 0 {
		t.Error("another pool is contended, too")
	}
	old := time.Now().Add(-2 * contentionAge)
	if err := os.Chtimes(c.path(pool), old, old); err != nil {
		t.Fatal(err)
	}
	if c.Met(pool) || c.Pause(pool) != 0 {
		t.Error("others are remembered for ever")
	}
	if err := os.WriteFile(c.path(pool), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.Pause(pool) != 0 {
		t.Error("a broken file makes a pause")
	}
}
