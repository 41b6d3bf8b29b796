package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// table is the figures of one part.
type table struct {
	Title   string   `json:"title"`
	Note    string   `json:"note"`
	Columns []string `json:"columns"` // the first is above the labels
	Rows    []row    `json:"rows"`
}

type row struct {
	Label string   `json:"label"`
	Cells []number `json:"cells"`
}

func (t *table) add(label string, cells ...number) {
	t.Rows = append(t.Rows, row{label, cells})
}

// number is a figure with its unit, which says how it is printed.
type number struct {
	value float64 // NaN for none
	unit  unit
}

type unit struct{ name, format string }

// none is an empty cell.
var none = number{value: math.NaN()}

// milliseconds is an empty cell when there is no time: nothing succeeded.
func milliseconds(d time.Duration) number {
	if d <= 0 {
		return none
	}
	return number{float64(d) / float64(time.Millisecond), unit{"ms", "%.1f ms"}}
}
func perSecond(f float64) number { return number{f, unit{"per second", "%.0f/s"}} }
func ratio(f float64) number     { return number{f, unit{"ratio", "%.2f"}} }
func count(n int) number         { return number{float64(n), unit{"", "%.0f"}} }

// some is a count that cannot be 0; an empty cell when it is.
func some(n int) number {
	if n == 0 {
		return none
	}
	return count(n)
}

func decimal(f float64) number { return number{f, unit{"", "%.1f"}} }
func kibibytes(bytes float64) number {
	return number{bytes / 1024, unit{"KiB", "%.1f KiB"}}
}

// over is the ratio of two times; an empty cell without one of them.
func over(a, b time.Duration) number {
	if a <= 0 || b <= 0 {
		return none
	}
	return ratio(float64(a) / float64(b))
}

// missing is for what could not be measured: there was nothing to divide by.
func (n number) missing() bool { return math.IsNaN(n.value) || math.IsInf(n.value, 0) }

func (n number) String() string {
	if n.missing() {
		return "-"
	}
	return fmt.Sprintf(n.unit.format, n.value)
}

// MarshalJSON makes {"value", "unit"}; null of an empty cell.
func (n number) MarshalJSON() ([]byte, error) {
	if n.missing() {
		return []byte("null"), nil
	}
	return json.Marshal(struct {
		Value float64 `json:"value"`
		Unit  string  `json:"unit,omitempty"`
	}{n.value, n.unit.name})
}

// lines are the header and the rows as text.
func (t table) lines() [][]string {
	lines := [][]string{t.Columns}
	for _, r := range t.Rows {
		line := []string{r.Label}
		for _, cell := range r.Cells {
			line = append(line, cell.String())
		}
		lines = append(lines, line)
	}
	return lines
}

// text aligns labels to the left and figures to the right.
func (t table) text() string {
	lines := t.lines()
	widths := make([]int, len(t.Columns))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var out strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&out, "  %-*s", widths[0], line[0])
		for i, cell := range line[1:] {
			fmt.Fprintf(&out, "  %*s", widths[i+1], cell)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func (t table) markdown() string {
	lines := t.lines()
	rule := "|---|" + strings.Repeat("---:|", len(t.Columns)-1)
	var out strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintln(&out, rule)
		}
	}
	return out.String()
}
