package desk

import (
	"fmt"
	"strings"

	"spindle/logs"
	"spindle/pipeline"
)

// Colours of the 16 that every terminal has.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
	bold   = "1"
)

// paint is what the reader's terminal can show.
type paint struct{ on, ascii bool }

func (p paint) colour(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// status is the symbol of s in its colour.
func (p paint) status(s pipeline.Status) string {
	code := red
	switch s {
	case pipeline.Passed:
		code = green
	case pipeline.Skipped, pipeline.Cancelled, pipeline.Superseded:
		code = yellow
	}
	return p.colour(code, s.Symbol())
}

// note is an annotation on one line.
func (p paint) note(c logs.Command) string {
	code := map[string]string{logs.ErrorNote: red, logs.WarnNote: yellow}[c.Name]
	text := c.Text
	if c.Title != "" {
		text = c.Title + ": " + text
	}
	if at := c.Place(); at != "" {
		text = at + ": " + text
	}
	return p.colour(code, c.Name) + ": " + oneLine(text)
}

// asciiOnly replaces the characters that not every locale has.
var asciiOnly = strings.NewReplacer("✓", "ok", "✗", "FAIL", "▸", ">", "▾", "v", "▶", ">", "○", "-", "⊘", "x", "⧖", "T", "…", "...", "│", "|", "◔", ".", "⏸", "=", "◑", ".")

// report is the end of what a person reads.
func (d *display) report(r *run, out Outcome) {
	var bad []pipeline.Workflow
	passed := 0
	for _, w := range out.Workflows {
		switch {
		case w.Status == pipeline.Passed:
			passed++
		case w.Status != pipeline.Skipped:
			bad = append(bad, w)
		}
	}
	d.summaries(r)
	for _, w := range bad {
		d.failure(w)
	}
	line := d.p.status(out.Status) + " " + d.p.colour(bold, out.Status.Label())
	if n := len(out.Workflows); n > 1 {
		line += fmt.Sprintf("  %d of %d workflows passed", passed, n)
	} else if n == 1 {
		line += "  " + out.Workflows[0].Name
	}
	d.text(line + "  " + seconds(d.o.Clock.Now().Sub(d.began)) + "\n")
}

// summaries shows what steps wrote for the page.
func (d *display) summaries(r *run) {
	for _, n := range r.nodes {
		s := r.facts.result(n.Name).Summary
		if s == "" {
			continue
		}
		d.text("\n" + d.p.colour(bold, "summary of "+n.Name) + "\n")
		lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
		for _, l := range lines[:min(len(lines), 2*contextLines)] {
			d.text("  " + oneLine(string(logs.Plain([]byte(l)))) + "\n")
		}
		if more := len(lines) - 2*contextLines; more > 0 {
			d.text(fmt.Sprintf("  … %d lines more\n", more))
		}
	}
}

// failure shows what went wrong in one workflow, and how to run it again.
func (d *display) failure(w pipeline.Workflow) {
	p := d.parts[w.Name]
	d.text("\n" + d.p.status(w.Status) + " " + d.p.colour(bold, w.Name+" "+w.Status.Label()) + ": " + oneLine(w.Reason) + "\n")
	if lines, at := p.broken.around(contextLines); len(lines) > 0 && p.failed != "" {
		what := fmt.Sprintf("the last %d lines of", len(lines))
		if at >= 0 {
			what = fmt.Sprintf("%d lines around the first error of", len(lines))
		}
		d.text(d.p.colour(dim, "  "+what+" \""+oneLine(p.failed)+"\":") + "\n")
		for i, l := range lines {
			mark := "  │ "
			if i == at {
				l = d.p.colour(red, l)
			}
			d.text(mark + l + "\n")
		}
	}
	for _, n := range p.notes {
		if n.Name == logs.ErrorNote {
			d.text("  " + d.p.note(n) + "\n")
		}
	}
	if d.o.Rerun != "" {
		d.text("  again: " + d.o.Rerun + " " + quote(baseOf(w.Name)) + "\n")
		if p.failed != "" && p.count > 1 {
			d.text("  this step alone: " + d.o.Rerun + " " + quote(baseOf(w.Name)) + " --step " + quote(p.failed) + "\n")
		}
	}
}

// quote makes s a word of a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/=:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// reportJSON is the last event.
func (d *display) reportJSON(r *run, out Outcome) {
	type step struct {
		Index  int             `json:"index"`
		Name   string          `json:"name"`
		Status pipeline.Status `json:"status"`
		Exit   int             `json:"exit"`
		Reason string          `json:"reason,omitempty"`
		MS     int64           `json:"ms"`
	}
	var list []map[string]any
	for _, w := range out.Workflows {
		steps := []step{}
		for _, s := range w.Steps {
			steps = append(steps, step{s.Index, s.Name, s.Status, s.ExitCode, s.Reason, s.FinishedAt.Sub(s.StartedAt).Milliseconds()})
		}
		res := r.facts.result(w.Name)
		outputs := map[string]string{}
		for _, o := range res.Outputs {
			outputs[o.Key] = o.Value
		}
		list = append(list, map[string]any{
			"name": w.Name, "file": w.File, "status": w.Status, "reason": w.Reason, "exit": w.ExitCode, "steps": steps,
			"outputs": outputs, "summary": res.Summary, "notes": d.parts[w.Name].notes,
		})
	}
	d.event(map[string]any{
		"v": 1, "t": "report", "kind": "run.report", "status": out.Status, "ms": d.o.Clock.Now().Sub(d.began).Milliseconds(), "workflows": list,
	})
}
