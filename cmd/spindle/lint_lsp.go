package main

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf16"

	"spindle/workflow"
)

// What the Language Server Protocol 3.17 calls a position, a range, a text edit and a diagnostic. Lines and characters
// count from 0, characters in UTF-16.
type (
	lspPosition struct {
		Line      int `json:"line"`
		Character int `json:"character"`
	}
	lspRange struct {
		Start lspPosition `json:"start"`
		End   lspPosition `json:"end"`
	}
	lspEdit struct {
		Range   lspRange `json:"range"`
		NewText string   `json:"newText"`
	}
	lspDiagnostic struct {
		Range    lspRange `json:"range"`
		Severity int      `json:"severity"`
		Code     string   `json:"code"`
		Source   string   `json:"source"`
		Message  string   `json:"message"`
		// Data has the edits of a code action that mends it.
		Data []lspEdit `json:"data,omitempty"`
	}
	lspFile struct {
		URI         string          `json:"uri"`
		Diagnostics []lspDiagnostic `json:"diagnostics"`
	}
)

// lsp is f as the parameters of textDocument/publishDiagnostics, a list of one for each file.
func (f findings) lsp() ([]byte, error) {
	list := []*lspFile{}
	byName := map[string]*lspFile{}
	file := func(name string) *lspFile {
		if byName[name] == nil {
			abs, err := filepath.Abs(name)
			if err != nil {
				abs = name
			}
			byName[name] = &lspFile{URI: (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), Diagnostics: []lspDiagnostic{}}
			list = append(list, byName[name])
		}
		return byName[name]
	}
	for _, d := range f.diagnostics {
		src := string(f.sources[d.File])
		severity := 1
		if d.Severity != workflow.Error {
			severity = 2
		}
		text := d.Message
		if d.Fix != "" {
			text += "\nfix: " + d.Fix
		}
		out := lspDiagnostic{Range: lspWord(src, d.Line, d.Column), Severity: severity, Code: d.Code, Source: "spindle", Message: text}
		for _, e := range d.Edits {
			if e.Start >= 0 && e.Start <= e.End && e.End <= len(src) {
				out.Data = append(out.Data, lspEdit{lspRange{lspAt(src, e.Start), lspAt(src, e.End)}, e.Text})
			}
		}
		to := file(d.File)
		to.Diagnostics = append(to.Diagnostics, out)
	}
	return json.MarshalIndent(list, "", "  ")
}

// lspAt is the position of a byte of src.
func lspAt(src string, at int) lspPosition {
	before := src[:at]
	line := strings.Count(before, "\n")
	return lspPosition{line, len(utf16.Encode([]rune(before[strings.LastIndexByte(before, '\n')+1:])))}
}

// lspWord is the word that stands at a line and column, which count from 1 in characters.
func lspWord(src string, line, column int) lspRange {
	if line < 1 {
		return lspRange{}
	}
	lines := strings.Split(src, "\n")
	if line > len(lines) {
		return lspRange{lspPosition{line - 1, 0}, lspPosition{line - 1, 0}}
	}
	text := []rune(strings.TrimRight(lines[line-1], "\r"))
	from := min(max(column-1, 0), len(text))
	to := from
	for to < len(text) && !strings.ContainsRune(" :,[]{}#", text[to]) {
		to++
	}
	units := func(n int) int { return len(utf16.Encode(text[:n])) }
	return lspRange{lspPosition{line - 1, units(from)}, lspPosition{line - 1, units(max(to, min(from+1, len(text))))}}
}
