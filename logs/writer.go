package logs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// flushAt is how much output is written at the latest, in bytes.
const flushAt = 32 << 10

// Writer writes the log of one attempt. Its methods are safe for concurrent use. Whoever created it closes it.
type Writer struct {
	logs *Logs
	ref  Ref
	file *os.File // nil where sink takes everything
	sink Sink     // nil where the file does

	mu       sync.Mutex
	patterns patterns
	added    int                  // values that the job itself had masked
	outputs  map[*output]struct{} // streams that are not closed
	buf      []byte               // encoded lines that are not in the file yet
	size     int64                // bytes in the file
	flushed  time.Time
	timer    *time.Timer
	err      error // the first failure to write; later lines are refused with it
	closed   bool
	kept     int64 // bytes of the file that are output, against the limit
	said     int64 // bytes of the spindle's own words, against ownMost
	dropped  int64 // bytes of output that are not in the file
	lines    int64
	index    index
	wake     chan struct{} // closed and replaced when size grows or the log ends
}

// ownMost bounds what the spindle itself says in one log, in bytes. It is apart from the limit of output, so
// that a step cannot keep the spindle from telling why it ended.
const ownMost = 1 << 20

// AddMask hides more values from now on, in streams that are open and in later ones.
func (w *Writer) AddMask(values ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addMask(values...)
}

func (w *Writer) addMask(values ...string) {
	for _, v := range values {
		w.patterns.include(v)
	}
}

// Hide masks a text that is kept beside the log.
func (w *Writer) Hide(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hide(text)
}

// StepStart says that a step begins. kind is "system" or "user". Texts above the limit of a line are cut.
func (w *Writer) StepStart(step int, name, command, kind string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink != nil {
		w.sink.Start(step, w.words(name), w.words(command), kind)
		return nil
	}
	w.index.Steps[step] = w.lines
	return w.control(Line{
		Kind: Control, Content: w.words(name), Time: w.logs.c.Clock.Now().UTC(), Step: step,
		StepStatus: Start, StepKind: kind, StepCommand: w.words(command),
	})
}

// StepEnd says how a step ended and puts everything so far on the disk.
func (w *Writer) StepEnd(step int, outcome string, exitCode int, reason string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink != nil {
		w.sink.End(step, outcome, exitCode, w.words(reason))
		return nil
	}
	err := w.control(Line{
		Kind: Control, Content: w.words(reason), Time: w.logs.c.Clock.Now().UTC(), Step: step,
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
	if w.err != nil {
		return w.err
	}
	rest := []byte(w.hide(text))
	if n := len(rest); n > 0 && rest[n-1] != '\n' {
		rest = append(rest, '\n')
	}
	for len(rest) > 0 {
		n := cutLine(rest, 0, w.logs.c.Limits.Line) // not 0: the last byte is a line end
		l := rest[:n]
		rest = rest[n:]
		if w.said += int64(n); w.said > ownMost {
			w.dropped += int64(n)
			continue
		}
		if w.sink != nil {
			w.sink.Line(step, "", l)
			continue
		}
		w.buf = appendData(w.buf, w.logs.c.Clock.Now(), step, "", l)
		w.count()
	}
	return w.flush()
}

// words is text that is whole: masked, and cut at the limit of a line.
func (w *Writer) words(text string) string {
	text = w.hide(text)
	if most := w.logs.c.Limits.Line; len(text) > most {
		text = text[:splitAt([]byte(text), most)] + "…"
	}
	return text
}

// hide masks text that is whole.
func (w *Writer) hide(text string) string {
	m := masker{p: w.patterns}
	return string(m.flush(m.feed(nil, []byte(text))))
}

// Stream takes a step's output. stream is "stdout" or "stderr"; any other name is taken as stdout. Closing it
// hands over what was withheld; it does not close the log. What is open when the log closes is closed with it.
func (w *Writer) Stream(step int, stream string) io.WriteCloser {
	if stream != "stderr" {
		stream = "stdout"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &output{w: w, step: step, stream: stream}
	if w.closed {
		o.closed = true
	} else {
		w.outputs[o] = struct{}{}
	}
	return o
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

// data adds a data line to the buffer, or drops it past the limit. Once one line is dropped all later ones are.
func (w *Writer) data(step int, stream string, content []byte) {
	if w.sink != nil {
		w.sink.Line(step, stream, content)
		return
	}
	if w.err != nil || w.dropped > 0 {
		w.dropped += int64(len(content))
		return
	}
	before := len(w.buf)
	w.buf = appendData(w.buf, w.logs.c.Clock.Now(), step, stream, content)
	n := int64(len(w.buf) - before)
	if w.kept+n > w.logs.c.Limits.Bytes {
		note := fmt.Sprintf("— output above the limit of %d bytes is dropped from here on —\n", w.logs.c.Limits.Bytes)
		w.buf = appendData(w.buf[:before], w.logs.c.Clock.Now(), step, "", []byte(note))
		w.dropped += int64(len(content))
		w.count()
		return
	}
	w.kept += n
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

// snapshot is the index of the lines that are in the file.
func (w *Writer) snapshot() index {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.flush() // so that all that is counted can be read; a failure is told to the next caller
	return index{Lines: w.lines, Offsets: slices.Clone(w.index.Offsets), Steps: maps.Clone(w.index.Steps)}
}

// Close puts everything on the disk and ends the log. It may be called twice.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	for o := range w.outputs {
		o.end()
	}
	if w.sink != nil {
		w.closed = true
		return nil
	}
	if w.dropped > 0 && w.err == nil {
		note := fmt.Sprintf("— %d bytes of output were dropped: the limit is %d —\n", w.dropped, w.logs.c.Limits.Bytes)
		w.buf = appendData(w.buf, w.logs.c.Clock.Now(), -1, "", []byte(note))
		w.count()
	}
	err := errors.Join(w.flush(), w.file.Sync(), w.file.Close())
	if w.err == nil {
		// Without it, as after a failure to write, readers count the lines that are there.
		w.index.Lines = w.lines
		err = errors.Join(err, w.index.save(w.logs.path(w.ref)+indexSuffix))
	}
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
