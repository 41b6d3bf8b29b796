package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// logBook is a log that a test reads while it is written.
type logBook struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

func (b *logBook) count(text string) int { return strings.Count(b.String(), text) }

func (b *logBook) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level}))
}

// eventually waits for a condition that is to come true some time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// noon is a Sunday, in another time zone than UTC.
var noon = time.Date(2026, 3, 1, 12, 0, 30, 0, time.FixedZone("east", 90*60))

func TestNextTimeOfASchedule(t *testing.T) {
	for expression, want := range map[string]string{
		"*/5 * * * *":     "2026-03-01T10:35:00Z",
		"*/15 * * * *":    "2026-03-01T10:45:00Z",
		"30 10 * * *":     "2026-03-02T10:30:00Z",
		"0 12 * * *":      "2026-03-01T12:00:00Z", // in UTC
		"0 0 * * 1":       "2026-03-02T00:00:00Z",
		"0 0 29 2 *":      "2028-02-29T00:00:00Z",
		"1,2 3-4 * * MON": "2026-03-02T03:01:00Z",
		"@hourly":         "2026-03-01T11:00:00Z",
		"@every 90s":      "2026-03-01T10:32:00Z",
	} {
		s := newSchedule(scheduleSources{flag: expression}, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
		if got := s.next(noon).Format(time.RFC3339); got != want {
			t.Errorf("%s: next is %s, want %s", expression, got, want)
		}
	}
}

func TestBadSchedules(t *testing.T) {
	for expression, word := range map[string]string{
		"":                          "write five fields",
		"nonsense":                  `"nonsense"`,
		"* * * *":                   "write five fields",
		"0 */5 * * * *":             "write five fields",
		"60 * * * *":                `"60 * * * *"`,
		"*/0 * * * *":               "write five fields",
		"0 0 31 2 *":                "never comes true",
		"TZ=UTC":                    "times are in UTC",
		"TZ=UTC * * * * *":          "times are in UTC",
		"CRON_TZ=Asia/X * * * * *":  "times are in UTC",
		"@reboot":                   `"@reboot"`,
		"@every":                    `"@every"`,
		", * * * *":                 "never comes true",
		`"*/5 * * * *"`:             "write five fields",
		strings.Repeat("* ", 10000): "write five fields",
	} {
		_, err := parseSchedule(expression, noon)
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%.50s: %v, want an error with %q", expression, err, word)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	for _, seed := range []string{"*/5 * * * *", "TZ=", "CRON_TZ= x", "@every -1h", "1-0 * * * *", "*/99999999999999999999 * * * *", "@", "? ? ? ? ?", "*/18446744073709551615 * * * *"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if len(expression) > 100 {
			return
		}
		parsed, err := parseSchedule(expression, noon)
		if err == nil && !parsed.Next(noon.UTC()).After(noon) {
			t.Errorf("%q: the next time is not after now", expression)
		}
	})
}

// fakeFiles answers for files by their path.
type fakeFiles map[string]string

func (f fakeFiles) read(path string) ([]byte, error) {
	text, there := f[path]
	if !there {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if text == "forbidden" {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	return []byte(text), nil
}

func TestWhichScheduleWins(t *testing.T) {
	const file, key, oldKey = "/dir/config", "/dir/cron-expression", "/dir/reconciler_cron_expression"
	for _, test := range []struct {
		name                string
		flag, env, flatFile string
		files               fakeFiles
		expression, source  string
	}{
		{"the flag", "1 * * * *", "2 * * * *", "3 * * * *", fakeFiles{file: "4 * * * *"}, "1 * * * *", "--schedule"},
		{"the file", "", "2 * * * *", "3 * * * *", fakeFiles{file: "4 * * * *\n", key: "5 * * * *"}, "4 * * * *", file},
		{"the key of the whole map", "", "2 * * * *", "", fakeFiles{key: "5 * * * *", oldKey: "6 * * * *"}, "5 * * * *", key},
		{"the other key", "", "2 * * * *", "", fakeFiles{oldKey: "6 * * * *"}, "6 * * * *", oldKey},
		{"the environment", "", "2 * * * *", "3 * * * *", nil, "2 * * * *", "WHEREABOUTS_RECONCILER_CRON"},
		{"the flat file", "", "", "3 * * * *", nil, "3 * * * *", "flat file"},
		{"the default", "", "", "", nil, "*/5 * * * *", "default"},
		{"blank is not set", " ", "\t", "3 * * * *", fakeFiles{file: "\n"}, "3 * * * *", "flat file"},
		{"an empty file makes way for the key", "", "", "", fakeFiles{file: "", key: "5 * * * *"}, "5 * * * *", key},
	} {
		t.Run(test.name, func(t *testing.T) {
			book := &logBook{}
			s := newSchedule(scheduleSources{test.flag, file, test.env, test.flatFile, test.files.read},
				func() time.Time { return noon }, book.logger(slog.LevelInfo))
			if s.force != test.expression {
				t.Errorf("%q is in force, want %q", s.force, test.expression)
			}
			if want := `level=INFO msg="using expression: ` + test.expression + `" source=`; book.count(want) != 1 ||
				!strings.Contains(book.String(), test.source) || book.count("\n") != 1 {
				t.Errorf("log: %s want %s and %s", book, want, test.source)
			}
		})
	}
}

func TestBadScheduleAtTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		sources      scheduleSources
		source, word string
	}{
		"flag":            {scheduleSources{flag: "bad", env: "1 * * * *"}, "--schedule", "bad"},
		"file":            {scheduleSources{file: "/dir/config", readFile: fakeFiles{"/dir/config": "bad"}.read}, "/dir/config", "bad"},
		"environment":     {scheduleSources{env: "bad"}, "WHEREABOUTS_RECONCILER_CRON", "bad"},
		"flat file":       {scheduleSources{flatFile: "bad"}, "reconciler_cron_expression", "bad"},
		"file we may not": {scheduleSources{file: "/dir/config", env: "1 * * * *", readFile: fakeFiles{"/dir/config": "forbidden"}.read}, "/dir/config", "correct its permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			book := &logBook{}
			if test.sources.readFile == nil {
				test.sources.readFile = fakeFiles{}.read
			}
			s := newSchedule(test.sources, time.Now, book.logger(slog.LevelInfo))
			if s.force != defaultSchedule {
				t.Errorf("%q is in force", s.force)
			}
			for _, word := range []string{"level=ERROR", "schedule cannot be used", test.source, test.word, "using expression: */5 * * * *"} {
				if book.count(word) == 0 {
					t.Errorf("log without %q: %s", word, book)
				}
			}
		})
	}
}

// liveSchedule is a schedule that follows a file of a directory on disk, with no
// help from the clock.
type liveSchedule struct {
	*schedule
	t    *testing.T
	book *logBook
	dir  string
	n    int // expressions so far
}

func follow(t *testing.T, dir string) *liveSchedule {
	t.Helper()
	book := &logBook{}
	sources := scheduleSources{file: filepath.Join(dir, "config"), readFile: os.ReadFile}
	l := &liveSchedule{t: t, book: book, dir: dir, schedule: newSchedule(sources, time.Now, book.logger(slog.LevelInfo))}
	done, looked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := directoryWatch{directory: dir, poll: time.Hour, log: slog.New(slog.DiscardHandler), look: func() {
		l.reload()
		once.Do(func() { close(looked) })
	}}
	go func() { defer close(done); w.run(t.Context()) }()
	t.Cleanup(func() { <-done })
	<-looked
	return l
}

// comes waits until an expression is in force, and for what is told of it.
func (l *liveSchedule) comes(expression string) {
	l.t.Helper()
	eventually(l.t, expression, func() bool {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		return l.force == expression
	})
	for _, text := range []string{`"configuration updated"`, `"successfully updated CRON configuration"`, `"using expression: ` + expression + `"`} {
		eventually(l.t, text+" in the log", func() bool { return l.book.count(text) > 0 })
	}
	select {
	case <-l.changed:
	case <-time.After(hang):
		l.t.Fatalf("%s: nobody was told", expression)
	}
}

// fresh is an expression that was not there before.
func (l *liveSchedule) fresh() string {
	l.n++
	return fmt.Sprintf("%d 3 * * *", l.n)
}

func (l *liveSchedule) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *liveSchedule) write(path, text string) {
	l.t.Helper()
	l.must(os.WriteFile(filepath.Join(l.dir, path), []byte(text), 0o600))
}

// mount does what the kubelet does with a ConfigMap: a new directory, and a symbolic
// link swapped onto it.
func (l *liveSchedule) mount(key, text string) {
	l.t.Helper()
	version, err := os.MkdirTemp(l.dir, "..version-")
	l.must(err)
	l.must(os.WriteFile(filepath.Join(version, key), []byte(text), 0o600))
	l.must(os.Symlink(filepath.Base(version), filepath.Join(l.dir, "..data_tmp")))
	old, _ := os.Readlink(filepath.Join(l.dir, "..data"))
	l.must(os.Rename(filepath.Join(l.dir, "..data_tmp"), filepath.Join(l.dir, "..data")))
	if err := os.Symlink(filepath.Join("..data", key), filepath.Join(l.dir, key)); !errors.Is(err, fs.ErrExist) {
		l.must(err)
	}
	if old != "" {
		l.must(os.RemoveAll(filepath.Join(l.dir, old)))
	}
}

func TestLiveChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(l *liveSchedule, expression string){
		"written in place": func(l *liveSchedule, e string) { l.write("config", e) },
		"replaced by rename": func(l *liveSchedule, e string) {
			l.write(".new", e)
			l.must(os.Rename(filepath.Join(l.dir, ".new"), filepath.Join(l.dir, "config")))
		},
		"a mounted ConfigMap": func(l *liveSchedule, e string) { l.mount("config", e) },
		"one key of a mount":  func(l *liveSchedule, e string) { l.mount("cron-expression", e) },
		"removed and made again": func(l *liveSchedule, e string) {
			if os.Remove(filepath.Join(l.dir, "config")) == nil {
				l.comes(defaultSchedule)
			}
			l.write("config", e)
		},
		"directory removed and made again": func(l *liveSchedule, e string) {
			l.must(os.RemoveAll(l.dir))
			l.must(os.Mkdir(l.dir, 0o700))
			l.write("config", e)
		},
		"directory moved away and made again": func(l *liveSchedule, e string) {
			l.must(os.RemoveAll(l.dir + ".old"))
			l.must(os.Rename(l.dir, l.dir+".old"))
			l.must(os.Mkdir(l.dir, 0o700))
			l.write("config", e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := follow(t, t.TempDir())
			for range 4 {
				e := l.fresh()
				change(l, e)
				l.comes(e)
			}
		})
	}
}

func TestDirectoryThatComesLater(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	l := follow(t, filepath.Join(above, "a", "b", "cron-schedule"))
	for range 3 {
		l.must(os.MkdirAll(l.dir, 0o700))
		e := l.fresh()
		l.write("config", e)
		l.comes(e)
		l.must(os.RemoveAll(filepath.Join(above, "a")))
		l.comes(defaultSchedule)
	}
}

func TestBadScheduleLive(t *testing.T) {
	t.Parallel()
	l := follow(t, t.TempDir())
	good := l.fresh()
	l.mount("config", good)
	l.comes(good)
	l.mount("config", "every day")
	for _, word := range []string{"level=ERROR", "every day", filepath.Join(l.dir, "config"), "write five fields", `in force"="` + good} {
		eventually(t, word+" in the log", func() bool { return l.book.count(word) > 0 })
	}
	if l.next(noon).Minute() != 1 {
		t.Errorf("%s is in force, want %s", l.force, good)
	}
	updates := l.book.count("successfully updated")
	better := l.fresh()
	l.mount("config", better)
	l.comes(better)
	if got := l.book.count("successfully updated"); got != updates+1 {
		t.Errorf("%d updates, want %d: %s", got, updates+1, l.book)
	}
}

// A file that is touched, or mounted anew with the same content, is no news.
func TestSameScheduleAgainIsNotTold(t *testing.T) {
	t.Parallel()
	l := follow(t, t.TempDir())
	first, second := l.fresh(), l.fresh()
	l.mount("config", first)
	l.comes(first)
	l.mount("config", first+"\n")
	l.reload()
	l.mount("config", second)
	l.comes(second)
	if got := l.book.count("configuration updated"); got != 2 {
		t.Errorf("told %d times, want 2: %s", got, l.book)
	}
}

func TestFileIsReadNowAndThenWithoutEvents(t *testing.T) {
	t.Parallel()
	looks := make(chan struct{})
	w := directoryWatch{directory: t.TempDir(), poll: time.Millisecond, log: slog.New(slog.DiscardHandler), look: func() { looks <- struct{}{} }}
	done := make(chan struct{})
	go func() { defer close(done); w.run(t.Context()) }()
	for range 5 {
		<-looks
	}
	t.Cleanup(func() {
		for {
			select {
			case <-done:
				return
			case <-looks:
			}
		}
	})
}
