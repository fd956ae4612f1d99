package logs

import "spindle/internal/clock"

// Sink takes the output of an attempt as it is produced, in place of a file. Its methods are called one at a time.
type Sink interface {
	// Start says that a step begins.
	Start(step int, name, command, kind string)
	// Line is a line of output, masked, with its end; stream is empty for what the spindle says itself. line is
	// the caller's again when Line returns.
	Line(step int, stream string, line []byte)
	// End says how a step ended.
	End(step int, outcome string, exitCode int, reason string)
}

// NewLive is a Writer that hands everything to s at once and keeps nothing. It masks and cuts lines as any other.
func NewLive(s Sink, mask []string, c clock.Clock) *Writer {
	l := &Logs{c: Config{Clock: c, Limits: Limits{Line: maxContent}}, open: map[Ref]*Writer{}}
	w := &Writer{logs: l, sink: s, outputs: map[*output]struct{}{}, wake: make(chan struct{})}
	w.addMask(mask...)
	return w
}
