package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"spindle/workflow"
)

// maxPasses bounds how often a file is mended and looked at again: one fix may show what another could not.
const maxPasses = 10

// fix mends what has a safe fix, shows what it changed, and writes the files; of standard input it prints the mended
// text. Comments stay, since edits touch only what is wrong.
func (l *linter) fix(sets []fileSet, a asked) error {
	changed := 0
	for _, s := range sets {
		for i := range s.files {
			f := &s.files[i]
			if f.NotTaken != "" || len(f.Data) == 0 {
				continue
			}
			name, before := s.name(f.Path), f.Data
			if f.Data = mended(s, i); name == "stdin" {
				if err := l.print(string(f.Data)); err != nil {
					return err
				}
				continue
			}
			if bytes.Equal(before, f.Data) {
				continue
			}
			changed++
			if err := writeOver(name, before, f.Data); err != nil {
				return err
			}
			if a.format == "human" {
				if err := l.print(l.palette().diff(name, string(before), string(f.Data))); err != nil {
					return err
				}
			}
		}
	}
	if a.format == "human" && changed > 0 {
		return l.print(fmt.Sprintf("mended %s\n\n", count(changed, "file")))
	}
	return nil
}

// mended is file i of s with its safe fixes carried out.
func mended(s fileSet, i int) []byte {
	data := s.files[i].Data
	for range maxPasses {
		_, ds := workflow.Parse(s.files[i].Path, data, workflow.Limits{})
		next := edited(data, ds)
		if bytes.Equal(next, data) {
			break
		}
		data = next
	}
	return data
}

// edited is data with the edits of ds. Of two diagnostics whose edits touch the same bytes the first has its way.
func edited(data []byte, ds []workflow.Diagnostic) []byte {
	var all []workflow.Edit
	for _, d := range ds {
		fits := func(e workflow.Edit) bool {
			return e.Start >= 0 && e.Start <= e.End && e.End <= len(data) &&
				!slices.ContainsFunc(all, func(o workflow.Edit) bool { return e.Start < o.End && o.Start < e.End || e.Start == o.Start })
		}
		if !slices.ContainsFunc(d.Edits, func(e workflow.Edit) bool { return !fits(e) }) {
			all = append(all, d.Edits...)
		}
	}
	slices.SortFunc(all, func(a, b workflow.Edit) int { return a.Start - b.Start })
	var out []byte
	at := 0
	for _, e := range all {
		out = append(append(out, data[at:e.Start]...), e.Text...)
		at = e.End
	}
	return append(out, data[at:]...)
}

// writeOver writes a file that nobody changed meanwhile, whole or not at all.
func writeOver(name string, before, after []byte) error {
	now, err := readBounded(name)
	if err != nil {
		return unreadable(err)
	}
	if !bytes.Equal(now, before) {
		return fail(exitEnv, fmt.Errorf("%s was changed while it was read; try again", name))
	}
	info, err := os.Stat(name)
	if err != nil {
		return unreadable(err)
	}
	if err := replaceFile(name, after, info.Mode().Perm()); err != nil {
		return fail(exitEnv, fmt.Errorf("write %s: %w", name, err))
	}
	return nil
}

// diff shows what changed, with three lines around it.
func (p palette) diff(name, before, after string) string {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	first := 0
	for first < len(a) && first < len(b) && a[first] == b[first] {
		first++
	}
	last := 0
	for last < len(a)-first && last < len(b)-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	var out strings.Builder
	out.WriteString(p.paint(bold, "--- "+name) + "\n" + p.paint(bold, "+++ "+name) + "\n")
	from := max(0, first-3)
	fmt.Fprintf(&out, "@@ line %d @@\n", from+1)
	put := func(mark, colour string, lines []string) {
		for _, l := range lines {
			if l != "" {
				out.WriteString(p.paint(colour, mark+visibleLine(l)) + "\n")
			}
		}
	}
	put(" ", "", a[from:first])
	put("-", red, a[first:len(a)-last])
	put("+", green, b[first:len(b)-last])
	put(" ", "", a[len(a)-last:min(len(a), len(a)-last+3)])
	return out.String()
}

// visibleLine is a line without what could drive a terminal.
func visibleLine(l string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return '→'
		}
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, l)
}

// github is f as the lines by which Actions, and spindle itself, show annotations.
func (f findings) github() string {
	var b strings.Builder
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, d := range f.diagnostics {
		fmt.Fprintf(&b, "::%s ", d.Severity)
		if d.File != "" {
			fmt.Fprintf(&b, "file=%s,", property.Replace(d.File))
		}
		if d.Line > 0 {
			fmt.Fprintf(&b, "line=%d,col=%d,", d.Line, d.Column)
		}
		text := d.Message
		if d.Fix != "" {
			text += "; fix: " + d.Fix
		}
		fmt.Fprintf(&b, "title=%s::%s\n", d.Code, escape.Replace(text))
	}
	return b.String()
}

var errFixStdin = errors.New("--fix of standard input prints the mended text, so it goes with --format human alone")
