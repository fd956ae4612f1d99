package logs

import (
	"bytes"
	"os"
	"time"
)

// A program that redraws its line with carriage returns writes states of which a terminal shows the last.
const (
	// redrawAt is how much of a line without an end is kept of all its states, in bytes. Above it only the
	// latest state is.
	redrawAt = 4 << 10
	// redrawEvery is how often such a line's state becomes a line of the log, so that progress is seen.
	redrawEvery = 5 * time.Second
)

// output is one stream of one step.
type output struct {
	w      *Writer
	step   int
	stream string
	masker masker
	line   []byte    // the masked beginning of a line that has no end yet
	redrew time.Time // when a state of a redrawn line was last written
	closed bool
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.closed || o.w.closed {
		return 0, os.ErrClosed
	}
	before := len(o.line)
	o.masker.p = o.w.patterns
	o.line = o.masker.feed(o.line, b)
	o.lines(before)
	if err := o.w.soon(); err != nil {
		return 0, err
	}
	return len(b), nil
}

// lines moves the whole lines of o.line, and parts of one that is too long, into the log. There is no line
// end in the first seen bytes.
func (o *output) lines(seen int) {
	rest := o.line
	for {
		n := cutLine(rest, seen, o.w.logs.c.Limits.Line)
		if n == 0 {
			break
		}
		if kept := states(rest[:n]); kept > 0 {
			rest, n = rest[kept:], n-kept
		}
		if mayCommand(rest[:n]) {
			rest, n = o.obey(rest, n)
		}
		o.w.data(o.step, o.stream, rest[:n])
		rest, seen = rest[n:], 0
	}
	if kept := states(rest); kept > 0 {
		if now := o.w.logs.c.Clock.Now(); now.Sub(o.redrew) >= redrawEvery {
			o.redrew = now
			o.w.data(o.step, o.stream, rest[lastState(rest[:kept]):kept])
		}
		rest = rest[kept:]
	}
	o.line = append(o.line[:0], rest...)
}

// obey does what the first n bytes of rest, a line, ask the log for: to mask a value from here on. The line itself
// and what came after it were let through before that was known, so they are masked again; so is what other streams hold.
func (o *output) obey(rest []byte, n int) ([]byte, int) {
	c, ok := ParseCommand(rest[:n])
	if !ok || c.Name != AddMask || o.w.added >= maxAdded {
		return rest, n
	}
	o.w.added++
	o.w.addMask(c.Text)
	line := []byte(o.w.hide(string(rest[:n])))
	if len(line) == 0 || line[len(line)-1] != '\n' {
		line = append(line, '\n') // the value ended with the line's end
	}
	if bytes.Equal(line, rest[:n]) {
		line = []byte("::add-mask::" + mark + "\n") // too short to be masked elsewhere
	}
	after := o.again(rest[n:])
	for other := range o.w.outputs {
		if other != o {
			other.line = other.again(other.line)
		}
	}
	return append(line, after...), len(line)
}

// again masks b, which is the end of what was let through, and what is withheld after it, by the patterns of now. What
// may be the beginning of a secret is withheld anew.
func (o *output) again(b []byte) []byte {
	was := o.masker
	o.masker = masker{p: o.w.patterns}
	return o.masker.feed(o.masker.feed(nil, b), was.held[was.covered:])
}

// maxAdded is how many values a job may have masked with ::add-mask::.
const maxAdded = 1000

// end hands over what was withheld and closes the stream.
func (o *output) end() {
	o.closed = true
	delete(o.w.outputs, o)
	seen := len(o.line)
	o.masker.p = o.w.patterns
	o.line = o.masker.flush(o.line)
	o.lines(seen)
	for len(o.masker.held) > 0 { // by a mask that one of these lines asked for
		seen = len(o.line)
		o.line = o.masker.flush(o.line)
		o.lines(seen)
	}
	if len(o.line) > 0 {
		o.w.data(o.step, o.stream, append(o.line, '\n'))
	}
	o.line = nil
}

// Close implements io.Closer.
func (o *output) Close() error {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.closed {
		return nil
	}
	o.end()
	return o.w.flush()
}

// states is how many bytes at the beginning of b, which is long, are states that its last one covers. A
// carriage return at the end covers nothing yet.
func states(b []byte) int {
	if len(b) <= redrawAt {
		return 0
	}
	return lastState(b)
}

// lastState is where the last state in b begins.
func lastState(b []byte) int {
	end := len(bytes.TrimRight(b, "\r\n"))
	return bytes.LastIndexByte(b[:end], '\r') + 1
}

// cutLine is the length of the first line of b with its end, or where a line longer than most is split; 0 if
// b holds no whole line. There is no line end in the first seen bytes.
func cutLine(b []byte, seen, most int) int {
	i := bytes.IndexByte(b[seen:], '\n')
	if i >= 0 && seen+i <= most {
		return seen + i + 1
	}
	if len(b) <= most {
		return 0
	}
	return splitAt(b, most)
}

// splitAt is the greatest length up to most that does not cut a character of b in two.
func splitAt(b []byte, most int) int {
	n := most
	for n > most-4 && n > 0 && b[n]&0xC0 == 0x80 {
		n--
	}
	if n == 0 || b[n]&0xC0 == 0x80 {
		return most
	}
	return n
}
