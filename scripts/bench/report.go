package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// report is all that a run found out.
type report struct {
	Machine  machine  `json:"machine"`
	Tables   []table  `json:"tables"`
	Notes    []string `json:"notes,omitempty"`
	Problems []string `json:"problems,omitempty"` // the exit code is 1 if there are any
}

func formats() []string { return []string{"text", "markdown", "json"} }

func (r *report) write(w io.Writer, format string) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	_, err := io.WriteString(w, r.document(format == "markdown"))
	return err
}

// warn tells beforehand what will make the figures worse than they are.
func (r *report) warn(log io.Writer) {
	if r.Machine.busy() {
		r.Notes = append(r.Notes, fmt.Sprintf("The machine was busy at the start (load %s on %d cores): "+
			"trust the ratios more than the times, and neither very much.", r.Machine.Load, r.Machine.Cores))
		fmt.Fprintln(log, "bench: WARNING:", r.Notes[0])
	}
}

// document is the report for people.
func (r *report) document(markdown bool) string {
	text := r.Machine.String() + "\n"
	for _, t := range r.Tables {
		if markdown {
			text += fmt.Sprintf("\n### %s\n\n%s\n\n%s", t.Title, t.Note, t.markdown())
		} else {
			text += fmt.Sprintf("\n%s\n%s\n\n%s", t.Title, t.Note, t.text())
		}
	}
	text += list("Notes", r.Notes)
	if len(r.Problems) == 0 {
		return text + "\nNo call failed, no address was given out twice, and nothing was left behind.\n"
	}
	return text + list("PROBLEMS", r.Problems)
}

func list(title string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	text := "\n" + title + ":\n\n"
	for _, item := range items {
		text += "* " + item + "\n"
	}
	return text
}
