package mixed

import (
	"strings"
	"testing"
	"time"
)

// The checker accepts a double only if the history shows that it is one of the window.
func TestProof(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(1_700_000_000+int64(second), 0) }
	made := func(second int, who string) change { return change{at(second), false, "x", "default/" + who} }
	gone := func(second int, who string) change { return change{at(second), true, "x", "default/" + who} }
	del := func(from, to int, who string) taking { return taking{"x", "default/" + who, at(from), at(to)} }
	d := double{holding{sandbox: pod("a")}, holding{sandbox: pod("b")}}
	for name, test := range map[string]struct {
		changes []change
		taken   []taking
		gap     time.Duration
		wrong   string // why it is none of the window
	}{
		"taken away, and the next came": {
			[]change{made(10, "a"), gone(20, "a"), made(23, "b")}, []taking{del(19, 21, "c")}, 3 * time.Second, "",
		},
		"the one that was told last had reserved it first": {
			[]change{made(10, "b"), gone(20, "b"), made(23, "a")}, []taking{del(19, 21, "c")}, 3 * time.Second, "",
		},
		"one came and went between": {
			[]change{made(10, "a"), gone(20, "a"), made(21, "c"), gone(24, "c"), made(25, "b")}, []taking{del(19, 21, "c")}, time.Second, "",
		},
		"nothing was deleted": {
			[]change{made(10, "a"), made(23, "b")}, nil, 0, "was there",
		},
		"it was its own DEL": {
			[]change{made(10, "a"), gone(20, "a"), made(23, "b")}, []taking{del(19, 21, "a")}, 0, "not deleted by an older",
		},
		"the DEL deleted its own pod's and was slow to end": {
			[]change{made(5, "c"), gone(9, "c"), made(10, "a"), gone(20, "a"), made(23, "b")}, []taking{del(8, 21, "c")}, 0, "not deleted by an older",
		},
		"it was nobody's DEL": {
			[]change{made(10, "a"), gone(20, "a"), made(23, "b")}, nil, 0, "not deleted by an older",
		},
		"the DEL was at one before": {
			[]change{made(10, "a"), gone(20, "a"), made(23, "b")}, []taking{del(5, 6, "c")}, 0, "not deleted by an older",
		},
		"the DEL was at another address": {
			[]change{made(10, "a"), gone(20, "a"), made(23, "b")}, []taking{{"y", "default/c", at(19), at(21)}}, 0, "not deleted by an older",
		},
		"it was made again": {
			[]change{made(10, "a"), gone(20, "a"), made(21, "a"), made(23, "b")}, []taking{del(19, 21, "c")}, 0, "was there",
		},
		"there never was one": {
			[]change{made(23, "b")}, nil, 0, "has no reservation",
		},
		"the second has made none": {
			[]change{made(10, "a"), gone(20, "a")}, []taking{del(19, 21, "c")}, 0, "has made no reservation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			gap, err := d.prove(test.changes, test.taken)
			if test.wrong == "" && (err != nil || gap != test.gap) {
				t.Errorf("it is one of the window after %s, and the proof says %s, %v", test.gap, gap, err)
			}
			if test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
				t.Errorf("the proof says %v, want that it %q", err, test.wrong)
			}
		})
	}
}

// The ledger finds who holds an address at the same time, and nothing else.
func TestLedger(t *testing.T) {
	t.Parallel()
	l := newLedger()
	x, y := addr("10.0.0.1"), addr("10.0.0.2")
	l.granted(pod("a"), "n", x)
	l.granted(pod("b"), "n", y)
	l.ends(pod("a"), x)
	l.granted(pod("c"), "n", x)
	if len(l.doubles) > 0 {
		t.Errorf("doubles that are none: %v", l.doubles)
	}
	l.granted(pod("d"), "n", x)
	if len(l.doubles) != 1 || l.doubles[0].first.pod != "c" || l.doubles[0].second.pod != "d" {
		t.Errorf("the doubles are %v, want c and d", l.doubles)
	}
}
