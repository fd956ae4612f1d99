package web

import (
	"slices"
	"time"

	"spindle/pipeline"
)

// strip is the last pipelines as bars: how long each ran, oldest first.
type strip struct {
	Width int
	Bars  []bar
	Max   string
}

// bar is a rectangle of a picture, in its own units.
type bar struct {
	X, Y, W, H        int
	Class, URL, Title string
}

const (
	stripStep   = 12 // one bar and the gap after it
	stripHeight = 44
	stripLeast  = 3
)

// stripOf draws ps, which are the newest first; nil when there is too little to compare.
func stripOf(ps []pipeline.Pipeline, now time.Time) *strip {
	if len(ps) < 3 {
		return nil
	}
	durations := make([]time.Duration, len(ps))
	var longest time.Duration
	for i, p := range ps {
		if from := began(p); !from.IsZero() {
			to := p.FinishedAt
			if to.IsZero() {
				to = now
			}
			durations[i] = max(0, to.Sub(from))
		}
		longest = max(longest, durations[i])
	}
	s := &strip{Width: len(ps) * stripStep, Max: lasted(longest)}
	for i, p := range slices.Backward(ps) {
		h := stripLeast
		if longest > 0 {
			h += int(int64(stripHeight-stripLeast) * int64(durations[i]) / int64(longest))
		}
		text := p.Status.Label() + ": " + title(p)
		if durations[i] > 0 {
			text += ", " + lasted(durations[i])
		}
		s.Bars = append(s.Bars, bar{
			X: (len(ps) - 1 - i) * stripStep, Y: stripHeight - h, W: stripStep - 3, H: h,
			Class: colour(p.Status), URL: pipelineURL(p.ID), Title: text,
		})
	}
	return s
}

// laneWidth is how wide the time axis of a pipeline is, in the picture's units.
const laneWidth = 1000

// axis is the time from a pipeline's beginning to its end or to now.
type axis struct {
	from time.Time
	span time.Duration
}

func axisOf(p pipeline.Pipeline, now time.Time) axis {
	to := p.FinishedAt
	if to.IsZero() {
		to = now
	}
	return axis{from: p.CreatedAt, span: max(to.Sub(p.CreatedAt), time.Millisecond)}
}

// place is where a stretch of time lies on the axis.
func (a axis) place(from, to time.Time) (x, w int) {
	at := func(t time.Time) int {
		return int(min(max(int64(t.Sub(a.from))*laneWidth/int64(a.span), 0), laneWidth))
	}
	x = at(from)
	return x, max(at(to)-x, 2)
}

// lane draws one workflow: how long it waited, was prepared, and each of its steps.
func (a axis) lane(f pipeline.Workflow, now time.Time) []bar {
	var bars []bar
	add := func(from, to time.Time, class, title string) {
		if from.IsZero() {
			return
		}
		if to.IsZero() {
			to = now
		}
		x, w := a.place(from, to)
		bars = append(bars, bar{X: x, W: w, Class: class, Title: title + ", " + lasted(to.Sub(from))})
	}
	ready := f.ReadyAt
	if ready.IsZero() {
		ready = f.CreatedAt
	}
	until := f.StartedAt
	if until.IsZero() {
		until = f.FinishedAt
	}
	add(ready, until, "lane-wait", "waited")
	add(f.StartedAt, f.FinishedAt, "lane-all", f.Name)
	for _, s := range f.Steps {
		class := "lane-" + colour(s.Status)
		if s.Kind == pipeline.SystemStep && s.Status.Good() {
			class = "lane-setup"
		}
		add(s.StartedAt, s.FinishedAt, class, s.Name)
	}
	return bars
}
