package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spindle/logs"
)

// line is one line of a log as a page shows it.
type line struct {
	// Number counts from 1 over the whole log, as the anchors #L1, #L2, … do.
	Number int64
	// Kind is "out", "err" (standard error), "own" (the spindle's own words), "start" or "end" (of a step).
	Kind  string
	Step  int
	Spans []span
	// Over is how many earlier states of the line a carriage return wrote over.
	Over int
	// At is the time since the log began.
	At string
	// Name and Command are those of a step that starts; Mark, Code and Text are of one that ends.
	Name, Command string
	Mark          mark
	Code          int
	Text          string
}

// Control tells whether the line is about a step and not from it.
func (l line) Control() bool { return l.Kind == "start" || l.Kind == "end" }

// reader turns the lines of one log into what pages show, in order.
type reader struct {
	paint  map[string]*painter // one for each stream of each step
	origin time.Time           // when the log began
}

func newReader(origin time.Time) *reader {
	return &reader{paint: map[string]*painter{}, origin: origin}
}

// line is l, which is the line with this number.
func (r *reader) line(number int64, l logs.Line) line {
	out := line{Number: number, Step: l.Step, Kind: "out"}
	if r.origin.IsZero() {
		r.origin = l.Time
	}
	if !l.Time.IsZero() {
		out.At = stopwatch(l.Time.Sub(r.origin))
	}
	switch {
	case l.Kind == logs.Control && l.StepStatus == logs.Start:
		out.Kind, out.Name, out.Command = "start", plain(l.Content), plain(l.StepCommand)
		clear(r.paint) // colours never run from one step into the next
		return out
	case l.Kind == logs.Control:
		out.Kind, out.Mark, out.Code, out.Text = "end", markOf(status(l.Outcome)), l.ExitCode, plain(l.Content)
		return out
	case l.Stream == "":
		out.Kind = "own"
	case l.Stream == "stderr":
		out.Kind = "err"
	}
	if c, ok := logs.ParseCommand([]byte(l.Content)); ok && l.Stream != "" {
		if out.Spans, ok = asked(c); ok {
			return out
		}
	}
	p := r.paint[l.Stream]
	if p == nil {
		p = &painter{}
		r.paint[l.Stream] = p
	}
	out.Spans, out.Over = p.line(l.Content)
	return out
}

// stopwatch is a time since the beginning: 0:07.3, 12:40.0, 1:02:03.4.
func stopwatch(d time.Duration) string {
	d = max(d, 0)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, d.Seconds()-float64(int(d.Minutes())*60)
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%04.1f", h, m, s)
	}
	return fmt.Sprintf("%d:%04.1f", m, s)
}

// pageBytes is how much text a page of a log holds at most.
const pageBytes = 2 << 20

// chunk is how many lines are read at a time.
const chunk = 200

// read is up to count lines from line number from on, counted from 0. A page of very long lines has fewer.
func (w *Web) read(ctx context.Context, ref logs.Ref, from int64, count int) (lines []line, total int64, err error) {
	origin, err := w.origin(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	r := newReader(origin)
	size := 0
	for len(lines) < count && size < pageBytes {
		got, n, err := w.c.Logs.Page(ctx, ref, from+int64(len(lines)), min(chunk, count-len(lines)))
		if err != nil {
			return nil, 0, fmt.Errorf("read a page of the log: %w", err)
		}
		total = n
		if len(got) == 0 {
			break
		}
		for _, l := range got {
			lines = append(lines, r.line(from+int64(len(lines))+1, l))
			size += min(len(l.Content), maxShown)
		}
	}
	return lines, total, nil
}

// origin is the time of the log's first line; zero when there is none.
func (w *Web) origin(ctx context.Context, ref logs.Ref) (time.Time, error) {
	first, _, _, err := w.c.Logs.Read(ctx, ref, 0, 1)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the beginning of the log: %w", err)
	}
	if len(first) == 0 {
		return time.Time{}, nil
	}
	return first[0].Time, nil
}

// ending is the last n lines that a step wrote; none when there is no log.
func (w *Web) ending(ctx context.Context, ref logs.Ref, step, n int) ([]line, error) {
	last, err := w.lastLine(ctx, ref, step)
	if errors.Is(err, logs.ErrNoLog) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, _, err := w.read(ctx, ref, max(0, last-int64(n)-4), n+5)
	if err != nil {
		return nil, err
	}
	var out []line
	for _, l := range lines {
		if l.Step == step && !l.Control() {
			out = append(out, l)
		}
	}
	return out[max(0, len(out)-n):], nil
}

// lastLine is the number of the last line before the step after this one begins, counted from 0.
func (w *Web) lastLine(ctx context.Context, ref logs.Ref, step int) (int64, error) {
	starts, err := w.c.Logs.Steps(ctx, ref)
	if err != nil {
		return 0, fmt.Errorf("read where the steps of a log begin: %w", err)
	}
	_, total, err := w.c.Logs.Page(ctx, ref, 0, 1)
	if err != nil {
		return 0, fmt.Errorf("read how long a log is: %w", err)
	}
	end := total
	for s, at := range starts {
		if s > step && at < end {
			end = at
		}
	}
	return max(0, end-1), nil
}
