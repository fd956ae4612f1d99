package desk

import (
	"bytes"
	"fmt"
	"strings"

	"spindle/logs"
	"spindle/pipeline"
)

// Start implements logs.Sink.
func (p *part) Start(step int, name, command, kind string) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	p.step, p.since = name, d.o.Clock.Now()
	p.tail.clear()
	if kind == string(pipeline.UserStep) {
		p.count++
	}
	switch d.o.Format {
	case JSON:
		d.event(map[string]any{"t": "step", "workflow": p.name, "step": step, "name": name, "command": command, "kind": kind, "status": "running"})
	case Plain:
		d.text(string(p.prefix) + d.p.colour(bold, "▸ "+oneLine(name)) + "\n")
	}
}

// Line implements logs.Sink. Every byte of every step passes here.
func (p *part) Line(step int, stream string, line []byte) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	p.tail.add(line)
	if c, ok := logs.ParseCommand(line); ok && stream != "" {
		p.command(step, c, line)
	} else {
		switch d.o.Format {
		case JSON:
			d.event(map[string]any{"t": "line", "workflow": p.name, "step": step, "stream": stream, "text": string(bytes.TrimSuffix(line, []byte("\n")))})
		case Plain:
			d.buf = append(append(d.buf, p.prefix...), line...)
		}
	}
	if len(d.buf) >= flushAt && d.o.Format != Terminal {
		d.flush()
	}
}

// command shows a line that asks for something.
func (p *part) command(step int, c logs.Command, line []byte) {
	d := p.d
	if c.Note() && len(p.notes) < maxNotes {
		p.notes = append(p.notes, c)
	}
	if d.o.Format == JSON {
		d.event(map[string]any{
			"t": "command", "workflow": p.name, "step": step, "command": c.Name, "text": c.Text, "title": c.Title, "file": c.File, "line": c.Line, "column": c.Column,
		})
		return
	}
	if d.o.Format != Plain {
		return
	}
	switch {
	case c.Note():
		d.text(string(p.prefix) + d.p.note(c) + "\n")
	case c.Name == logs.Group, c.Name == logs.GroupOpen:
		d.text(string(p.prefix) + d.p.colour(bold, "▾ "+oneLine(c.Text)) + "\n")
	case c.Name == logs.AddMask:
		d.buf = append(append(d.buf, p.prefix...), "::add-mask::***\n"...)
	}
}

// End implements logs.Sink.
func (p *part) End(step int, outcome string, exitCode int, reason string) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	s := pipeline.Status(outcome)
	took := d.o.Clock.Now().Sub(p.since)
	if s != pipeline.Passed && p.failed == "" {
		p.failed, p.broken = p.step, p.tail.copy()
	}
	switch d.o.Format {
	case JSON:
		d.event(map[string]any{
			"t": "step", "workflow": p.name, "step": step, "name": p.step, "status": outcome, "exit": exitCode, "reason": reason, "ms": took.Milliseconds(),
		})
		return
	case Terminal:
		// A step that passed is folded into one line; of the others the end stays on the screen.
		if s != pipeline.Passed {
			for _, l := range p.tail.last(contextLines) {
				d.text("    " + l + "\n")
			}
		}
		d.text("  " + d.p.status(s) + " " + d.head(p.name) + oneLine(p.step) + "  " + d.p.colour(dim, seconds(took)) + suffix(s, reason) + "\n")
		p.step = ""
	case Plain:
		d.text(string(p.prefix) + d.p.status(s) + " " + oneLine(p.step) + "  " + seconds(took) + suffix(s, reason) + "\n")
	}
}

func suffix(s pipeline.Status, reason string) string {
	if s == pipeline.Passed || reason == "" {
		return ""
	}
	return "  " + oneLine(reason)
}

// oneLine is s without what would break a line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// erase takes the live area from the screen.
func (d *display) erase() {
	if d.drawn > 0 {
		d.buf = fmt.Appendf(d.buf, "\x1b[%dA\r\x1b[J", d.drawn)
		d.drawn = 0
	}
}

// liveLines is how many lines of output of a running step are shown on a terminal.
const liveLines = 6

// draw shows what runs at the bottom of the screen.
func (d *display) draw() {
	d.erase()
	width := 80
	if d.o.Width != nil {
		width = max(d.o.Width(), 20)
	}
	line := func(s string) {
		if r := []rune(s); len(r) >= width {
			s = string(r[:width-2]) + "…"
		}
		d.buf = append(append(d.buf, s...), '\n')
		d.drawn++
	}
	alive := 0
	for _, p := range d.order {
		if p.alive {
			alive++
		}
	}
	for _, p := range d.order {
		if !p.alive || p.step == "" {
			continue
		}
		now := d.o.Clock.Now()
		line(fmt.Sprintf("▶ %s  step %d of %d  %s  %s", p.name, max(p.count, 1), p.steps, oneLine(p.step), seconds(now.Sub(p.since))))
		for _, l := range p.tail.last(max(1, liveLines/alive)) {
			line("    " + l)
		}
	}
}
