package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"spindle/devnet/world"
	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
)

// teller prints the story. It is safe for concurrent use.
type teller struct {
	out   io.Writer
	quiet bool

	mu sync.Mutex
}

func (t *teller) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// network says what runs where.
func (t *teller) network(w *world.World, began time.Time) {
	took := ""
	if !began.IsZero() {
		took = fmt.Sprintf("      ready in %.1f s", time.Since(began).Seconds())
	}
	t.say("  network    PLC · PDS · Jetstream · knot%s", took)
	t.say("  engine     %s: gVisor, in this binary; no network inside, a private view of the machine's tools", w.Engine)
	t.say("  open       %s", w.URL)
}

func (t *teller) clone(url string) { t.say("  clone      git clone %s", url) }

// stay says what a person can do now.
func (t *teller) stay(w *world.World) {
	t.say("")
	t.say("  The spindle stays up: clone, change and push, and your own pushes run. Pages: %s     Ctrl-C to stop", w.URL)
}

// result is one line for a pipeline and one for each workflow.
func (t *teller) result(what, sha string, p *orgtangled.CiDefs_Pipeline, took time.Duration) {
	var b strings.Builder
	for _, wf := range p.Workflows {
		fmt.Fprintf(&b, "  %s %s", symbol(wf.State), wf.Name)
		if d := span(wf.StartedAt, wf.FinishedAt); d > 0 {
			fmt.Fprintf(&b, " %.1fs", d.Seconds())
		}
	}
	state := pipeline.Status(world.State(p))
	t.say("  %-11s %.7s %s   %s  %.1f s", what, sha, b.String(), state.Label(), took.Seconds())
}

func symbol(state *string) string {
	if state == nil {
		return "?"
	}
	return pipeline.Status(*state).Symbol()
}

// span is the time between two datetimes; 0 when one is missing.
func span(from, to *string) time.Duration {
	if from == nil || to == nil {
		return 0
	}
	a, errA := time.Parse(time.RFC3339Nano, *from)
	b, errB := time.Parse(time.RFC3339Nano, *to)
	if errA != nil || errB != nil {
		return 0
	}
	return b.Sub(a)
}
