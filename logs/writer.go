package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// flushAt is how much output is written at the latest, in bytes.
const flushAt = 32 << 10

// Writer writes the log of one attempt. Its methods are safe for concurrent use. Whoever created it closes it.
type Writer struct {
	logs *Logs
	ref  Ref
	file *os.File

	mu       sync.Mutex
	patterns patterns
	values   []string
	buf      []byte // encoded lines that are not in the file yet
	size     int64  // bytes in the file
	flushed  time.Time
	timer    *time.Timer
	err      error // the first failure to write; later lines are refused with it
	closed   bool
	kept     int64 // bytes of output kept, against the limit
	dropped  int64
	lines    int64
	index    index
	wake     chan struct{} // closed and replaced when size grows or the log ends
}

// AddMask hides more values from now on, in streams that are opened afterwards too.
func (w *Writer) AddMask(values ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values = append(append([]string(nil), w.values...), values...)
	w.patterns = newPatterns(w.values)
}

// StepStart says that a step begins. kind is "system" or "user".
func (w *Writer) StepStart(step int, name, command, kind string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index.Steps[step] = w.lines
	return w.control(Line{
		Kind: Control, Content: w.hide(name), Time: w.logs.c.Clock.Now().UTC(), Step: step,
		StepStatus: Start, StepKind: kind, StepCommand: w.hide(command),
	})
}

// StepEnd says how a step ended and puts everything so far on the disk.
func (w *Writer) StepEnd(step int, outcome string, exitCode int, reason string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.control(Line{
		Kind: Control, Content: w.hide(reason), Time: w.logs.c.Clock.Now().UTC(), Step: step,
		StepStatus: End, Outcome: outcome, ExitCode: exitCode,
	})
	if err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return w.fail(fmt.Errorf("sync the log: %w", err))
	}
	return nil
}

// System writes what the spindle itself has to say, a line for each line of text.
func (w *Writer) System(step int, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	for _, l := range bytes.SplitAfter([]byte(w.hide(text)), []byte("\n")) {
		if len(l) > 0 {
			w.data(step, "", l)
		}
	}
	return w.flush()
}

// hide masks text that is whole.
func (w *Writer) hide(text string) string {
	m := masker{p: w.patterns}
	return string(m.flush(m.feed(nil, []byte(text))))
}

// Stream takes a step's output. stream is "stdout" or "stderr". Closing it hands over what was withheld; it
// does not close the log.
func (w *Writer) Stream(step int, stream string) io.WriteCloser {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &output{w: w, step: step, stream: stream, masker: masker{p: w.patterns}}
}

// control writes a control line and flushes.
func (w *Writer) control(l Line) error {
	if w.closed {
		return os.ErrClosed
	}
	var err error
	if w.buf, err = appendControl(w.buf, l); err != nil {
		return err
	}
	w.count()
	return w.flush()
}

// data adds a data line to the buffer, or drops it past the limit.
func (w *Writer) data(step int, stream string, content []byte) {
	if w.kept+int64(len(content)) > w.logs.c.Limits.Bytes {
		if w.dropped == 0 {
			note := fmt.Sprintf("— output above the limit of %d bytes is dropped from here on —\n", w.logs.c.Limits.Bytes)
			w.buf = appendData(w.buf, w.logs.c.Clock.Now(), step, "", []byte(note))
			w.count()
		}
		w.dropped += int64(len(content))
		return
	}
	w.kept += int64(len(content))
	w.buf = appendData(w.buf, w.logs.c.Clock.Now(), step, stream, content)
	w.count()
}

// count notes where the line after the one just added begins.
func (w *Writer) count() {
	w.lines++
	if w.lines%indexEvery == 0 {
		w.index.Offsets = append(w.index.Offsets, w.size+int64(len(w.buf)))
	}
}

// soon flushes now if the last flush is long ago or much is waiting, and a little later otherwise.
func (w *Writer) soon() error {
	if len(w.buf) == 0 {
		return w.err
	}
	now := w.logs.c.Clock.Now()
	if len(w.buf) >= flushAt || now.Sub(w.flushed) >= w.logs.c.Limits.Delay {
		return w.flush()
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.logs.c.Limits.Delay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.timer = nil
			if !w.closed {
				_ = w.flush() // kept in w.err and told to the next caller
			}
		})
	}
	return w.err
}

// flush writes the buffer to the file and wakes the readers.
func (w *Writer) flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.file.Write(w.buf)
	w.size += int64(n)
	if err != nil {
		return w.fail(fmt.Errorf("write the log: %w", err))
	}
	w.buf = w.buf[:0]
	w.flushed = w.logs.c.Clock.Now()
	w.tell()
	return nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

func (w *Writer) tell() {
	close(w.wake)
	w.wake = make(chan struct{})
}

// state is what a reader needs to know: how much is in the file, and what to wait on for more.
func (w *Writer) state() (size int64, wake <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size, w.wake
}

// Close puts everything on the disk and ends the log. It may be called twice.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if w.dropped > 0 {
		note := fmt.Sprintf("— %d bytes of output were dropped: the limit is %d —\n", w.dropped, w.logs.c.Limits.Bytes)
		w.buf = appendData(w.buf, w.logs.c.Clock.Now(), -1, "", []byte(note))
		w.count()
	}
	w.index.Lines = w.lines
	err := errors.Join(w.flush(), w.file.Sync(), w.file.Close(), w.index.save(w.logs.path(w.ref)+indexSuffix))
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.logs.forget(w.ref)
	w.tell()
	if err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	return nil
}

// output is one stream of one step.
type output struct {
	w      *Writer
	step   int
	stream string
	masker masker
	line   []byte // the masked beginning of a line that has no end yet
	closed bool
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.closed || o.w.closed {
		return 0, os.ErrClosed
	}
	o.line = o.masker.feed(o.line, b)
	o.lines()
	if err := o.w.soon(); err != nil {
		return 0, err
	}
	return len(b), nil
}

// lines moves the whole lines of o.line, and parts of one that is too long, into the log.
func (o *output) lines() {
	rest := o.line
	most := o.w.logs.c.Limits.Line
	for {
		i := bytes.IndexByte(rest, '\n')
		n := i + 1
		if i < 0 || n > most {
			if len(rest) <= most {
				break
			}
			n = splitAt(rest, most)
		}
		o.w.data(o.step, o.stream, rest[:n])
		rest = rest[n:]
	}
	o.line = append(o.line[:0], rest...)
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

// Close implements io.Closer.
func (o *output) Close() error {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	if o.w.closed {
		return os.ErrClosed
	}
	o.line = o.masker.flush(o.line)
	o.lines()
	if len(o.line) > 0 {
		o.w.data(o.step, o.stream, append(o.line, '\n'))
		o.line = nil
	}
	return o.w.flush()
}
