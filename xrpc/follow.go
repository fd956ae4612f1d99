package xrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"spindle/pipeline"
)

// numbered is a line of a log with where it is from.
type numbered struct {
	workflow string
	number   int64
	line     LogLine
}

// The pace of looking at a workflow's state. Changes of the whole spindle wake a waiting stream, so that it
// looks at most every lookAgain. A log that gives nothing is looked into every stall, and left when it gave
// nothing for so long after its attempt was over.
const (
	lookAgain = 100 * time.Millisecond
	stall     = 10 * time.Second
)

// follow gives the lines of some workflows of a pipeline, from their beginning until they have ended. Lines
// of one workflow are in order. They are read as fast as take takes them: each workflow is one line ahead at
// most. from leaves out lines of the first attempt that is seen.
func (s *Server) follow(ctx context.Context, id pipeline.ID, names []string, from int64, take func(numbered) error) error {
	g, ctx := errgroup.WithContext(ctx)
	lines := make(chan numbered)
	var open sync.WaitGroup
	open.Add(len(names))
	for _, name := range names {
		g.Go(func() error {
			defer open.Done()
			return s.followWorkflow(ctx, id, name, from, func(n numbered) error {
				select {
				case lines <- n:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	g.Go(func() error {
		open.Wait()
		close(lines)
		return nil
	})
	g.Go(func() error {
		for n := range lines {
			if err := take(n); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// followWorkflow gives the lines of one workflow: those of the newest attempt, and of those that follow it.
// A workflow that ended without a log has two lines that say why.
func (s *Server) followWorkflow(ctx context.Context, id pipeline.ID, name string, from int64, give func(numbered) error) error {
	begin, seen, told := from, 0, int64(0)
	for {
		w, err := s.await(ctx, id, name, func(w pipeline.Workflow) bool { return w.Attempt > seen || w.Status.Terminal() })
		if err != nil {
			return err
		}
		if w.Attempt > seen {
			if told, err = s.followAttempt(ctx, w, from, give); err != nil {
				return err
			}
			seen, from = w.Attempt, 0
			continue
		}
		if seen == 0 || told == 0 && begin == 0 && w.Reason != "" {
			return giveReason(w, begin, give)
		}
		return nil
	}
}

// followAttempt gives the lines of the newest attempt of w and tells how many there were.
func (s *Server) followAttempt(ctx context.Context, w pipeline.Workflow, from int64, give func(numbered) error) (int64, error) {
	r, err := s.c.Logs.Follow(ctx, w.Pipeline, w.Name, w.Attempt, from)
	if err != nil {
		return 0, fmt.Errorf("open the log of %s/%s: %w", w.Pipeline, w.Name, err)
	}
	defer func() { _ = r.Close() }()
	reading, leave := context.WithCancelCause(ctx)
	var turn atomic.Int64 // odd while waiting for a line
	var watch sync.WaitGroup
	watch.Go(func() { s.leaveStalled(reading, leave, w, &turn) })
	defer func() {
		leave(nil)
		watch.Wait()
	}()
	for n := int64(0); ; n++ {
		turn.Add(1)
		line, err := r.Next(reading)
		turn.Add(1)
		switch {
		case errors.Is(err, io.EOF), err != nil && errors.Is(context.Cause(reading), errStalled):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("read the log of %s/%s: %w", w.Pipeline, w.Name, err)
		}
		if err := give(numbered{workflow: w.Name, number: from + n, line: line}); err != nil {
			return n, err
		}
	}
}

// errStalled leaves a log that does not end although its attempt has.
var errStalled = errors.New("xrpc: the log did not end with its attempt")

// leaveStalled calls leave when the log has given no line for a while after its attempt was over: whoever
// wrote it died before it could end the log. A subscriber that is slow to take a line is no reason.
func (s *Server) leaveStalled(ctx context.Context, leave context.CancelCauseFunc, w pipeline.Workflow, turn *atomic.Int64) {
	over := false
	for {
		before := turn.Load()
		if s.clock.Sleep(ctx, stall) != nil {
			return
		}
		if turn.Load() != before || before%2 == 0 {
			over = false
			continue
		}
		if over {
			leave(errStalled)
			return
		}
		now, err := s.workflow(ctx, w.Pipeline, w.Name)
		over = err == nil && (now.Attempt != w.Attempt || now.Status.Terminal())
	}
}

// workflow reads one workflow as it stands.
func (s *Server) workflow(ctx context.Context, id pipeline.ID, name string) (pipeline.Workflow, error) {
	p, ok, err := s.c.Pipelines.Pipeline(ctx, id)
	if err != nil {
		return pipeline.Workflow{}, err
	}
	if !ok {
		return pipeline.Workflow{}, refuse(PipelineNotFound, "the pipeline is gone")
	}
	ws, err := selected(p, []string{name})
	if err != nil {
		return pipeline.Workflow{}, err
	}
	ws[0].Pipeline = id
	return ws[0], nil
}

// await reads a workflow until it is as wanted. It reads once at first and then after changes, not more
// often than lookAgain.
func (s *Server) await(ctx context.Context, id pipeline.ID, name string, wanted func(pipeline.Workflow) bool) (pipeline.Workflow, error) {
	for {
		changed := s.c.Pipelines.Changed()
		w, err := s.workflow(ctx, id, name)
		if err != nil || wanted(w) {
			return w, err
		}
		select {
		case <-ctx.Done():
			return pipeline.Workflow{}, ctx.Err()
		case <-changed:
		}
		if err := s.clock.Sleep(ctx, lookAgain); err != nil {
			return pipeline.Workflow{}, err
		}
	}
}

// giveReason gives two lines in the place of the log that w never had, those from number from on.
func giveReason(w pipeline.Workflow, from int64, give func(numbered) error) error {
	text := w.Reason
	if text == "" {
		text = "the workflow ended without running: " + w.Status.Label()
	}
	at := w.FinishedAt
	if at.IsZero() {
		at = w.CreatedAt
	}
	code := w.ExitCode
	for i, line := range []LogLine{
		{Kind: lineControl, Content: w.Status.Label(), Time: at, StepStatus: stepEnd, StepKind: string(pipeline.SystemStep), StepOutcome: w.Status, ExitCode: &code},
		{Kind: lineData, Content: text + "\n", Time: at, Stream: "stderr"},
	} {
		if int64(i) < from {
			continue
		}
		if err := give(numbered{workflow: w.Name, number: int64(i), line: line}); err != nil {
			return err
		}
	}
	return nil
}
