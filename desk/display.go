package desk

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"spindle/logs"
	"spindle/pipeline"
)

// display shows a run while it goes on. It is safe for concurrent use.
type display struct {
	o      Options
	p      paint
	prefix bool // several workflows run, so lines say whose they are

	mu     sync.Mutex
	buf    []byte // what is not written yet
	failed error  // of the writer
	parts  map[string]*part
	order  []*part
	drawn  int // lines of the live area that are on the screen
	paused bool
	began  time.Time

	stop chan struct{}
	done sync.WaitGroup
}

// part is what is shown of one workflow.
type part struct {
	d      *display
	name   string
	prefix []byte
	width  int
	steps  int
	count  int // of steps that have started
	step   string
	since  time.Time // when the step began
	began  time.Time // when the workflow began
	alive  bool
	tail   tail
	notes  []logs.Command // annotations, at most maxNotes
	broken tail           // the lines of the step that failed first
	failed string         // its name
}

// flushAt is how much is gathered before it is written at the latest, in bytes; flushEvery is how long it may wait.
const (
	flushAt    = 32 << 10
	flushEvery = 50 * time.Millisecond
	maxNotes   = 100
)

func newDisplay(o Options, nodes []*node) *display {
	d := &display{o: o, p: paint{o.Colour, o.ASCII}, prefix: len(nodes) > 1, parts: map[string]*part{}, stop: make(chan struct{}), began: o.Clock.Now()}
	width := 0
	for _, n := range nodes {
		width = max(width, len([]rune(n.Name)))
	}
	for _, n := range nodes {
		p := &part{d: d, name: n.Name, width: width, steps: n.to - n.from}
		if d.prefix && o.Format == Plain {
			p.prefix = fmt.Appendf(nil, "%-*s | ", width, n.Name)
		}
		d.parts[n.Name] = p
		d.order = append(d.order, p)
	}
	return d
}

// begin says what is about to run, and starts to write.
func (d *display) begin(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.Format == JSON {
		var names []string
		for _, n := range r.nodes {
			names = append(names, n.Name)
		}
		d.event(map[string]any{"t": "start", "event": r.trigger.Kind, "ref": r.trigger.Ref, "commit": r.trigger.Commit, "workflows": names, "notes": r.notes})
	} else {
		for _, n := range r.notes {
			d.text(d.p.colour(yellow, "note") + "  " + n + "\n")
		}
	}
	d.done.Go(d.ticks)
}

// ticks writes what is waiting, and draws the live area, until the display ends.
func (d *display) ticks() {
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
			d.mu.Lock()
			if d.o.Format == Terminal && !d.paused {
				d.draw()
			}
			d.flush()
			d.mu.Unlock()
		}
	}
}

// flush writes what is waiting. After a failure nothing more is written: nobody reads.
func (d *display) flush() {
	if len(d.buf) == 0 {
		return
	}
	if d.failed == nil {
		_, d.failed = d.o.Out.Write(d.buf)
	}
	d.buf = d.buf[:0]
}

func (d *display) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return fmt.Errorf("write the output: %w", d.failed)
	}
	return nil
}

// text adds text for people that stays.
func (d *display) text(s string) {
	d.erase()
	if d.p.ascii {
		s = asciiOnly.Replace(s)
	}
	d.buf = append(d.buf, s...)
}

// event adds a line of JSON.
func (d *display) event(v map[string]any) {
	b, err := json.Marshal(v)
	if err != nil {
		return // these can always be encoded
	}
	d.buf = append(append(d.buf, b...), '\n')
}

// sink is where the output of a workflow goes.
func (d *display) sink(name string) logs.Sink {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parts[name]
	p.alive, p.count, p.began = true, 0, d.o.Clock.Now()
	return p
}

// note says something about a workflow.
func (d *display) note(name, sentence string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.Format == JSON {
		d.event(map[string]any{"t": "note", "workflow": name, "text": sentence})
		return
	}
	d.text(string(d.parts[name].prefix) + d.head(name) + d.p.colour(yellow, "note") + " " + sentence + "\n")
}

// head is the name of a workflow before a line that stays, on a terminal with several.
func (d *display) head(name string) string {
	if d.o.Format != Terminal || !d.prefix {
		return ""
	}
	return name + "  "
}

// settled says how a workflow ended.
func (d *display) settled(name string, s pipeline.Status, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parts[name]
	p.alive = false
	took := ""
	if !p.began.IsZero() {
		took = seconds(d.o.Clock.Now().Sub(p.began))
	}
	if d.o.Format == JSON {
		d.event(map[string]any{"t": "workflow", "workflow": name, "status": s, "reason": reason})
		return
	}
	if !d.prefix {
		return // the report says it
	}
	line := d.p.status(s) + " " + name
	if reason != "" && s != pipeline.Passed {
		line += ": " + reason
	}
	d.text(strings.TrimRight(line+"  "+took, " ") + "\n")
}

// pause hands the terminal to f.
func (d *display) pause(f func()) {
	d.mu.Lock()
	d.erase()
	d.flush()
	d.paused = true
	d.mu.Unlock()
	f()
	d.mu.Lock()
	d.paused = false
	d.mu.Unlock()
}

// end stops the display and writes the report.
func (d *display) end(r *run, out Outcome) {
	close(d.stop)
	d.done.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.erase()
	if d.o.Format == JSON {
		d.reportJSON(r, out)
	} else {
		d.report(r, out)
	}
	d.flush()
}

func seconds(t time.Duration) string {
	switch {
	case t < time.Second:
		return fmt.Sprintf("%d ms", t.Milliseconds())
	case t < time.Minute:
		return fmt.Sprintf("%.1f s", t.Seconds())
	}
	return t.Round(time.Second).String()
}
