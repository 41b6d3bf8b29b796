package commands

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// defaultSchedule holds when nothing else says when to run.
	defaultSchedule = "*/5 * * * *"

	// scheduleFile is where the ConfigMap's key is mounted.
	scheduleFile = "/cron-schedule/config"

	scheduleVariable = "WHEREABOUTS_RECONCILER_CRON"
)

// scheduleKeys are the keys of the ConfigMap, which are the names of files when it is
// mounted as a whole.
var scheduleKeys = []string{"cron-expression", "reconciler_cron_expression"}

// scheduleSources is where an expression may come from, in the order in which they
// win. A source that is empty, or blank, is not set.
type scheduleSources struct {
	flag     string // --schedule
	file     string // path; the keys of the ConfigMap are looked for beside it
	env      string
	flatFile string // reconciler_cron_expression of the flat file

	readFile func(string) ([]byte, error)
}

// find answers the expression that wins, unchecked, and its source in words. A file
// that is there and cannot be read is an error: it may be the one that counts.
func (s scheduleSources) find() (expression, source string, err error) {
	if e := strings.TrimSpace(s.flag); e != "" {
		return e, "--schedule", nil
	}
	if e, path, err := s.findFile(); e != "" || err != nil {
		return e, path, err
	}
	if e := strings.TrimSpace(s.env); e != "" {
		return e, scheduleVariable, nil
	}
	if e := strings.TrimSpace(s.flatFile); e != "" {
		return e, "reconciler_cron_expression of the flat file", nil
	}
	return defaultSchedule, "default", nil
}

func (s scheduleSources) findFile() (expression, path string, err error) {
	paths := []string{s.file}
	for _, key := range scheduleKeys {
		paths = append(paths, filepath.Join(filepath.Dir(s.file), key))
	}
	for _, path := range paths {
		data, err := s.readFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return "", path, fmt.Errorf("%s cannot be read: %w; correct its permissions or remove it", path, err)
		}
		if e := strings.TrimSpace(string(data)); e != "" {
			return e, path, nil
		}
	}
	return "", "", nil
}

// parseSchedule reads an expression of five fields, or a name like @hourly, which
// older versions took, too. One that never comes true after now is an error. Errors
// name the value and the remedy; the caller adds the source.
func parseSchedule(expression string, now time.Time) (cron.Schedule, error) {
	const remedy = `write five fields, minute hour day-of-month month day-of-week, like "*/15 * * * *"`
	if zone := strings.ToUpper(expression); strings.HasPrefix(zone, "TZ=") || strings.HasPrefix(zone, "CRON_TZ=") {
		return nil, fmt.Errorf("schedule %.100q names a time zone; leave it out, times are in UTC", expression)
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	parsed, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("schedule %.100q is not valid: %w; %s", expression, err, remedy)
	}
	if parsed.Next(now.UTC()).IsZero() {
		return nil, fmt.Errorf("schedule %.100q never comes true; %s", expression, remedy)
	}
	return parsed, nil
}

// schedule says when to run. Safe for concurrent use.
type schedule struct {
	sources scheduleSources
	now     func() time.Time
	log     *slog.Logger
	changed chan struct{} // gets a value when another expression is in force

	mutex  sync.Mutex
	found  string // expression and source that were looked at last
	force  string // the expression in force
	parsed cron.Schedule
}

// newSchedule takes the first source that is set. If that one is bad the default is
// in force, and the log says so.
func newSchedule(sources scheduleSources, now func() time.Time, log *slog.Logger) *schedule {
	s := &schedule{sources: sources, now: now, log: log, changed: make(chan struct{}, 1)}
	expression, source, err := s.sources.find()
	s.found = fmt.Sprint(expression, source, err)
	if err == nil {
		err = s.use(expression)
	}
	if err != nil {
		s.complain(source, err, defaultSchedule)
		source = "default"
		if err := s.use(defaultSchedule); err != nil {
			panic(err) // a constant
		}
	}
	s.say(source)
	return s
}

// use puts an expression in force, if it is a good one.
func (s *schedule) use(expression string) error {
	parsed, err := parseSchedule(expression, s.now())
	if err == nil {
		s.force, s.parsed = expression, parsed
	}
	return err
}

func (s *schedule) complain(source string, err error, stays string) {
	s.log.Error("schedule cannot be used", "source", source, "error", err, "in force", stays)
}

// say prints the expression as the manuals show it.
func (s *schedule) say(source string) {
	s.log.Info("using expression: "+s.force, "source", source)
}

// reload looks at the sources again. A bad expression changes nothing but the log.
func (s *schedule) reload() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	expression, source, err := s.sources.find()
	found := fmt.Sprint(expression, source, err)
	if found == s.found {
		return
	}
	s.found = found
	s.log.Info("configuration updated", "source", source)
	if err == nil {
		err = s.use(expression)
	}
	if err != nil {
		s.complain(source, err, s.force)
		return
	}
	s.log.Info("successfully updated CRON configuration", "source", source)
	s.say(source)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// next is the first time after t that the schedule names, in UTC; zero if there is
// none for years.
func (s *schedule) next(t time.Time) time.Time {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.parsed.Next(t.UTC())
}

// schedulePoll is how often the file is read without being told that it changed.
const schedulePoll = 30 * time.Second

// watch follows the file until the context ends. It does nothing when the command
// line has the schedule, which no file changes.
func (s *schedule) watch(ctx context.Context) {
	if strings.TrimSpace(s.sources.flag) != "" {
		return
	}
	w := directoryWatch{directory: filepath.Dir(s.sources.file), poll: schedulePoll, log: s.log, look: s.reload}
	w.run(ctx)
}
