package workflow

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// The YAML library takes time that grows with the square of these, so they are bounded before it sees a byte.
const (
	maxBlankRun = 100  // blank lines in a row
	maxBlank    = 5000 // blank lines of a file
	maxMapKeys  = 1000 // keys of one mapping
)

// blockHeader is the end of a line that starts a block scalar.
var blockHeader = regexp.MustCompile(`(?:^|[:\-?]\s+|^\s+)[|>][0-9+-]{0,2}\s*(?:#.*)?$`)

// scanBytes looks at the raw file: size, encoding, control characters, blank lines and tabs.
func scanBytes(r *report, src []byte, lim Limits) {
	if len(src) > lim.FileBytes {
		r.err(pos{}, codeLimit, "split the workflow into several files, or move long commands into a script",
			"the file is larger than the %d bytes allowed", lim.FileBytes)
		return
	}
	blank, run := 0, 0
	body := -1 // indentation of the line that started a block scalar, or -1
	first := false
	var m marks
	i := -1
	for line := range bytes.SplitSeq(src, []byte("\n")) {
		i++
		at := pos{i + 1, 1}
		if !scanLine(r, at, line) {
			return
		}
		text := bytes.TrimRight(line, " \t\r")
		if len(text) == 0 {
			blank, run = blank+1, run+1
			if run > maxBlankRun || blank > maxBlank {
				r.err(at, codeLimit, "remove blank lines",
					"more than %d blank lines in a row, or %d in the file, are not allowed", maxBlankRun, maxBlank)
				return
			}
			continue
		}
		run = 0
		indent := indentation(text)
		if body >= 0 && indent > body {
			if first && text[indent] == '\t' {
				// Readers of YAML disagree on where the indentation of such a block ends.
				r.err(pos{i + 1, indent + 1}, codeTab, "replace the tab with spaces, or start with another line",
					"the first line of a block must not start with a tab")
			}
			first = false
			m.inside(text)
			continue
		}
		body, first = -1, false
		if m.outside(text); m.most() > marksPerValue*lim.Nodes {
			r.err(at, codeLimit, fewerValues, "the file holds more than the %d values allowed", lim.Nodes)
			return
		}
		if bytes.HasPrefix(text, []byte("%TAG")) {
			r.err(at, codeTag, "remove the line", "%%TAG directives are not supported")
		}
		if text[indent] == '\t' {
			r.err(pos{i + 1, indent + 1}, codeTab, "replace the tab with spaces",
				"YAML does not allow tabs for indentation")
		}
		if bytes.IndexByte(text, '|') >= 0 && blockHeader.Match(text) || bytes.IndexByte(text, '>') >= 0 && blockHeader.Match(text) {
			body, first = indent, true
		}
	}
	if m.most() > marksPerValue*lim.Nodes {
		r.err(pos{}, codeLimit, fewerValues, "the file holds more than the %d values allowed", lim.Nodes)
	}
}

// plainText tells whether line is printable ASCII throughout, as most lines are.
func plainText(line []byte) bool {
	for _, c := range line {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// scanLine tells whether line is text; what is not has been reported.
func scanLine(r *report, at pos, line []byte) bool {
	if plainText(line) {
		return true
	}
	if !utf8.Valid(line) {
		r.err(at, codeEncoding, "save the file as UTF-8", "the line is not UTF-8")
		return false
	}
	column := 0
	for j, c := range string(line) {
		column++
		last := j == len(line)-1
		if c < ' ' && c != '\t' && (c != '\r' || !last) || c == 0x7f {
			r.err(pos{at.line, column}, codeEncoding, "remove the character",
				"the control character U+%04X is not allowed in YAML", c)
			return false
		}
	}
	return true
}

// tokenize splits src, and stops when there are more tokens than the values allowed can need.
func tokenize(r *report, src []byte, lim Limits) token.Tokens {
	var s scanner.Scanner
	s.Init(string(src))
	var tokens token.Tokens
	for range len(src) + 2 { // every scan but the last takes a byte at least
		next, err := s.Scan()
		if errors.Is(err, io.EOF) {
			return tokens
		}
		tokens.Add(next...)
		if err != nil {
			return tokens // the last token says what is wrong
		}
		if len(tokens) > marksPerValue*lim.Nodes {
			r.err(place(tokens[len(tokens)-1]), codeLimit, fewerValues,
				"the file holds more than the %d values allowed", lim.Nodes)
			return nil
		}
	}
	r.err(pos{1, 1}, codeYAML, "write the file in a simpler form", "the file cannot be read as YAML")
	return nil
}

// scanTokens bounds nesting and size before the parser recurses, and refuses what the language leaves out.
func scanTokens(r *report, src []byte, tokens token.Tokens, lim Limits) {
	var s shape
	anchors := map[string]bool{}
	for i, t := range tokens {
		at := place(t)
		switch t.Type {
		case token.InvalidType:
			syntax(r, src, t, t.Error)
			return
		case token.AnchorType:
			if i+1 < len(tokens) {
				anchors[tokens[i+1].Value] = true
			}
			continue
		case token.AliasType:
			strayAlias(r, tokens, i, anchors)
			continue
		case token.TagType:
			tag(r, at, t.Value)
			continue
		case token.MergeKeyType, token.DirectiveType, token.CommentType, token.DocumentEndType, token.CollectEntryType:
			continue
		case token.DocumentHeaderType:
			s = shape{}
			continue
		}
		depth, keys := s.next(tokens, i)
		switch {
		case depth > lim.Depth:
			r.err(at, codeLimit, "nest less", "collections nest deeper than the %d levels allowed", lim.Depth)
			return
		case keys > maxMapKeys:
			r.err(at, codeLimit, "use fewer keys", "one mapping has more than the %d keys allowed", maxMapKeys)
			return
		}
	}
}

// shape follows how deep a stream of tokens nests.
type shape struct {
	flow   []int   // keys seen, by open bracket
	blocks []block // open block collections, outermost first
}

type block struct{ column, keys int }

// next takes token i and returns how deep collections nest there, and how many keys the innermost has.
func (s *shape) next(tokens token.Tokens, i int) (depth, keys int) {
	t := tokens[i]
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		s.flow = append(s.flow, 0)
	case token.SequenceEndType, token.MappingEndType:
		if n := len(s.flow); n > 0 {
			s.flow = s.flow[:n-1]
		}
	case token.SequenceEntryType:
		if len(s.flow) == 0 {
			s.enter(t.Position.Column)
		}
	case token.MappingKeyType, token.MappingValueType:
		if n := len(s.flow); n > 0 {
			s.flow[n-1]++
			keys = s.flow[n-1]
			break
		}
		column := t.Position.Column
		if t.Type == token.MappingValueType && i > 0 && tokens[i-1].Position.Line == t.Position.Line {
			column = tokens[i-1].Position.Column
		}
		s.enter(column)
		b := &s.blocks[len(s.blocks)-1]
		b.keys++
		keys = b.keys
	}
	return len(s.flow) + len(s.blocks), keys
}

// enter makes the block collection at column the innermost one.
func (s *shape) enter(column int) {
	n := len(s.blocks)
	for n > 0 && s.blocks[n-1].column > column {
		n--
	}
	s.blocks = s.blocks[:n]
	if n == 0 || s.blocks[n-1].column < column {
		s.blocks = append(s.blocks, block{column: column})
	}
}

// strayAlias reports an alias that has no anchor before it. An unquoted pattern that starts with a star reads as one.
func strayAlias(r *report, tokens token.Tokens, i int, anchors map[string]bool) {
	t := tokens[i]
	word := ""
	if i+1 < len(tokens) && tokens[i+1].Position.Line == t.Position.Line {
		word = tokens[i+1].Value
	}
	switch {
	case anchors[word]:
	case word == "" || strings.ContainsAny(word, "*./{}[],"):
		r.err(place(t), codeAnchor, `put the pattern in quotes: "*", or "**" for names with a slash as well`,
			"a value that starts with * is an alias in YAML, and this one has no anchor")
		r.quote(place(t))
	default:
		fix := "put the value in quotes, or write an anchor &" + clean(word, 40) + " before it"
		r.err(place(t), codeAnchor, fix, "the alias %s has no anchor before it", quoted("*"+word))
	}
}

// tag reports a tag that is not one of YAML's own; it stands at at. An unquoted exclusion reads as a tag, and so
// does an unquoted condition that starts with "not".
func tag(r *report, at pos, name string) {
	switch name {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return
	}
	word := name
	if from, ok := r.offset(at); ok && r.src[from] == '!' { // as it is in the file, not as the library reads it
		rest := r.src[from:min(len(r.src), from+200)]
		if end := bytes.IndexAny(rest, " \r\n"); end >= 0 {
			rest = rest[:end]
		}
		word = string(rest)
	}
	word = strings.TrimRight(word, "]}, ")
	fix := "remove the tag"
	if !strings.HasPrefix(word, "!!") && word != "!" {
		fix += "; to exclude a pattern, or to write not, put it in quotes: " + quoted(word)
	}
	r.err(at, codeTag, fix, "a value that starts with ! is a tag in YAML, and tags are not supported (found %s)", quoted(word))
	if !strings.HasPrefix(word, "!!") && word != "!" {
		r.quote(at)
	}
}

func place(t *token.Token) pos {
	if t == nil || t.Position == nil {
		return pos{1, 1}
	}
	return pos{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}
