package queue_test

import (
	"context"
	"testing"
	"time"

	"spindle/pipeline"
	"spindle/store"
)

// BenchmarkEnqueueToStart is the time from the durable plan to the call of the executor, of an idle
// dispatcher: wake-up, claim and its commit.
func BenchmarkEnqueueToStart(b *testing.B) {
	w := newWorld(b, nil)
	started, goOn := make(chan time.Time), make(chan struct{})
	e := &executor{do: func(_ context.Context, c *store.Claimed) {
		started <- time.Now()
		w.finish(c, pipeline.Passed)
		goOn <- struct{}{}
	}}
	w.run(e)
	var took, most time.Duration
	n := 0
	for b.Loop() {
		w.plan(repoA, 1)
		before := time.Now()
		d := (<-started).Sub(before)
		<-goOn
		took += d
		most = max(most, d)
		n++
	}
	b.ReportMetric(float64(took.Microseconds())/float64(n), "µs/start")
	b.ReportMetric(float64(most.Microseconds()), "µs/worst")
}

// BenchmarkBacklog is the cost of one workflow, from claim to end, while a thousand wait.
func BenchmarkBacklog(b *testing.B) {
	w := newWorld(b, nil)
	for range 10 {
		w.plan(repoA, 100)
		w.plan(repoB, 100)
	}
	ran := make(chan struct{})
	e := &executor{do: func(_ context.Context, c *store.Claimed) {
		w.finish(c, pipeline.Passed)
		ran <- struct{}{}
	}}
	_, stop := w.run(e, seats(2))
	n := 0
	for b.Loop() {
		<-ran
		if n++; n%100 == 0 { // keep the backlog
			b.StopTimer()
			w.plan(repoA, 100)
			b.StartTimer()
		}
	}
	b.StopTimer()
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-ran:
			case <-end:
				return
			}
		}
	}()
	stop()
	close(end)
}
