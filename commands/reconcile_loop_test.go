package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestPassAtTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.running(f.reconciler(never), func() { time.Sleep(time.Hour) })
		f.wantLists("0s")
		f.wantLog("starting reconciler run", "listing IP pools", "no IP addresses to cleanup", "reconciler success")
	})
}

func TestNoPassBeforeTheCachesAreFilled(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.ready = errors.New("pods are not listed")
		f.running(f.reconciler("* * * * *"), func() {
			f.change()
			time.Sleep(5*time.Minute + 50*time.Millisecond)
			f.wantLists()
			if f.book.count("waiting for the cluster") == 0 || f.book.count("pods are not listed") == 0 {
				t.Errorf("log: %s", f.book)
			}
			f.set(func() { f.ready = nil })
			time.Sleep(time.Second)
		})
		f.wantLists("5m0.1s")
	})
}

func TestPassesOnTheSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.running(f.reconciler("*/15 * * * *"), func() { time.Sleep(31 * time.Minute) })
		f.wantLists("0s", "15m0s", "30m0s")
		if got := f.book.count("starting reconciler run"); got != 3 {
			t.Errorf("%d runs in the log, want 3", got)
		}
	})
}

func TestChangesAreLookedAtSoonAndTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.running(f.reconciler(never), func() {
			time.Sleep(70 * time.Second)
			f.change()
			time.Sleep(50 * time.Millisecond)
			f.change()
			time.Sleep(time.Minute)
		})
		f.wantLists("0s", "1m10.1s")
	})
}

func TestChangesWithoutEndAreLookedAtTwiceASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.running(f.reconciler(never), func() {
			time.Sleep(time.Minute)
			for range 2000 {
				f.change()
				time.Sleep(time.Millisecond)
			}
		})
		f.wantLists("0s", "1m0.1s", "1m0.6s", "1m1.1s", "1m1.6s")
	})
}

// What happens while a pass is at work may have come too late for it.
func TestChangeDuringAPassIsLookedAtAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.clean = func(context.Context, string) report {
			if len(f.looks()) == 1 {
				f.change()
			}
			time.Sleep(3 * time.Second)
			return report{}
		}
		f.running(f.reconciler(never), func() { time.Sleep(time.Minute) })
		f.wantLists("0s", "3.1s")
	})
}

func TestPassesDoNotOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		atWork := false
		f.clean = func(context.Context, string) report {
			if atWork {
				t.Error("a pass began while another one was at work")
			}
			atWork = true
			time.Sleep(150 * time.Second)
			atWork = false
			return report{Due: time.Now()}
		}
		f.running(f.reconciler("* * * * *"), func() {
			for range 1000 {
				f.change()
				time.Sleep(time.Second)
			}
		})
		if len(f.looks()) < 5 {
			t.Errorf("looked at %v", f.looks())
		}
	})
}

// However much happens, what the schedule asks for is told as such.
func TestScheduledPassAmongChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.running(f.reconciler("*/5 * * * *"), func() {
			for range 10*60*10 + 10 {
				f.change()
				time.Sleep(100 * time.Millisecond)
			}
		})
		if got := f.book.count("reason=schedule"); got != 3*2 {
			t.Errorf("%d lines of scheduled passes, want 6: %s", got, f.book)
		}
	})
}

func TestSecondLookWhenItIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.spaces = []string{"a", "b", "c"}
		f.clean = func(_ context.Context, namespace string) report {
			if len(f.looks()) > 1 {
				return report{}
			}
			return map[string]report{
				"a": {},
				"b": {Waiting: 1, Due: f.began.Add(90 * time.Second)},
				"c": {Waiting: 1, Due: f.began.Add(70 * time.Second)},
			}[namespace]
		}
		f.running(f.reconciler(never), func() { time.Sleep(time.Hour) })
		f.wantLists("0s", "1m10s")
		scrape(t, f.metrics).want(t, map[string]float64{"whereabouts_reconcile_orphans_waiting": 0})
	})
}

func TestDueInThePastIsNoReasonToHurry(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.clean = func(context.Context, string) report { return report{Due: f.began.Add(-time.Hour)} }
		f.running(f.reconciler(never), func() { time.Sleep(1250 * time.Millisecond) })
		f.wantLists("0s", "500ms", "1s")
	})
}

// A pass that the cluster caused is told of only if it came to something.
func TestChangesDoNotFloodTheLog(t *testing.T) {
	for name, test := range map[string]struct {
		report report
		log    []string
	}{
		"nothing to do": {report{Records: 7, Waiting: 2}, nil},
		"freed":         {report{Freed: 3}, []string{"starting reconciler run", "successfully cleanup IPs", "reconciler success"}},
		"completed":     {report{Completed: 1}, []string{"starting reconciler run", "successfully cleanup IPs", "reconciler success"}},
		"failed":        {report{Failed: 1}, []string{"starting reconciler run", "reconciler failure"}},
		"some failed":   {report{Freed: 1, Failed: 1}, []string{"starting reconciler run", "successfully cleanup IPs", "reconciler failure"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fakeCluster) {
				f.clean = func(context.Context, string) report {
					if len(f.looks()) == 1 {
						return report{}
					}
					return test.report
				}
				f.running(f.reconciler(never), func() {
					time.Sleep(time.Minute)
					f.change()
					time.Sleep(time.Second)
				})
				f.wantLog(append([]string{"starting reconciler run", "listing IP pools", "no IP addresses to cleanup", "reconciler success"}, test.log...)...)
			})
		})
	}
}

func TestClusterThatCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.listErr = fmt.Errorf("%w: connection refused", ipam.ErrUnavailable)
		f.running(f.reconciler(never), func() {
			for range 600 { // it happens a lot meanwhile
				f.change()
				time.Sleep(100 * time.Millisecond)
			}
			if len(f.looks()) != 6 { // 0, 1, 3, 7, 15, 31 s
				t.Errorf("looked at %v", f.looks())
			}
			if f.book.count("reconciler failure") != 6 || f.book.count("connection refused") != 6 {
				t.Errorf("log: %s", f.book)
			}
			f.set(func() { f.listErr = nil })
			time.Sleep(31 * time.Second)
			f.change()
			time.Sleep(time.Second)
		})
		if last := f.looks()[len(f.looks())-2:]; !slices.Equal(last, []string{"1m1s", "1m31.1s"}) {
			t.Errorf("looked at %v", f.looks())
		}
		scrape(t, f.metrics).want(t, map[string]float64{
			`whereabouts_reconcile_passes_total{reason="start",result="failure"}`: 1,
		})
	})
}

// What cannot be freed is tried again, and keeps nothing else waiting for long.
func TestAddressThatCannotBeFreed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.clean = func(context.Context, string) report { return report{Failed: 1} }
		f.running(f.reconciler(never), func() {
			time.Sleep(100 * time.Second)
			f.wantLists("0s", "30s", "1m0s", "1m30s")
			f.change()
			time.Sleep(10 * time.Second)
		})
		f.wantLists("0s", "30s", "1m0s", "1m30s", "1m40.1s")
	})
}

// A cleaner remembers what it has seen once, as long as there is something to clean.
func TestOneCleanerForEachNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.spaces = []string{"b", "a"}
		f.running(f.reconciler("* * * * *"), func() {
			time.Sleep(150 * time.Second)
			f.set(func() { f.spaces = []string{"a"} })
			time.Sleep(time.Minute)
			f.set(func() { f.spaces = []string{"b", "a"} })
			time.Sleep(2 * time.Minute)
		})
		if want := []string{"a", "b", "b"}; !slices.Equal(f.made, want) {
			t.Errorf("made for %v, want %v", f.made, want)
		}
	})
}

// A namespace that cannot be read for once has not gone.
func TestNamespaceThatCannotBeReadForOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.spaces = []string{"a", "b"}
		f.running(f.reconciler("* * * * *"), func() {
			time.Sleep(90 * time.Second)
			f.set(func() { f.spaces, f.partly, f.listErr = []string{"a"}, true, errors.New("pool b/x: refused") })
			time.Sleep(time.Minute)
			f.set(func() { f.spaces, f.partly, f.listErr = []string{"a", "b"}, false, nil })
			time.Sleep(time.Minute)
		})
		if want := []string{"a", "b"}; !slices.Equal(f.made, want) {
			t.Errorf("made for %v, want %v", f.made, want)
		}
		if f.book.count("reconciler failure") == 0 || f.book.count("pool b/x: refused") == 0 {
			t.Errorf("log: %s", f.book)
		}
	})
}

// While watches are down a pass finds nothing new, which must not pass for a success.
func TestPassOverWhatIsOutOfDateIsNoSuccess(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.running(f.reconciler("*/5 * * * *"), func() {
			time.Sleep(time.Minute)
			f.set(func() { f.ready = errors.New("watch pods: connection refused") })
			time.Sleep(5 * time.Minute)
		})
		e := scrape(t, f.metrics)
		e.want(t, map[string]float64{
			`whereabouts_reconcile_passes_total{reason="schedule",result="failure"}`: 1,
			"whereabouts_reconcile_last_success_timestamp_seconds":                   float64(f.began.Unix()),
		})
		if f.book.count("connection refused") == 0 {
			t.Errorf("log: %s", f.book)
		}
	})
}

// Pools that are written all the time are not read at each change.
func TestOnlyChangesMayBeAnsweredFromMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.clean = func(context.Context, string) report {
			if len(f.looks()) == 1 {
				return report{Due: f.began.Add(2 * time.Minute)}
			}
			return report{}
		}
		f.running(f.reconciler("*/5 * * * *"), func() {
			time.Sleep(time.Minute)
			f.change()
			time.Sleep(5 * time.Minute)
		})
		if want := []bool{true, false, true}; !slices.Equal(f.fresh, want) {
			t.Errorf("fresh at the start, a change, and on the schedule: %v, want %v", f.fresh, want)
		}
	})
}

func TestFaultInOneNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.spaces = []string{"a", "b", "c"}
		var cleaned []string
		f.clean = func(_ context.Context, namespace string) report {
			if namespace == "b" {
				panic("nil map")
			}
			cleaned = append(cleaned, namespace)
			return report{Freed: 1}
		}
		f.running(f.reconciler(never), func() {})
		if !slices.Equal(cleaned, []string{"a", "c"}) {
			t.Errorf("cleaned %v", cleaned)
		}
		for _, word := range []string{"reconciler failure", "nil map", "namespace=b", "freed=2"} {
			if f.book.count(word) == 0 {
				t.Errorf("log without %q: %s", word, f.book)
			}
		}
	})
}

func TestPassesHaveADeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.clean = func(ctx context.Context, _ string) report {
			<-ctx.Done()
			return report{Failed: 1}
		}
		r := f.reconciler(never)
		f.running(r, func() {
			time.Sleep(cleanTimeout - time.Second)
			if err := r.heart.alive(); err != nil {
				t.Errorf("while it waits for an answer: %v", err)
			}
			time.Sleep(time.Hour)
		})
		if len(f.looks()) < 3 {
			t.Errorf("looked at %v", f.looks())
		}
	})
}

func TestStuckLoopIsNotAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		end := make(chan struct{})
		f.clean = func(context.Context, string) report { <-end; return report{} }
		r := f.reconciler(never)
		f.running(r, func() {
			time.Sleep(stuckAfter + time.Second)
			if err := r.heart.alive(); err == nil || !strings.Contains(err.Error(), "stuck") {
				t.Errorf("alive: %v", err)
			}
			close(end)
		})
	})
}

func TestSleepingLoopIsAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		r := f.reconciler(never)
		f.running(r, func() {
			for range 100 {
				time.Sleep(time.Minute)
				if err := r.heart.alive(); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

func TestScheduleThatChangesLive(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		files := fakeFiles{"/dir/config": "0 */6 * * *"}
		r := f.reconciler(never)
		r.schedule = newSchedule(scheduleSources{file: "/dir/config", readFile: files.read}, time.Now, slog.New(slog.DiscardHandler))
		f.running(r, func() {
			time.Sleep(time.Hour + time.Second)
			files["/dir/config"] = "*/30 * * * *"
			r.schedule.reload()
			time.Sleep(time.Hour)
			files["/dir/config"] = "nonsense"
			r.schedule.reload()
			time.Sleep(time.Hour)
		})
		f.wantLists("0s", "1h30m0s", "2h0m0s", "2h30m0s", "3h0m0s")
	})
}

// An old computer's clock is put right some time after the start.
func TestClockThatIsSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		r := f.reconciler("*/10 * * * *")
		var wrong atomic.Int64
		wrong.Store(int64(24 * time.Hour))
		r.now = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
		f.running(r, func() {
			time.Sleep(time.Minute)
			wrong.Store(0)
			time.Sleep(10 * time.Minute)
		})
		f.wantLists("0s", "10m0s")
	})
}

func TestEndWhateverItIsDoing(t *testing.T) {
	for name, prepare := range map[string]func(f *fakeCluster){
		"waiting for the caches": func(f *fakeCluster) { f.ready = errors.New("not yet") },
		"waiting for a reason":   func(*fakeCluster) {},
		"in a pass": func(f *fakeCluster) {
			f.clean = func(ctx context.Context, _ string) report { <-ctx.Done(); return report{Failed: 9} }
		},
		"after a failure": func(f *fakeCluster) { f.listErr = errors.New("refused") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fakeCluster) {
				prepare(f)
				before := time.Now()
				f.running(f.reconciler(never), func() { before = time.Now() })
				if took := time.Since(before); took != 0 {
					t.Errorf("took %v", took)
				}
				if name == "in a pass" && f.book.count("reconciler failure") != 0 {
					t.Errorf("the end is no failure: %s", f.book)
				}
			})
		})
	}
}
