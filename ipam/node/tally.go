package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Tally is where the plugin's short-lived processes leave word of what they did, for
// one that runs on and has metrics:
//
//	<run directory>/calls    lines like "ADD ok 12345": verb, result, microseconds
//
// Each process adds its line with one write, without a lock. The file is there only
// if somebody has asked for it (Take), and bounded in case that one has gone. A line
// may get lost; that is no harm.
type Tally struct {
	path string
}

// Call is one call of the plugin that has ended.
type Call struct {
	Verb   string
	Result string // one word
	Took   time.Duration
}

// maxTally is more than the calls of ten seconds take, in bytes.
const maxTally = 256 << 10

// NewTally is the tally below a run directory.
func NewTally(runDirectory string) *Tally { return &Tally{filepath.Join(runDirectory, "calls")} }

// Note adds a call. It costs some microseconds, and nothing depends on it: so it
// answers no error.
func (t *Tally) Note(c Call) {
	file, err := os.OpenFile(t.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // nobody has asked
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() < maxTally {
		_, _ = fmt.Fprintf(file, "%s %s %d\n", c.Verb, c.Result, c.Took.Microseconds())
	}
}

// Take answers the calls since the last time, and has further ones noted. Lines that
// cannot be understood are skipped.
func (t *Tally) Take() ([]Call, error) {
	taken := t.path + ".taken"
	err := os.Rename(t.path, taken)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("tally of calls: %w", err)
	}
	none := err != nil
	fresh, err := os.OpenFile(t.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tally of calls: %w", err)
	}
	fresh.Close()
	if none {
		return nil, nil
	}
	data, err := os.ReadFile(taken)
	if err := errors.Join(err, os.Remove(taken)); err != nil {
		return nil, fmt.Errorf("tally of calls: %w", err)
	}
	var calls []Call
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		if took, err := strconv.ParseInt(words[2], 10, 64); err == nil && took >= 0 {
			calls = append(calls, Call{words[0], words[1], time.Duration(took) * time.Microsecond})
		}
	}
	return calls, nil
}
