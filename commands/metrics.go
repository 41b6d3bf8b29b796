package commands

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// metrics are the figures of a role, in the text format of Prometheus (version
// 0.0.4). All methods, and those of the families, are safe for concurrent use.
//
// The format is small enough to write down. The client library would add a
// millisecond to every start of the plugin, since its packages are initialised in
// the same binary.
type metrics struct {
	mutex    sync.Mutex
	families map[string]*family
}

func newMetrics() *metrics { return &metrics{families: map[string]*family{}} }

type familyKind string

const (
	counterKind   familyKind = "counter"
	gaugeKind     familyKind = "gauge"
	histogramKind familyKind = "histogram"
)

// family is all series of one name.
type family struct {
	name, help string
	kind       familyKind
	labels     []string
	bounds     []float64      // of a histogram: upper bounds, ascending
	ask        func() float64 // if set, the value is asked for at each read

	mutex  sync.Mutex
	series map[string]*series // by their label values
}

type series struct {
	values  []string // of the labels, in order
	value   float64  // of a histogram: the sum
	buckets []uint64 // of a histogram, one more than bounds; not cumulated
}

// counterFamily is a figure that only grows. Its name ends in _total.
type counterFamily struct{ *family }

// gaugeFamily is a figure that goes up and down.
type gaugeFamily struct{ *family }

// histogramFamily counts how often a figure lies below certain bounds.
type histogramFamily struct{ *family }

// counter makes a counter. The help says what it means when it is not zero. Without
// labels it is shown from the start, as 0, so that its first increase is seen.
func (m *metrics) counter(name, help string, labels ...string) counterFamily {
	return counterFamily{m.add(&family{name: name, help: help, kind: counterKind, labels: labels})}
}

// counterOf makes a counter that somebody else counts; ask must not block.
func (m *metrics) counterOf(name, help string, ask func() float64) {
	m.add(&family{name: name, help: help, kind: counterKind, ask: ask})
}

// gauge makes a gauge. The help says what it means when it is not zero.
func (m *metrics) gauge(name, help string, labels ...string) gaugeFamily {
	return gaugeFamily{m.add(&family{name: name, help: help, kind: gaugeKind, labels: labels})}
}

// histogram makes a histogram with these upper bounds, in ascending order.
func (m *metrics) histogram(name, help string, bounds []float64, labels ...string) histogramFamily {
	return histogramFamily{m.add(&family{name: name, help: help, kind: histogramKind, labels: labels, bounds: bounds})}
}

// buildInfo shows the version.
func (m *metrics) buildInfo(version string) {
	m.gauge("whereabouts_build_info", "Always 1; the label has the version.", "version").set(1, version)
}

// add registers a family. A name that is there already is a fault of the program.
func (m *metrics) add(f *family) *family {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.families[f.name] != nil {
		panic("two metrics are named " + f.name)
	}
	f.series = map[string]*series{}
	if len(f.labels) == 0 {
		f.at()
	}
	m.families[f.name] = f
	return f
}

// at is the series with these label values; the caller holds the mutex.
func (f *family) at(values ...string) *series {
	if len(values) != len(f.labels) {
		panic(fmt.Sprintf("metric %s has labels %v, not %d of them", f.name, f.labels, len(values)))
	}
	key := strings.Join(values, "\xff") // in no valid UTF-8
	s := f.series[key]
	if s == nil {
		s = &series{values: slices.Clone(values)}
		if f.kind == histogramKind {
			s.buckets = make([]uint64, len(f.bounds)+1)
		}
		f.series[key] = s
	}
	return s
}

// add counts n more, which is not negative.
func (c counterFamily) add(n float64, labels ...string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.at(labels...).value += n
}

func (g gaugeFamily) set(value float64, labels ...string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.at(labels...).value = value
}

// replace forgets all series and has the new ones set, so that nobody reads
// half of them, or some of what is gone.
func (g gaugeFamily) replace(fill func(set func(value float64, labels ...string))) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	clear(g.series)
	fill(func(value float64, labels ...string) { g.at(labels...).value = value })
}

func (h histogramFamily) observe(value float64, labels ...string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	s := h.at(labels...)
	s.value += value
	i, _ := slices.BinarySearch(h.bounds, value)
	s.buckets[i]++
}

// write writes all figures, in the order of names and labels.
func (m *metrics) write(to io.Writer) error {
	m.mutex.Lock()
	families := slices.SortedFunc(maps.Values(m.families), func(a, b *family) int { return cmp.Compare(a.name, b.name) })
	m.mutex.Unlock()
	w := bufio.NewWriter(to)
	for _, f := range families {
		f.write(w)
	}
	return w.Flush() // has the first error of all writes
}

func (f *family) write(w *bufio.Writer) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f.name, helpEscaper.Replace(f.help), f.name, f.kind)
	if f.ask != nil {
		f.at().value = f.ask()
	}
	all := slices.SortedFunc(maps.Values(f.series), func(a, b *series) int { return slices.Compare(a.values, b.values) })
	for _, s := range all {
		if f.kind == histogramKind {
			f.writeHistogram(w, s)
			continue
		}
		fmt.Fprintf(w, "%s%s %s\n", f.name, f.labelText(s), number(s.value))
	}
}

func (f *family) writeHistogram(w *bufio.Writer, s *series) {
	var count uint64
	for i, n := range s.buckets {
		count += n
		bound := "+Inf"
		if i < len(f.bounds) {
			bound = number(f.bounds[i])
		}
		fmt.Fprintf(w, "%s_bucket%s %d\n", f.name, f.labelText(s, "le", bound), count)
	}
	fmt.Fprintf(w, "%s_sum%s %s\n", f.name, f.labelText(s), number(s.value))
	fmt.Fprintf(w, "%s_count%s %d\n", f.name, f.labelText(s), count)
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// labelText is the labels of a series in braces, and more pairs behind them.
func (f *family) labelText(s *series, more ...string) string {
	var pairs []string
	pair := func(name, value string) {
		value = strings.ToValidUTF8(value, "\uFFFD")
		pairs = append(pairs, name+`="`+labelEscaper.Replace(value)+`"`)
	}
	for i, name := range f.labels {
		pair(name, s.values[i])
	}
	for i := 0; i < len(more); i += 2 {
		pair(more[i], more[i+1])
	}
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
