package workflow

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The parts of the Language Server Protocol 3.17 that are written: the parameters of textDocument/publishDiagnostics.
type (
	// PublishDiagnostics is what an editor is told of one file.
	PublishDiagnostics struct {
		URI         string          `json:"uri"`
		Diagnostics []LSPDiagnostic `json:"diagnostics"`
	}
	// LSPDiagnostic is a Diagnostic in the words of editors.
	LSPDiagnostic struct {
		Range    LSPRange `json:"range"`
		Severity int      `json:"severity"` // 1 is an error, 2 a warning
		Code     string   `json:"code"`
		Source   string   `json:"source"`
		Message  string   `json:"message"`
		Data     LSPData  `json:"data"`
	}
	// LSPData is what a code action needs.
	LSPData struct {
		Fix   string    `json:"fix,omitempty"`
		Edits []LSPEdit `json:"edits,omitempty"`
	}
	// LSPEdit is a TextEdit.
	LSPEdit struct {
		Range   LSPRange `json:"range"`
		NewText string   `json:"newText"`
	}
	// LSPRange and LSPPosition count from 0, characters in UTF-16 units.
	LSPRange struct {
		Start LSPPosition `json:"start"`
		End   LSPPosition `json:"end"`
	}
	// LSPPosition is a place between two characters.
	LSPPosition struct {
		Line      int `json:"line"`
		Character int `json:"character"`
	}
)

// LSP is ds, the diagnostics of the file src, as an editor takes them. Every range lies in src.
func LSP(uri string, src []byte, ds []Diagnostic) PublishDiagnostics {
	out := PublishDiagnostics{URI: uri, Diagnostics: []LSPDiagnostic{}}
	r := &report{src: src}
	for _, d := range ds {
		l := LSPDiagnostic{Severity: 1, Code: d.Code, Source: "spindle", Message: d.Message, Data: LSPData{Fix: d.Fix}}
		if d.Severity == Warning {
			l.Severity = 2
		}
		if from, ok := r.offset(pos{d.Line, d.Column}); ok {
			line, _, _ := bytes.Cut(src[from:], []byte("\n"))
			l.Range = lspRange(src, from, from+firstBytes(line, wordLen(string(line), 0)))
		}
		for _, e := range d.Edits {
			if e.Start >= 0 && e.Start <= e.End && e.End <= len(src) {
				l.Data.Edits = append(l.Data.Edits, LSPEdit{lspRange(src, e.Start, e.End), e.Text})
			}
		}
		out.Diagnostics = append(out.Diagnostics, l)
	}
	return out
}

// firstBytes is how many bytes the first n characters of line have. What is no UTF-8 counts byte by byte.
func firstBytes(line []byte, n int) int {
	i := 0
	for range n {
		_, size := utf8.DecodeRune(line[i:])
		i += size
	}
	return i
}

func lspRange(src []byte, start, end int) LSPRange {
	return LSPRange{lspPosition(src, start), lspPosition(src, end)}
}

func lspPosition(src []byte, at int) LSPPosition {
	start := bytes.LastIndexByte(src[:at], '\n') + 1
	units := 0
	for text := src[start:at]; len(text) > 0; {
		c, size := utf8.DecodeRune(text)
		units += max(1, utf16.RuneLen(c))
		text = text[size:]
	}
	return LSPPosition{bytes.Count(src[:start], []byte("\n")), units}
}

// GitHub is ds as workflow commands of GitHub, one to a line, which its runners and Forgejo's show beside the lines of
// a change.
func GitHub(ds []Diagnostic) string {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var b strings.Builder
	for _, d := range ds {
		b.WriteString("::" + string(d.Severity) + " ")
		if d.File != "" {
			b.WriteString("file=" + property.Replace(d.File) + ",")
			if d.Line > 0 {
				fmt.Fprintf(&b, "line=%d,col=%d,", d.Line, d.Column)
			}
		}
		b.WriteString("title=" + property.Replace(d.Code) + "::" + data.Replace(d.Message))
		if d.Fix != "" {
			b.WriteString(data.Replace("\nfix: " + d.Fix))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
