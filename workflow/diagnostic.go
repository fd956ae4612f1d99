package workflow

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Severity tells what stands in the way of a run from what is only worth knowing.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one thing to say about a workflow file. Code is stable; Message is one sentence that stands
// alone; Fix is what to write or do.
type Diagnostic struct {
	File string `json:"file,omitempty"`
	// Line and Column count from 1, columns in characters. Line 0 means the file as a whole.
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Fix      string   `json:"fix,omitempty"`
	// Edits carry the fix out, all of them together, where that is safe to do without asking.
	Edits []Edit `json:"edits,omitempty"`
}

// Edit puts Text in the place of the bytes from Start up to End of the file, as it is on disk.
type Edit struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Text  string `json:"text"`
}

// HasErrors tells whether ds holds an error.
func HasErrors(ds []Diagnostic) bool {
	for _, d := range ds {
		if d.Severity == Error {
			return true
		}
	}
	return false
}

// Place is file:line:column, as far as it is known.
func (d Diagnostic) Place() string {
	if d.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column)
}

// String is the diagnostic on one line.
func (d Diagnostic) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s[%s]: ", d.Severity, d.Code)
	if p := d.Place(); p != "" {
		b.WriteString(p + ": ")
	}
	b.WriteString(d.Message)
	if d.Fix != "" {
		b.WriteString("; fix: " + d.Fix)
	}
	return b.String()
}

// excerptWidth is how many characters of a source line are shown.
const excerptWidth = 110

// Render is the diagnostic on several lines, with the place in src marked by a caret. Control characters
// of src are shown as dots, so that a hostile file cannot drive the reader's terminal.
func (d Diagnostic) Render(src []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s[%s]: %s\n", d.Severity, d.Code, d.Message)
	lines := bytes.Split(bytes.TrimPrefix(src, []byte("\ufeff")), []byte("\n"))
	shown := d.Line >= 1 && d.Line <= len(lines)
	margin := strings.Repeat(" ", len(fmt.Sprint(d.Line)))
	if p := d.Place(); p != "" {
		fmt.Fprintf(&b, "%s ┌─ %s\n", margin, p)
	}
	if shown {
		if d.Line > 1 {
			text, _ := excerpt(lines[d.Line-2], d.Column)
			fmt.Fprintf(&b, "%*d │ %s\n", len(margin), d.Line-1, text)
		}
		text, caret := excerpt(lines[d.Line-1], d.Column)
		fmt.Fprintf(&b, "%d │ %s\n", d.Line, text)
		if caret >= 0 {
			fmt.Fprintf(&b, "%s │ %s%s\n", margin, strings.Repeat(" ", caret), strings.Repeat("^", wordLen(text, caret)))
		}
	}
	if d.Fix != "" {
		fmt.Fprintf(&b, "%s = fix: %s\n", margin, d.Fix)
	}
	fmt.Fprintf(&b, "%s = more: spindle explain %s\n", margin, d.Code)
	return b.String()
}

// excerpt is the part of line around column that is shown, and where in it the column is (-1: outside).
func excerpt(line []byte, column int) (string, int) {
	rs := []rune(strings.TrimRight(strings.ToValidUTF8(string(line), "·"), "\r"))
	for i, r := range rs {
		if r != ' ' && !unicode.IsPrint(r) {
			rs[i] = '·'
		}
	}
	at := column - 1
	if at < 0 || at > len(rs) {
		at = -1
	}
	if len(rs) <= excerptWidth {
		return string(rs), at
	}
	from := 0
	if at > excerptWidth/2 {
		from = min(at-excerptWidth/2, len(rs)-excerptWidth)
		at -= from
		rs[from] = '…'
	}
	if from+excerptWidth < len(rs) {
		rs[from+excerptWidth-1] = '…'
	}
	return string(rs[from : from+excerptWidth]), at
}

// wordLen is how many carets underline what stands at column from of text.
func wordLen(text string, from int) int {
	rs := []rune(text)
	n := 0
	for i := from; i < len(rs) && !strings.ContainsRune(" :,[]{}#", rs[i]); i++ {
		n++
	}
	return max(n, 1)
}

// quoted is s in quotes, safe to print and clipped to 60 characters.
func quoted(s string) string { return `"` + clean(s, 60) + `"` }

// clean is s on one line without control characters, clipped to most characters.
func clean(s string, most int) string {
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == utf8.RuneError || r != ' ' && !unicode.IsPrint(r):
			b.WriteString("·")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
