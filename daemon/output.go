package daemon

import (
	"context"
	"errors"
	"io"

	"spindle/logs"
	"spindle/pipeline"
	"spindle/store"
	"spindle/xrpc"
)

// output reads logs for the edge's streams.
type output struct {
	logs  *logs.Logs
	store *store.Store
}

// lineBatch is how many lines are read at a time.
const lineBatch = 256

// Follow implements xrpc.Logs.
func (o output) Follow(_ context.Context, id pipeline.ID, workflow string, attempt int, from int64) (xrpc.LogReader, error) {
	return &follower{
		o: o, skip: from, id: id, workflow: workflow,
		ref: logs.Ref{Pipeline: string(id), Workflow: workflow, Attempt: attempt},
	}, nil
}

// follower gives one line after the other, by cursor.
type follower struct {
	o        output
	id       pipeline.ID
	workflow string
	ref      logs.Ref
	offset   int64
	skip     int64
	lines    []logs.Line
	ended    bool
}

// Next implements xrpc.LogReader.
func (f *follower) Next(ctx context.Context) (xrpc.LogLine, error) {
	for {
		if len(f.lines) == 0 {
			if f.ended {
				return xrpc.LogLine{}, io.EOF
			}
			if err := f.fill(ctx); err != nil {
				return xrpc.LogLine{}, err
			}
			continue
		}
		l := f.lines[0]
		f.lines = f.lines[1:]
		if f.skip > 0 {
			f.skip--
			continue
		}
		return wire(l), nil
	}
}

// fill reads more lines. A log that is not there yet is waited for while its attempt may still begin one.
func (f *follower) fill(ctx context.Context) error {
	wake := f.o.store.Changed()
	lines, next, ended, err := f.o.logs.Follow(ctx, f.ref, f.offset, lineBatch)
	if !errors.Is(err, logs.ErrNoLog) {
		f.lines, f.offset, f.ended = lines, next, ended
		return err
	}
	over, err := f.over(ctx)
	if err != nil {
		return err
	}
	if over {
		f.ended = true
		return nil
	}
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// over tells whether the attempt will not write any more.
func (f *follower) over(ctx context.Context) (bool, error) {
	p, ok, err := f.o.store.Pipeline(ctx, f.id)
	if err != nil || !ok {
		return true, err
	}
	for _, w := range p.Workflows {
		if w.Name == f.workflow {
			return w.Status.Terminal() || w.Attempt > f.ref.Attempt, nil
		}
	}
	return true, nil
}

// Close implements xrpc.LogReader; there is nothing to release.
func (f *follower) Close() error { return nil }

func wire(l logs.Line) xrpc.LogLine {
	out := xrpc.LogLine{
		Kind: l.Kind, Content: l.Content, Time: l.Time, StepID: l.Step, Stream: l.Stream,
		StepStatus: l.StepStatus, StepKind: l.StepKind, StepCommand: l.StepCommand, StepOutcome: pipeline.Status(l.Outcome),
	}
	if l.Kind == logs.Control && l.StepStatus == logs.End {
		code := l.ExitCode
		out.ExitCode = &code
	}
	return out
}
