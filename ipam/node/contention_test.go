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

func TestContentionIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	c := NewContention(t.TempDir())
	if c.Met(contended) || c.IsCrowded(contended) {
		t.Error("others are met before anything happened")
	}
	if c.Note(contended); !c.Met(contended) || c.IsCrowded(contended) {
		t.Error("a collision is remembered wrongly: it is no crowd")
	}
	if c.Crowded(contended); !c.IsCrowded(contended) {
		t.Error("a crowd is not remembered")
	}
	if c.Met(quiet) || c.IsCrowded(quiet) {
		t.Error("another pool is contended, too")
	}
	for _, path := range []string{c.path(contended), c.crowdPath(contended)} {
		old := time.Now().Add(-2 * crowdAge)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if c.Met(contended) || c.IsCrowded(contended) {
		t.Error("others are remembered for ever")
	}
}

func TestCrowdIsSeenFromTheGenerations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		write ipam.Write
		want  bool
	}{
		{"alone", ipam.Write{Took: time.Second, Generation: 101, Before: 100, Since: time.Second}, false},
		{"with two others", ipam.Write{Took: time.Second, Generation: 103, Before: 100, Since: time.Second}, false},
		{"with 19 others", ipam.Write{Took: 2 * time.Second, Generation: 120, Before: 100, Since: 2 * time.Second}, true},
		{"many, but quick", ipam.Write{Took: slow / 2, Generation: 120, Before: 100, Since: slow / 2}, false},
		{"many over a long time", ipam.Write{Took: time.Second, Generation: 120, Before: 100, Since: 20 * time.Second}, false},
		{"a pool that was not read before", ipam.Write{Took: slow, Generation: 120}, false},
		{"a pool that was not read before, and very slow", ipam.Write{Took: verySlow + 1, Generation: 120}, true},
		{"a pool that was made again meanwhile", ipam.Write{Took: time.Second, Generation: 2, Before: 100, Since: time.Second}, false},
	} {
		c := NewContention(t.TempDir())
		if c.Wrote(contended, tt.write); c.IsCrowded(contended) != tt.want {
			t.Errorf("%s: crowded is %t, want %t", tt.name, !tt.want, tt.want)
		}
	}
}
