package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"spindle/engines"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/store"
	"spindle/workflow"
)

// planned is a step as it will run.
type planned struct {
	name, command string
	kind          pipeline.StepKind
	do            func(ctx context.Context, index int) (engines.Result, error)
}

// steps lists the attempt's steps: the checkout, unless it is skipped, then the file's.
func (a *attempt) steps() []planned {
	var out []planned
	if !a.spec.Clone.Skip {
		out = append(out, planned{
			name: "clone", command: "git checkout " + a.claimed.Pipeline.Trigger.Commit,
			kind: pipeline.SystemStep, do: a.checkout,
		})
	}
	for _, s := range a.spec.Steps {
		out = append(out, planned{
			name: s.Name, command: s.Command, kind: pipeline.UserStep,
			do: func(ctx context.Context, index int) (engines.Result, error) { return a.command(ctx, index, s) },
		})
	}
	return out
}

// step runs one step and tells of it. It returns nil when the next may follow.
func (a *attempt) step(ctx context.Context, limit time.Duration, i int, s planned) *ending {
	// Status rows outlive the attempt's context: a cancelled step still gets its end.
	rows := context.WithoutCancel(ctx)
	l := a.claimed.Lease
	row := pipeline.Step{
		Index: i, Name: s.name, Command: s.command, Kind: s.kind,
		Status: pipeline.Running, StartedAt: a.r.c.Clock.Now(),
	}
	if err := a.out.StepStart(i, s.name, s.command, string(s.kind)); err != nil {
		end := a.stopped(ctx, limit, fmt.Errorf("write the log: %w", err))
		return &end
	}
	if err := a.tellStart(rows, l, row); err != nil {
		return a.untold(ctx, limit, err)
	}
	res, err := s.do(ctx, i)
	row.FinishedAt = a.r.c.Clock.Now()
	end := a.judge(ctx, limit, &row, res, err)
	if a.stale {
		return end
	}
	if err := a.out.StepEnd(i, string(row.Status), row.ExitCode, row.Reason); err != nil {
		a.log.Error("write the log", "step", i, "err", err)
		if end == nil {
			// Never report success of a step whose output is not on disk.
			e := ending{status: pipeline.Error, reason: "the log could not be written"}
			end, row.Status, row.Reason = &e, pipeline.Error, e.reason
		}
	}
	if err := a.r.c.Facts.EndStep(rows, l, row); err != nil {
		return a.untold(ctx, limit, err)
	}
	return end
}

func (a *attempt) tellStart(ctx context.Context, l pipeline.Lease, row pipeline.Step) error {
	if !a.began {
		if _, err := a.r.c.Facts.Apply(ctx, l.Pipeline, l.Workflow, pipeline.Began{Epoch: l.Epoch}); err != nil {
			return err
		}
		a.began = true
	}
	return a.r.c.Facts.StartStep(ctx, l, row)
}

// untold is the ending when a fact could not be written: a stale lease silences the attempt.
func (a *attempt) untold(ctx context.Context, limit time.Duration, err error) *ending {
	if errors.Is(err, store.ErrStale) || errors.Is(err, pipeline.ErrStale) || errors.Is(err, pipeline.ErrEnded) {
		a.stale = true
		return &ending{}
	}
	end := a.stopped(ctx, limit, fmt.Errorf("write the step's status: %w", err))
	return &end
}

// judge fills row from the step's result and says whether and how the attempt ends with it.
func (a *attempt) judge(ctx context.Context, limit time.Duration, row *pipeline.Step, res engines.Result, err error) *ending {
	if !res.Started.IsZero() {
		row.StartedAt = res.Started
	}
	row.ExitCode = res.ExitCode
	if end, ok := a.ended(ctx, limit); ok {
		row.Status, row.Reason = end.status, end.reason
		if end.drained {
			row.Status, row.Reason = pipeline.Error, "interrupted: the spindle was stopped"
		}
		if end.status != "" {
			_ = a.out.System(row.Index, row.Reason+"\n") // the row carries the reason too
		}
		return &end
	}
	var end ending
	switch {
	case err != nil:
		a.log.Error("step failed in the machinery", "step", row.Index, "err", err)
		end = ending{status: pipeline.Error, reason: publicReason(err)}
		_ = a.out.System(row.Index, end.reason+"\n") // the row carries the reason too
	case res.Killed == engines.KilledTimeout:
		end = ending{status: pipeline.Timeout, exit: res.ExitCode, reason: fmt.Sprintf("step %q was stopped at its own time limit", row.Name)}
	case res.Killed == engines.KilledMemory:
		end = ending{status: pipeline.Failed, exit: res.ExitCode, reason: fmt.Sprintf("step %q was killed for memory", row.Name)}
	case res.ExitCode != 0:
		end = ending{status: pipeline.Failed, exit: res.ExitCode, reason: fmt.Sprintf("step %q exited %d", row.Name, res.ExitCode)}
	default:
		row.Status = pipeline.Passed
		return nil
	}
	row.Status, row.Reason = end.status, end.reason
	return &end
}

// skipRest writes rows for the steps that never ran, so that their absence is explained.
func (a *attempt) skipRest(ctx context.Context, rest []planned, from int) {
	for i, s := range rest {
		row := pipeline.Step{
			Index: from + i, Name: s.name, Command: s.command, Kind: s.kind,
			Status: pipeline.Skipped, Reason: "a step before it did not pass",
		}
		if err := a.r.c.Facts.StartStep(ctx, a.claimed.Lease, row); err != nil {
			a.log.Error("write a skipped step", "step", row.Index, "err", err)
			return
		}
	}
}

// command runs one step of the file.
func (a *attempt) command(ctx context.Context, index int, s workflow.Step) (engines.Result, error) {
	// Secrets win over the workflow's variables, a step's own over both, the framework's over all.
	env := merge(pairs(a.spec.Environment), a.secrets, pairs(s.Environment), a.env)
	return a.script(ctx, index, s.Command, env, s.Timeout)
}

func (a *attempt) script(ctx context.Context, index int, script string, env []string, limit time.Duration) (engines.Result, error) {
	stdout, stderr := a.out.Stream(index, "stdout"), a.out.Stream(index, "stderr")
	res, err := a.machine.Run(ctx, engines.Command{
		Script: script, Env: env, Stdout: stdout, Stderr: stderr, Timeout: limit,
	})
	return res, errors.Join(err, stdout.Close(), stderr.Close())
}

// checkout puts the commit into the workspace. The network is used on this side of the wall, through the
// guarded dialer; the work tree is written on the other.
func (a *attempt) checkout(ctx context.Context, index int) (engines.Result, error) {
	c := a.spec.Clone
	t := a.claimed.Pipeline.Trigger
	co, err := a.r.c.Checkouts.PrepareCheckout(ctx, knot.CheckoutRequest{
		Source: a.source, SHA: t.Commit, Depth: c.Depth, Tags: c.Tags, Submodules: c.Submodules,
		Dir: filepath.Join(a.dir, "git"),
	})
	if err != nil {
		return engines.Result{}, fmt.Errorf("fetch commit %s: %w", t.Commit, err)
	}
	return a.script(ctx, index, knot.CheckoutScript(co, gitMount), []string{"GIT_TERMINAL_PROMPT=0"}, 0)
}
