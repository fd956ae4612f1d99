package workflow

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// syntax reports what the YAML library found at t of src, in our words where they are clearer.
func syntax(r *report, src []byte, t *token.Token, message string) {
	at := place(t)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(message, p) {
				return true
			}
		}
		return false
	}
	fix := "check the indentation and the quotes of this line and the one before"
	switch {
	case has("found character '\t'"):
		r.err(at, codeTab, "replace the tab with spaces", "YAML does not allow tabs for indentation")
		return
	case has("mapping value is not allowed", "value is not allowed in this context", "invalid key for this map"):
		if open, end := longQuote(t); open != nil {
			r.err(place(open), codeYAML, "close the quotes", "the quotes that open here close on line %d", end)
			return
		}
		if misindented(r, src, at.line) || colonInText(r, src, at) {
			return
		}
		message = "a value is not allowed here: the line is indented differently from its siblings, or holds an unquoted colon"
		fix = "indent the line like its siblings, or put the value in quotes"
	case has("could not find end character of"):
		message = "the closing quote is missing"
		fix = "close the quotes"
	case has("end token", "could not find flow", "must be specified"):
		message = "a bracket is not closed"
		fix = "close every [ and {"
		if open := openBracket(t); open != nil {
			at = place(open)
		}
	case has("reserved character", "cannot start any token"):
		fix = "put the value in quotes"
	case has("unexpected key name", "non-map value"):
		message = "a line without a colon stands where a key is wanted"
		fix = "write it as key: value"
	case message == "":
		message = "the line cannot be read"
	}
	r.err(at, codeYAML, fix, "%s", clean(message, 200))
}

// keyLine is a line that holds one key, with the dashes in front of it; fullLine is one whose key has a
// value on the same line, so that what follows is a sibling and not a child.
var (
	keyLine  = regexp.MustCompile(`^ *(?:- +)*[A-Za-z_][A-Za-z0-9_-]*:(?: [^:]*)?$`)
	fullLine = regexp.MustCompile(`^ *(?:- +)*[A-Za-z_][A-Za-z0-9_-]*: +[^:#|>\s][^:]*$`)
)

// lookBack is how many tokens before a fault are looked at for its cause.
const lookBack = 2000

// openBracket is the innermost bracket that is open at t, or nil.
func openBracket(t *token.Token) *token.Token {
	depth := 0
	for i := 0; t != nil && i < lookBack; t, i = t.Prev, i+1 {
		switch t.Type {
		case token.SequenceEndType, token.MappingEndType:
			depth++
		case token.SequenceStartType, token.MappingStartType:
			if depth == 0 {
				return t
			}
			depth--
		}
	}
	return nil
}

// longQuote is the quoted text just before t that holds line breaks, and the line that it ends on; nil when there is
// none. Most often its closing quotes were meant to open another text.
func longQuote(t *token.Token) (open *token.Token, end int) {
	for i := 0; t != nil && i < 4; t, i = t.Prev, i+1 {
		quoted := t.Type == token.DoubleQuoteType || t.Type == token.SingleQuoteType
		if n := strings.Count(strings.TrimSpace(t.Origin), "\n"); quoted && n > 0 {
			return t, place(t).line + n
		}
	}
	return nil, 0
}

// misindented tells, and reports, whether line, or the one after it that was read as its continuation, is a
// key that stands a little off its siblings.
func misindented(r *report, src []byte, line int) bool {
	lines := bytes.Split(src, []byte("\n"))
	for _, at := range []int{line + 1, line} {
		if at < 2 || at > len(lines) || !keyLine.Match(lines[at-1]) || !fullLine.Match(lines[at-2]) {
			continue
		}
		if entry := bytes.HasPrefix(bytes.TrimLeft(lines[at-1], " "), []byte("-")); entry && at > line {
			continue // a new entry is no continuation
		}
		have := indentation(lines[at-1])
		want := len(lines[at-2]) - len(bytes.TrimLeft(lines[at-2], " -"))
		off := have - want
		// A key below the dash of its entry, and not below the first key.
		dash := have == indentation(lines[at-2]) && off < 0 && lines[at-1][have] != '-'
		if off > 2 || off < -1 && !dash || off == 0 {
			continue
		}
		fix := "remove " + spaces(off)
		if off < 0 {
			fix = "add " + spaces(-off)
		}
		r.err(pos{at, have + 1}, codeYAML, fix, "this line is indented %s, its siblings have %d", spaces(have), want)
		if off > 0 {
			r.mend(pos{at, 1}, strings.Repeat(" ", off), "")
		} else if from, ok := r.offset(pos{at, 1}); ok {
			r.edit(Edit{Start: from, End: from, Text: strings.Repeat(" ", -off)})
		}
		return true
	}
	return false
}

func indentation(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}
