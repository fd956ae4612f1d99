package logs

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Kinds of line, and the two ends of a step.
const (
	Data    = "data"
	Control = "control"
	Start   = "start"
	End     = "end"
)

// Line is one line of a log, in the network's names.
type Line struct {
	Kind    string    `json:"kind"`
	Content string    `json:"content"`
	Time    time.Time `json:"time"`
	// Step is the index of the step, or -1 for what belongs to none.
	Step int `json:"step_id"`
	// Stream is stdout or stderr; empty for control lines and for what the spindle says itself.
	Stream      string `json:"stream,omitempty"`
	StepStatus  string `json:"step_status,omitempty"`
	StepKind    string `json:"step_kind,omitempty"`
	StepCommand string `json:"step_command,omitempty"`
	// Outcome and ExitCode are on the line that ends a step.
	Outcome  string `json:"step_outcome,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"`
}

// dataStart is how every data line begins.
const dataStart = `{"kind":"data","content":"`

// appendData appends a data line. It is written by hand because every byte that a step prints passes here.
func appendData(b []byte, at time.Time, step int, stream string, content []byte) []byte {
	b = append(b, dataStart...)
	b = appendEscaped(b, content)
	b = append(b, `","time":"`...)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","step_id":`...)
	b = strconv.AppendInt(b, int64(step), 10)
	if stream != "" {
		b = append(b, `,"stream":"`...)
		b = append(b, stream...)
		b = append(b, '"')
	}
	return append(b, "}\n"...)
}

// appendEscaped appends s as the inside of a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendEscaped(b, s []byte) []byte {
	const hex = "0123456789abcdef"
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[from:i]...), "\uFFFD"...)
				i++
				from = i
				continue
			}
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	return append(b, s[from:]...)
}

func appendControl(b []byte, l Line) ([]byte, error) {
	j, err := json.Marshal(l)
	if err != nil {
		return b, fmt.Errorf("encode a control line: %w", err)
	}
	return append(append(b, j...), '\n'), nil
}
