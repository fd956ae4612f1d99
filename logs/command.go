package logs

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What a line of output can ask for. The words are those that programs print for other CI systems already.
const (
	Group      = "group"     // ::group::title, or --- title: what follows belongs together
	GroupOpen  = "open"      // +++ title: the same, and worth a look
	EndGroup   = "endgroup"  // ::endgroup::
	ErrorNote  = "error"     // ::error file=a.go,line=3::message
	WarnNote   = "warning"   // ::warning::message
	NoticeNote = "notice"    // ::notice::message
	AddMask    = "add-mask"  // ::add-mask::value
	maxCommand = 8 << 10     // a longer line asks for nothing, in bytes
	maxTitle   = 200         // of what is shown of a title, in bytes
	maxFile    = 1 << 10     // of a file's name, in bytes
	maxNumber  = 100_000_000 // of lines and columns
)

// Command is what a line of output asks for. Everything in it is the job's own text.
type Command struct {
	// Name is one of the words above.
	Name string
	// Text is a title, a message, or the value to mask.
	Text string
	// Title, File, Line and Column are those of a note, as far as it gives them; lines and columns count from 1.
	Title, File  string
	Line, Column int
}

// Note tells whether c is an annotation.
func (c Command) Note() bool {
	return c.Name == ErrorNote || c.Name == WarnNote || c.Name == NoticeNote
}

// Place is file:line:column of a note, as far as it is known.
func (c Command) Place() string {
	if c.File == "" {
		return ""
	}
	s := c.File
	if c.Line > 0 {
		s += ":" + strconv.Itoa(c.Line)
		if c.Column > 0 {
			s += ":" + strconv.Itoa(c.Column)
		}
	}
	return s
}

// mayCommand is quick to say that b asks for nothing.
func mayCommand(b []byte) bool {
	if len(b) < 4 || len(b) > maxCommand {
		return false
	}
	switch b[0] {
	case ':', '-', '+', ' ', '\t', 0x1b:
		return true
	}
	return false
}

// ParseCommand reads what a line of output asks for. Every other line, and one with an unknown word, asks for
// nothing and is text.
func ParseCommand(line []byte) (Command, bool) {
	if !mayCommand(line) {
		return Command{}, false
	}
	b := Plain(line)
	if !bytes.HasPrefix(b, []byte("--- ")) && !bytes.HasPrefix(b, []byte("+++ ")) {
		b = bytes.TrimLeft(b, " \t")
	}
	if len(b) < 4 || !utf8.Valid(b) {
		return Command{}, false
	}
	s := string(b)
	// The head of a difference, and a result of go test, begin so too: they are text.
	if title, ok := strings.CutPrefix(s, "--- "); ok {
		return Command{Name: Group, Text: clip(strings.TrimSpace(title))}, strings.TrimSpace(title) != "" && !otherHead(title)
	}
	if title, ok := strings.CutPrefix(s, "+++ "); ok {
		return Command{Name: GroupOpen, Text: clip(strings.TrimSpace(title))}, strings.TrimSpace(title) != "" && !otherHead(title)
	}
	rest, ok := strings.CutPrefix(s, "::")
	if !ok {
		return Command{}, false
	}
	head, text, ok := strings.Cut(rest, "::")
	if !ok {
		return Command{}, false
	}
	name, properties, _ := strings.Cut(head, " ")
	c := Command{Name: name, Text: unescape(text)}
	switch name {
	case Group:
		c.Text = clip(strings.TrimSpace(c.Text))
		return c, true
	case EndGroup:
		c.Text = ""
		return c, true
	case AddMask:
		return c, strings.TrimSpace(c.Text) != ""
	case ErrorNote, WarnNote, NoticeNote:
		c.properties(properties)
		return c, true
	}
	return Command{}, false
}

// otherHead tells whether what follows --- or +++ is what diff writes there (a file, with a/, b/ or a time), or what
// go test does.
func otherHead(title string) bool {
	return strings.HasPrefix(title, "a/") || strings.HasPrefix(title, "b/") || strings.HasPrefix(title, "/dev/null") ||
		strings.Contains(title, "\t") || strings.HasPrefix(title, "FAIL:") || strings.HasPrefix(title, "PASS:") || strings.HasPrefix(title, "SKIP:")
}

// properties reads file=a.go,line=3; what is unknown or out of bounds is left out.
func (c *Command) properties(list string) {
	for kv := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(kv), "=")
		value = strings.NewReplacer("%3A", ":", "%2C", ",").Replace(unescape(value))
		switch key {
		case "file":
			if len(value) <= maxFile && !strings.ContainsAny(value, "\n\r") {
				c.File = value
			}
		case "title":
			c.Title = clip(value)
		case "line":
			c.Line = number(value)
		case "col":
			c.Column = number(value)
		}
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxNumber {
		return 0
	}
	return n
}

func clip(s string) string {
	if len(s) <= maxTitle {
		return s
	}
	return s[:splitAt([]byte(s), maxTitle)] + "…"
}

func unescape(s string) string {
	return strings.NewReplacer("%0D", "\r", "%0A", "\n", "%25", "%").Replace(s)
}
