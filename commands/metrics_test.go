package commands

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// exposition is what a scraper makes of a text: the value of each series as it is
// written, and help and type of each family.
type exposition struct {
	values      map[string]float64
	help, types map[string]string
	order       []string // families as they come
}

// readMetrics is a strict reader of the text format 0.0.4: what a lenient one
// would accept is a failure.
func readMetrics(t *testing.T, text string) exposition {
	t.Helper()
	e, err := parseMetrics(text)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return e
}

func parseMetrics(text string) (exposition, error) {
	e := exposition{values: map[string]float64{}, help: map[string]string{}, types: map[string]string{}}
	if !utf8.ValidString(text) {
		return e, fmt.Errorf("not UTF-8")
	}
	if !strings.HasSuffix(text, "\n") {
		return e, fmt.Errorf("the last line has no end")
	}
	family := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		var err error
		switch {
		case strings.HasPrefix(line, "# HELP "):
			family, err = e.readHelp(strings.TrimPrefix(line, "# HELP "))
		case strings.HasPrefix(line, "# TYPE "):
			err = e.readType(family, strings.TrimPrefix(line, "# TYPE "))
		default:
			err = e.readSample(family, line)
		}
		if err != nil {
			return e, fmt.Errorf("%w: line %q", err, line)
		}
	}
	return e, e.checkHistograms()
}

var metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)

func (e *exposition) readHelp(rest string) (string, error) {
	name, help, _ := strings.Cut(rest, " ")
	if _, seen := e.help[name]; seen || !metricName.MatchString(name) {
		return "", fmt.Errorf("HELP of a name that is bad or was there")
	}
	if strings.Contains(strings.NewReplacer(`\\`, "", `\n`, "").Replace(help), `\`) {
		return "", fmt.Errorf("HELP with a stray backslash")
	}
	e.help[name] = help
	e.order = append(e.order, name)
	return name, nil
}

func (e *exposition) readType(family, rest string) error {
	name, kind, _ := strings.Cut(rest, " ")
	if name != family || e.types[name] != "" {
		return fmt.Errorf("TYPE does not follow its HELP")
	}
	if !slices.Contains([]string{"counter", "gauge", "histogram"}, kind) {
		return fmt.Errorf("unknown TYPE")
	}
	e.types[name] = kind
	return nil
}

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\})? ([^ ]+)$`)

func (e *exposition) readSample(family, line string) error {
	parts := sampleLine.FindStringSubmatch(line)
	if parts == nil {
		return fmt.Errorf("no sample")
	}
	if parts[2] != "" && (parts[3] == "" || strings.HasSuffix(parts[3], ",")) {
		return fmt.Errorf("empty label")
	}
	base := parts[1]
	if e.types[family] == "histogram" {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
	}
	if base != family || e.types[family] == "" {
		return fmt.Errorf("sample outside of its family")
	}
	value, err := strconv.ParseFloat(parts[4], 64)
	if err != nil {
		return err
	}
	key := parts[1] + parts[2]
	if _, seen := e.values[key]; seen {
		return fmt.Errorf("series twice")
	}
	e.values[key] = value
	return nil
}

var bucketLabel = regexp.MustCompile(`,?le="([^"]*)"`)

// checkHistograms wants buckets that grow, and the last one to be the count.
func (e *exposition) checkHistograms() error {
	type bucket struct{ bound, count float64 }
	all := map[string][]bucket{}
	for key, value := range e.values {
		name, labels, _ := strings.Cut(key, "{")
		family, isBucket := strings.CutSuffix(name, "_bucket")
		if !isBucket {
			continue
		}
		bound, err := strconv.ParseFloat(bucketLabel.FindStringSubmatch(labels)[1], 64)
		if err != nil {
			return err
		}
		rest := strings.TrimSuffix(bucketLabel.ReplaceAllString(labels, ""), "}")
		if rest != "" {
			rest = "{" + rest + "}"
		}
		all[family+"_count"+rest] = append(all[family+"_count"+rest], bucket{bound, value})
	}
	for count, buckets := range all {
		slices.SortFunc(buckets, func(a, b bucket) int { return int(math.Copysign(1, a.bound-b.bound)) })
		last := buckets[len(buckets)-1]
		if !math.IsInf(last.bound, 1) || last.count != e.values[count] {
			return fmt.Errorf("%s is %v, its last bucket %v", count, e.values[count], last)
		}
		if !slices.IsSortedFunc(buckets, func(a, b bucket) int { return int(a.count - b.count) }) {
			return fmt.Errorf("buckets of %s shrink: %v", count, buckets)
		}
	}
	return nil
}

func scrape(t *testing.T, m *metrics) exposition {
	t.Helper()
	return readMetrics(t, written(t, m))
}

func written(t *testing.T, m *metrics) string {
	t.Helper()
	var b strings.Builder
	if err := m.write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (e exposition) want(t *testing.T, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if got, there := e.values[name]; !there || got != value {
			t.Errorf("%s is %v (there: %t), want %v; of %v", name, got, there, value, slices.Sorted(maps.Keys(e.values)))
		}
	}
}

func TestMetricsText(t *testing.T) {
	m := newMetrics()
	failed := m.counter("b_failed_total", "Not zero: line one\nand a \\.", "why")
	m.gauge("a_size", "Size.").set(2.5)
	failed.add(1, "x")
	failed.add(2, "x")
	failed.add(1, "a")
	took := m.histogram("c_seconds", "Took.", []float64{0.5, 1})
	for _, v := range []float64{0.25, 0.5, 0.75, 7} {
		took.observe(v)
	}
	want := `# HELP a_size Size.
# TYPE a_size gauge
a_size 2.5
# HELP b_failed_total Not zero: line one\nand a \\.
# TYPE b_failed_total counter
b_failed_total{why="a"} 1
b_failed_total{why="x"} 3
# HELP c_seconds Took.
# TYPE c_seconds histogram
c_seconds_bucket{le="0.5"} 2
c_seconds_bucket{le="1"} 3
c_seconds_bucket{le="+Inf"} 4
c_seconds_sum 8.5
c_seconds_count 4
`
	if got := written(t, m); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	scrape(t, m)
}

func TestLabelValuesAreEscaped(t *testing.T) {
	for value, want := range map[string]string{
		`plain`:       `plain`,
		``:            ``,
		`a"b`:         `a\"b`,
		`a\b`:         `a\\b`,
		"a\nb":        `a\nb`,
		`\n`:          `\\n`,
		`},x="`:       `},x=\"`,
		"\xff bad":    "\uFFFD bad",
		"fd00::/64 ü": "fd00::/64 ü",
	} {
		m := newMetrics()
		m.gauge("g", "Help.", "l").set(1, value)
		scrape(t, m).want(t, map[string]float64{`g{l="` + want + `"}`: 1})
	}
}

func TestOddNumbers(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 1e21: "1e+21", math.Inf(1): "+Inf", math.Inf(-1): "-Inf", 18446744073709551615: "1.8446744073709552e+19",
	} {
		m := newMetrics()
		m.gauge("g", "Help.").set(value)
		if got := written(t, m); !strings.HasSuffix(got, "\ng "+want+"\n") {
			t.Errorf("%v: %q", value, got)
		}
		scrape(t, m)
	}
}

func TestCounterIsThereBeforeItCounts(t *testing.T) {
	m := newMetrics()
	m.counter("c_total", "Help.")
	m.counterOf("d_total", "Help.", func() float64 { return 7 })
	scrape(t, m).want(t, map[string]float64{"c_total": 0, "d_total": 7})
}

func TestReplacedSeriesAreGone(t *testing.T) {
	m := newMetrics()
	g := m.gauge("g", "Help.", "l")
	g.set(1, "old")
	g.replace(func(set func(float64, ...string)) { set(2, "new") })
	got := scrape(t, m).values
	if len(got) != 1 || got[`g{l="new"}`] != 2 {
		t.Errorf("series: %v", got)
	}
}

// Two label values must not run together into another series.
func TestSeriesAreToldApart(t *testing.T) {
	m := newMetrics()
	c := m.counter("c_total", "Help.", "a", "b")
	c.add(1, "x", "yz")
	c.add(2, "xy", "z")
	scrape(t, m).want(t, map[string]float64{`c_total{a="x",b="yz"}`: 1, `c_total{a="xy",b="z"}`: 2})
}

func TestFaultsOfTheProgramAreLoud(t *testing.T) {
	for name, fault := range map[string]func(*metrics){
		"a name twice": func(m *metrics) { m.gauge("c_total", "Help.") },
		"label missing": func(m *metrics) {
			m.gauge("g", "Help.", "l").set(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMetrics()
			m.counter("c_total", "Help.")
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			fault(m)
		})
	}
}

func TestMetricsAtOnce(t *testing.T) {
	m := newMetrics()
	c, g, h := m.counter("c_total", "Help.", "l"), m.gauge("g", "Help.", "l"), m.histogram("h", "Help.", []float64{1}, "l")
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			label := strconv.Itoa(i % 2)
			for range 100 {
				c.add(1, label)
				h.observe(1, label)
				g.replace(func(set func(float64, ...string)) { set(1, "a"); set(1, "b") })
				e, err := parseMetrics(written(t, m))
				if err != nil || e.values[`g{l="a"}`] != e.values[`g{l="b"}`] {
					t.Errorf("%v: %v", err, e.values)
				}
			}
		})
	}
	group.Wait()
	scrape(t, m).want(t, map[string]float64{`c_total{l="0"}`: 200, `c_total{l="1"}`: 200, `h_count{l="0"}`: 200})
}

// The reader of this test is only worth something if it refuses.
func TestStrictReaderRefuses(t *testing.T) {
	const head = "# HELP m Help.\n# TYPE m gauge\n"
	if _, err := parseMetrics(head + "m{a=\"b\"} 1\n"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no end of line":      head + "m 1",
		"an empty line":       head + "m 1\n\n",
		"no help":             "# TYPE m gauge\nm 1\n",
		"no type":             "# HELP m Help.\nm 1\n",
		"another family":      head + "n 1\n",
		"a series twice":      head + "m 1\nm 2\n",
		"a family twice":      head + head,
		"no number":           head + "m x\n",
		"a raw quote":         head + "m{a=\"b\"c\"} 1\n",
		"a stray backslash":   head + "m{a=\"\\t\"} 1\n",
		"a stray one in help": "# HELP m \\t\n# TYPE m gauge\n",
		"empty braces":        head + "m{} 1\n",
		"a comma too many":    head + "m{a=\"b\",} 1\n",
		"bad UTF-8":           head + "m{a=\"\xff\"} 1\n",
		"a bad name":          "# HELP m-x Help.\n",
		"buckets that shrink": "# HELP m H\n# TYPE m histogram\nm_bucket{le=\"1\"} 2\nm_bucket{le=\"+Inf\"} 1\nm_sum 1\nm_count 1\n",
		"a count of its own":  "# HELP m H\n# TYPE m histogram\nm_bucket{le=\"+Inf\"} 1\nm_sum 1\nm_count 2\n",
		"no infinite bucket":  "# HELP m H\n# TYPE m histogram\nm_bucket{le=\"1\"} 1\nm_sum 1\nm_count 1\n",
		"an unknown type":     "# HELP m H\n# TYPE m thing\n",
	} {
		if _, err := parseMetrics(text); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
