package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"spindle/workflow"
)

// show prints f as a asks.
func (l *linter) show(f findings, a asked) error {
	switch a.format {
	case "json":
		out, err := json.MarshalIndent(lintJSON{
			V: 1, Kind: "lint", Files: f.files, Errors: f.errors, Warnings: f.warnings,
			Diagnostics: append([]workflow.Diagnostic{}, f.diagnostics...), Decisions: f.decisions,
		}, "", "  ")
		if err != nil {
			return fail(exitEnv, fmt.Errorf("write JSON: %w", err))
		}
		return l.print(string(out) + "\n")
	case "github":
		return l.print(f.github())
	case "lsp":
		out, err := f.lsp()
		if err != nil {
			return fail(exitEnv, fmt.Errorf("write JSON: %w", err))
		}
		return l.print(string(out) + "\n")
	case "sarif":
		out, err := workflow.SARIF(f.diagnostics, version())
		if err != nil {
			return fail(exitEnv, err)
		}
		return l.print(string(out) + "\n")
	}
	return l.print(l.human(f))
}

func (l *linter) print(text string) error {
	if _, err := l.stdout.Write([]byte(text)); err != nil {
		return fail(exitEnv, fmt.Errorf("write the answer: %w", err))
	}
	return nil
}

// lintJSON is the answer with --format json. Fields are added within version 1, never changed or removed.
type lintJSON struct {
	V           int                   `json:"v"`
	Kind        string                `json:"kind"`
	Files       int                   `json:"files"`
	Errors      int                   `json:"errors"`
	Warnings    int                   `json:"warnings"`
	Diagnostics []workflow.Diagnostic `json:"diagnostics"`
	Decisions   []decision            `json:"decisions,omitempty"`
}

// human is f for people.
func (l *linter) human(f findings) string {
	p := l.palette()
	var b strings.Builder
	for _, d := range f.diagnostics {
		b.WriteString(p.diagnostic(d.Render(f.sources[d.File])) + "\n")
	}
	if len(f.decisions) > 0 {
		b.WriteString(p.table(f.decisions))
		if f.paths {
			b.WriteString("the conditions on paths were not compared; say what changed with --changed a,b\n")
		}
		b.WriteByte('\n')
	}
	if !f.failed { // else it is the last word
		b.WriteString(f.summary() + "\n")
	}
	if p.ascii {
		return asciiOnly().Replace(b.String())
	}
	return b.String()
}

// summary is f on one line.
func (f findings) summary() string {
	return fmt.Sprintf("%s, %s in %s (%d ms)",
		count(f.errors, "error"), count(f.warnings, "warning"), count(f.files, "file"), f.took/time.Millisecond)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// palette is what the reader's terminal can show.
type palette struct{ colour, ascii bool }

// palette finds that out: colour is for terminals alone and never where NO_COLOR says so.
func (l *linter) palette() palette {
	var p palette
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set holds
		if v := value(l.environ, name); v != "" {
			v = strings.ToLower(v)
			p.ascii = !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
			break
		}
	}
	f, ok := l.stdout.(*os.File)
	p.colour = ok && terminal(f) && !has(l.environ, "NO_COLOR") && value(l.environ, "TERM") != "dumb"
	return p
}

// value is what environ sets name to, or "".
func value(environ []string, name string) string {
	for _, kv := range environ {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v
		}
	}
	return ""
}

// Colours of the 16 that every terminal has and the reader's theme decides.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	bold   = "1"
)

func (p palette) paint(colour, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

var (
	headLine  = regexp.MustCompile(`^(error|warning)\[[A-Z-]+\]`)
	caretLine = regexp.MustCompile(`^( *│ *)(\^+)$`)
	edge      = regexp.MustCompile(`^ *[0-9]* *(│|┌─|=)`)
)

// diagnostic colours a rendered diagnostic.
func (p palette) diagnostic(text string) string {
	if !p.colour {
		return text
	}
	colour := red
	if strings.HasPrefix(text, "warning") {
		colour = yellow
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if head := headLine.FindString(line); head != "" {
			line = p.paint(bold+";"+colour, head) + p.paint(bold, line[len(head):])
		} else if m := caretLine.FindStringSubmatch(line); m != nil {
			line = p.paint(blue, m[1]) + p.paint(bold+";"+colour, m[2])
		} else if m := edge.FindString(line); m != "" {
			line = p.paint(blue, m) + line[len(m):]
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// table shows what starts which workflow.
func (p palette) table(ds []decision) string {
	what, file := 0, 0
	for _, d := range ds {
		what, file = max(what, len([]rune(d.what()))), max(file, len([]rune(d.base())))
	}
	var b strings.Builder
	last := ""
	for _, d := range ds {
		head := d.what()
		if head == last {
			head = ""
		} else {
			last = head
		}
		mark, why := p.paint(green, "✓"), ""
		switch {
		case d.Invalid:
			mark, why = p.paint(red, "!"), "  (invalid)"
		case !d.Starts:
			mark, why = p.paint(yellow, "✗"), "  ("+d.Why+")"
		}
		name := d.base()
		if why != "" {
			name = fmt.Sprintf("%-*s", file, name)
		}
		fmt.Fprintf(&b, "%-*s  %s %s%s\n", what, head, mark, name, why)
	}
	return b.String()
}

// asciiOnly replaces the characters that not every locale has.
func asciiOnly() *strings.Replacer {
	return strings.NewReplacer("✓", "+", "✗", "-", "┌─", "-->", "│", "|", "·", ".", "…", "...")
}
