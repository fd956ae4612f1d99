package desk

import (
	"bytes"
	"regexp"
	"slices"

	"spindle/logs"
)

// contextLines is how many lines of a step that did not pass the report shows.
const contextLines = 20

// tailLines is how many lines of a step are kept for it, and tailBytes how much of each.
const (
	tailLines = 400
	tailBytes = 400
)

// tail holds the last lines of a step. Its memory is used again and again, since every line passes it.
type tail struct {
	lines [][]byte
	next  int
	full  bool
}

func (t *tail) clear() { t.next, t.full = 0, false }

func (t *tail) add(line []byte) {
	if t.lines == nil {
		t.lines = make([][]byte, tailLines)
	}
	t.lines[t.next] = append(t.lines[t.next][:0], line[:min(len(line), tailBytes)]...)
	if t.next++; t.next == tailLines {
		t.next, t.full = 0, true
	}
}

// all are the lines in order, as a reader sees them.
func (t *tail) all() []string {
	var out []string
	from := 0
	if t.full {
		from = t.next
	}
	for i := range tailLines {
		at := (from + i) % tailLines
		if !t.full && i >= t.next {
			break
		}
		out = append(out, string(bytes.ToValidUTF8(logs.Plain(t.lines[at]), []byte("\uFFFD"))))
	}
	return out
}

func (t *tail) copy() tail {
	out := *t
	out.lines = make([][]byte, len(t.lines))
	for i, l := range t.lines {
		out.lines[i] = slices.Clone(l)
	}
	return out
}

// last are the last n lines.
func (t *tail) last(n int) []string {
	all := t.all()
	return all[max(0, len(all)-n):]
}

// wrong is how programs begin to say what is wrong.
func wrong() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(^|[^a-z])(error|fatal|panic|failed|failure|fail:|exception|traceback|not ok|cannot|undefined|assert)`)
}

// around are the lines around the first that says what is wrong, or the last ones, and the index of that one or -1.
func (t *tail) around(n int) (lines []string, at int) {
	all := t.all()
	re := wrong()
	i := slices.IndexFunc(all, re.MatchString)
	if i < 0 {
		return all[max(0, len(all)-n):], -1
	}
	from := max(0, min(i-n/4, len(all)-n))
	return all[from:min(len(all), from+n)], i - from
}
