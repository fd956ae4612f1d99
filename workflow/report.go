package workflow

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// report gathers the diagnostics of one file.
type report struct {
	file   string
	limit  int
	found  []Diagnostic
	errors int // errors told or left out
	more   int // diagnostics that were left out
	// src is the file as it came, which edits count in; starts is where its lines start, once somebody asked.
	src    []byte
	starts []int
	// last is the place that was asked for last, which is byte lastAt.
	last   pos
	lastAt int
	// open tells whether the newest diagnostic is in found, so that an edit can join it.
	open bool
}

// pos is a place in the file. The zero pos is the file as a whole.
type pos struct{ line, column int }

// dedupe is how many of the newest diagnostics a new one is compared with.
const dedupe = 50

func (r *report) add(s Severity, at pos, code, message, fix string) {
	if s == Error {
		r.errors++
	}
	// An alias shows the same mistake once more.
	for i := max(0, len(r.found)-dedupe); i < len(r.found); i++ {
		if f := r.found[i]; f.Line == at.line && f.Column == at.column && f.Code == code && f.Message == message {
			r.open = false
			return
		}
	}
	r.open = len(r.found) < r.limit
	if !r.open {
		r.more++
		return
	}
	r.found = append(r.found, Diagnostic{
		File: r.file, Line: at.line, Column: at.column, Severity: s, Code: code, Message: message, Fix: fix,
	})
}

func (r *report) err(at pos, code, fix, format string, args ...any) {
	r.add(Error, at, code, fmt.Sprintf(format, args...), fix)
}

func (r *report) warn(at pos, code, fix, format string, args ...any) {
	r.add(Warning, at, code, fmt.Sprintf(format, args...), fix)
}

// mend gives the newest diagnostic an edit that puts with in the place of old, which stands at at. Where the file does
// not have old there, letter by letter (it may be quoted, or come through an alias), there is no edit.
func (r *report) mend(at pos, old, with string) {
	if !r.open || old == with {
		return
	}
	from, ok := r.offset(at)
	if !ok || !bytes.HasPrefix(r.src[from:], []byte(old)) {
		return
	}
	r.edit(Edit{Start: from, End: from + len(old), Text: with})
}

// edit gives the newest diagnostic the edits es, which belong together.
func (r *report) edit(es ...Edit) {
	if r.open {
		d := &r.found[len(r.found)-1]
		d.Edits = append(d.Edits, es...)
	}
}

// bom is the mark that some editors put before UTF-8. It is no character of the file.
const bom = "\ufeff"

// offset is the byte of the file at at.
func (r *report) offset(at pos) (int, bool) {
	if r.starts == nil {
		first := 0
		if bytes.HasPrefix(r.src, []byte(bom)) {
			first = len(bom)
		}
		r.starts = []int{first}
		for i, c := range r.src {
			if c == '\n' {
				r.starts = append(r.starts, i+1)
			}
		}
	}
	if at.line < 1 || at.line > len(r.starts) || at.column < 1 {
		return 0, false
	}
	i, column := r.starts[at.line-1], 1
	if r.last.line == at.line && r.last.column <= at.column { // a long line is not walked again for each of its words
		i, column = r.lastAt, r.last.column
	}
	for ; column < at.column; column++ {
		c, size := utf8.DecodeRune(r.src[i:])
		if size == 0 || c == '\n' {
			return 0, false
		}
		i += size
	}
	r.last, r.lastAt = at, i
	return i, true
}

// failed tells whether an error was told.
func (r *report) failed() bool { return r.errors > 0 }

// done returns the diagnostics in the order of the file.
func (r *report) done() []Diagnostic {
	slices.SortStableFunc(r.found, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.more > 0 {
		sev := Warning
		if r.failed() {
			sev = Error
		}
		r.found = append(r.found, Diagnostic{
			File: r.file, Severity: sev, Code: codeLimit, Message: fmt.Sprintf("%d more problems are not shown", r.more),
			Fix: "mend the ones above and look again",
		})
		r.more = 0
	}
	return r.found
}
