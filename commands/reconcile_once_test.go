package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestSingleRun(t *testing.T) {
	soon := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC) // the bubble's clock begins at midnight
	denied := fmt.Errorf("%w: pods is forbidden", ipam.ErrDenied)
	for name, test := range map[string]struct {
		looks   []report // what the passes come to
		listErr error
		times   []string
		exit    int
		says    string
	}{
		"clean":                      {[]report{{Records: 3}}, nil, []string{"0s"}, 0, ""},
		"cleaned":                    {[]report{{Freed: 3}}, nil, []string{"0s"}, 0, ""},
		"something failed":           {[]report{{Freed: 2, Failed: 1}}, nil, []string{"0s"}, 1, "1 addresses could not be freed"},
		"a second look":              {[]report{{Waiting: 1, Due: soon}, {Freed: 1}}, nil, []string{"0s", "1m30s"}, 0, ""},
		"the second look fails":      {[]report{{Waiting: 1, Due: soon}, {Failed: 1}}, nil, []string{"0s", "1m30s"}, 1, "could not be freed"},
		"the second look puts right": {[]report{{Failed: 1, Due: soon}, {Freed: 1}}, nil, []string{"0s", "1m30s"}, 0, ""},
		"no third look":              {[]report{{Waiting: 1, Due: soon}, {Waiting: 1, Due: soon.Add(time.Hour)}}, nil, []string{"0s", "1m30s"}, 0, ""},
		"no access":                  {nil, denied, []string{"0s"}, 2, "pods is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fakeCluster) {
				f.listErr = test.listErr
				f.clean = func(context.Context, string) report { return test.looks[len(f.looks())-1] }
				err := f.reconciler(never).once(t.Context(), 90*time.Second)
				f.wantLists(test.times...)
				if got := exitOf(err); got != test.exit || test.says != "" && !strings.Contains(err.Error(), test.says) {
					t.Errorf("exit %d (%v), want %d and %q", got, err, test.exit, test.says)
				}
			})
		})
	}
}

// exitOf is the exit code that Main makes of an error.
func exitOf(err error) int {
	var exit cli.ExitCoder
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return exitUsage
}

func TestSingleRunThatCannotReadOneNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		f.clean = func(context.Context, string) report { panic("test") }
		if err := f.reconciler(never).once(t.Context(), time.Minute); exitOf(err) != 1 || !strings.Contains(err.Error(), "not everything was looked at") {
			t.Errorf("exit %d: %v", exitOf(err), err)
		}
	})
}

func TestSingleRunEndsAtASignal(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeCluster) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		f.clean = func(context.Context, string) report { return report{Waiting: 1, Due: time.Now().Add(time.Minute)} }
		if err := f.reconciler(never).once(ctx, time.Hour); err != nil {
			t.Error(err)
		}
		f.wantLists("0s")
		if took := time.Since(f.began); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
