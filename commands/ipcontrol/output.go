package ipcontrol

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"
)

// machine reports whether the output is for machines.
func (o options) machine() bool { return o.output == "json" || o.output == "yaml" }

func (o options) wide() bool { return o.output == "wide" }

// print writes a document for machines.
func (o options) print(document any) error {
	data, err := json.MarshalIndent(document, "", "  ")
	if err == nil && o.output == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err
	}
	if o.output == "json" {
		data = append(data, '\n')
	}
	_, err = o.Stdout.Write(data)
	return err
}

// table writes rows in columns. A cell is stored text: whatever it has in it, it
// does not command the terminal.
type table struct {
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	var text strings.Builder
	tab := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range t.rows {
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			if i > 0 {
				fmt.Fprint(tab, "\t")
			}
			fmt.Fprint(tab, printable(cell))
		}
		fmt.Fprintln(tab)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printable is a text without anything that moves the cursor or changes colours.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// nearPower is how far from a power of two a count is still written by it.
const nearPower = 1_000_000

// count is a number of addresses for a person: exact while it is short, and else by
// the power of two that it is near.
func count(n *big.Int) string {
	if n.BitLen() <= 32 {
		return n.String()
	}
	for _, bits := range []uint{uint(n.BitLen()), uint(n.BitLen() - 1)} {
		power := new(big.Int).Lsh(big.NewInt(1), bits)
		off := new(big.Int).Sub(n, power)
		switch {
		case off.Sign() == 0:
			return fmt.Sprintf("2^%d", bits)
		case new(big.Int).Abs(off).Cmp(big.NewInt(nearPower)) < 0:
			return fmt.Sprintf("2^%d%+d", bits, off)
		}
	}
	approximate, _ := new(big.Float).SetInt(n).Float64()
	return fmt.Sprintf("~%.2e", approximate)
}

// countText is count of a decimal string.
func countText(decimal string) string {
	n, ok := new(big.Int).SetString(decimal, 10)
	if !ok {
		return decimal
	}
	return count(n)
}

// age is how long ago something was, in the two largest units that matter.
func age(now time.Time, since *time.Time) string {
	if since == nil {
		return ""
	}
	d := now.Sub(*since)
	day := 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < day:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 30*day:
		return fmt.Sprintf("%dd%dh", int(d/day), int(d%day/time.Hour))
	}
	return fmt.Sprintf("%dd", int(d/day))
}

// short is the beginning of a container's id, as runtimes show it.
func short(id string) string {
	const digits = 12
	if len(id) <= digits {
		return id
	}
	return id[:digits]
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if strings.HasSuffix(one, "s") {
		return fmt.Sprintf("%d %ses", n, one)
	}
	return fmt.Sprintf("%d %ss", n, one)
}
