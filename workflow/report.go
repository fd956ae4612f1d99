package workflow

import (
	"cmp"
	"fmt"
	"slices"
)

// report gathers the diagnostics of one file.
type report struct {
	file   string
	limit  int
	found  []Diagnostic
	errors int // errors told or left out
	more   int // diagnostics that were left out
}

// pos is a place in the file. The zero pos is the file as a whole.
type pos struct{ line, column int }

func (r *report) add(s Severity, at pos, code, message, fix string) {
	if s == Error {
		r.errors++
	}
	if len(r.found) >= r.limit {
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
