package runner

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"time"

	"spindle/engines"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/workflow"
)

// planned is a step as it will run.
type planned struct {
	name, command string
	kind          pipeline.StepKind
	limit         time.Duration // of the step alone; 0 is none
	spec          int           // index in the Spec; -1 for what is not of the file
	do            func(ctx context.Context, index int) (engines.Result, error)
}

// steps lists the attempt's steps: the checkout, unless it is skipped, then the file's.
func (a *attempt) steps() []planned {
	var out []planned
	if !a.spec.Clone.Skip {
		out = append(out, planned{
			name: "clone", command: "git checkout " + a.claimed.Pipeline.Trigger.Commit,
			kind: pipeline.SystemStep, spec: -1, do: a.checkout,
		})
	}
	for i, s := range a.spec.Steps {
		out = append(out, planned{
			name: s.Name, command: s.Command, kind: pipeline.UserStep, limit: s.Timeout, spec: i,
			do: func(ctx context.Context, index int) (engines.Result, error) { return a.command(ctx, index, i) },
		})
	}
	return out
}

// all runs the steps. The first that did not pass decides how the attempt ends, unless the file says to go on after it;
// those after it run where the file says so.
func (a *attempt) all(ctx context.Context, steps []planned) ending {
	rows := context.WithoutCancel(ctx)
	result, before := ending{status: pipeline.Passed}, workflow.Success
	for i, s := range steps {
		skip, fault := a.decide(s, before)
		switch {
		case skip == "":
			end := a.step(ctx, i, s)
			if end == nil {
				continue
			}
			if end.drained || a.stale || end.status == pipeline.Cancelled {
				return *end
			}
			if s.spec < 0 || !end.goesOn {
				// Nothing can follow in that machine.
				a.skipRest(rows, steps[i+1:], i+1)
				return worst(result, *end)
			}
			if a.spec.Steps[s.spec].ContinueOnError {
				continue
			}
			result, before = worst(result, *end), workflow.Failure
			continue
		case fault:
			end := a.stepFault(rows, i, s, skip)
			result, before = worst(result, end), workflow.Failure
		default:
			if !a.skip(rows, i, s, skip) {
				return result
			}
		}
	}
	return result
}

// worst is the ending that stands: the first that was not a pass.
func worst(first, then ending) ending {
	if first.status != pipeline.Passed {
		return first
	}
	return then
}

// decide tells why s does not run, or "". fault is true when that is an error of the file and no choice.
func (a *attempt) decide(s planned, before workflow.Outcome) (why string, fault bool) {
	if s.spec < 0 {
		return "", false
	}
	if a.r.c.Step != nil {
		if why, skip := a.r.c.Step(s.spec); skip {
			return why, false
		}
	}
	d := a.spec.DecideStep(s.spec, a.claimed.Pipeline.Trigger, a.needs, before)
	if d.Run {
		return "", false
	}
	return d.Why, d.Fault
}

// stepFault is the ending of a step whose condition could not be computed.
func (a *attempt) stepFault(ctx context.Context, i int, s planned, why string) ending {
	now := a.r.c.Clock.Now()
	row := pipeline.Step{
		Index: i, Name: s.name, Command: s.command, Kind: s.kind, Status: pipeline.Failed, Reason: why, StartedAt: now, FinishedAt: now,
	}
	a.say(i, why)
	if err := a.r.c.Facts.EndStep(ctx, a.claimed.Lease, row); err != nil {
		return a.stopped(ctx, fmt.Errorf("write the step's status: %w", err))
	}
	return ending{status: row.Status, reason: why}
}

// step runs one step and tells of it. It returns nil when the next may follow.
func (a *attempt) step(ctx context.Context, i int, s planned) *ending {
	// Status rows outlive the attempt's context: a cancelled step still gets its end.
	rows := context.WithoutCancel(ctx)
	l := a.claimed.Lease
	row := pipeline.Step{
		Index: i, Name: s.name, Command: s.command, Kind: s.kind,
		Status: pipeline.Running, StartedAt: a.r.c.Clock.Now(),
	}
	if err := a.out.StepStart(i, s.name, s.command, string(s.kind)); err != nil {
		end := a.stopped(ctx, fmt.Errorf("write the log: %w", err))
		return &end
	}
	if err := a.r.c.Facts.StartStep(rows, l, row); err != nil {
		end := a.stopped(ctx, fmt.Errorf("write the step's status: %w", err))
		return &end
	}
	res, err := guarded(func() (engines.Result, error) { return s.do(ctx, i) })
	var own *refusal
	if errors.As(err, &own) {
		err = nil // the job's fault, and no machine's
	}
	row.FinishedAt = a.r.c.Clock.Now()
	end := a.judge(ctx, s, &row, res, own, err)
	if a.stale {
		return end
	}
	if err := a.out.StepEnd(i, string(row.Status), row.ExitCode, row.Reason); err != nil {
		a.log.Error("write the log", "step", i, "err", err)
		end = unwritten(&row, end, err)
	}
	if err := a.r.c.Facts.EndStep(rows, l, row); err != nil {
		end := a.stopped(ctx, fmt.Errorf("write the step's status: %w", err))
		return &end
	}
	return end
}

// unwritten is the ending of a step whose log could not be written. A step is never told to have passed when
// its output is not on the disk; what did not pass keeps its ending, and says that its log is not whole.
func unwritten(row *pipeline.Step, end *ending, err error) *ending {
	if end == nil {
		row.Status, row.Reason = pipeline.Error, "the log could not be written: "+publicReason(err)
		return &ending{status: row.Status, reason: row.Reason}
	}
	if end.status != pipeline.Error {
		end.reason += "; its log is not complete: " + publicReason(err)
		row.Reason = end.reason
	}
	return end
}

// judge fills row from the step's result and says whether and how the attempt ends with it.
func (a *attempt) judge(ctx context.Context, s planned, row *pipeline.Step, res engines.Result, own *refusal, err error) *ending {
	if !res.Started.IsZero() {
		row.StartedAt = res.Started
	}
	row.ExitCode = res.ExitCode
	end, ok := a.ended(ctx)
	switch {
	case ok && end.drained:
		row.Status, row.Reason = pipeline.Error, (&pipeline.Stop{Kind: pipeline.StopDrain}).Sentence()
	case ok:
		row.Status, row.Reason = end.status, end.reason
	case err != nil:
		a.log.Error("step failed in the machinery", "step", row.Index, "err", err)
		end = ending{status: pipeline.Error, reason: publicReason(err)}
		row.Status, row.Reason = end.status, end.reason
	default:
		end = verdict(s, res)
		if own != nil && end.status == pipeline.Passed {
			end = ending{status: pipeline.Failed, reason: own.sentence, goesOn: true}
			a.say(row.Index, own.sentence)
		}
		row.Status, row.Reason = end.status, end.reason
		if end.status == pipeline.Passed {
			return nil
		}
		// The person's own command: its output says more than we could.
		return &end
	}
	if !a.stale {
		a.say(row.Index, row.Reason)
	}
	return &end
}

// verdict is the ending of a step that ended by itself or by a limit of its machine.
func verdict(s planned, res engines.Result) ending {
	end := ending{status: pipeline.Failed, exit: res.ExitCode}
	switch {
	case res.Killed == engines.KilledTimeout:
		end.status, end.reason = pipeline.Timeout, fmt.Sprintf("step %q was stopped at its own limit of %s", s.name, s.limit)
	case res.Killed == engines.KilledMemory:
		end.reason = fmt.Sprintf("step %q was killed: it used more memory than it may", s.name)
	case res.Killed == engines.KilledDisk:
		end.reason = fmt.Sprintf("step %q was killed: disk full, it wrote more than it may", s.name)
	case res.Killed != "":
		end.status, end.reason = pipeline.Error, fmt.Sprintf("step %q was stopped by its machine (%s); it is not your code", s.name, res.Killed)
	case res.ExitCode != 0:
		end.goesOn = true
		end.reason = fmt.Sprintf("step %q exited %d", s.name, res.ExitCode)
	default:
		end.status = pipeline.Passed
	}
	return end
}

// skipRest writes rows for the steps that never ran, so that their absence is explained.
func (a *attempt) skipRest(ctx context.Context, rest []planned, from int) {
	for i, s := range rest {
		if !a.skip(ctx, from+i, s, "an earlier step did not pass") {
			return
		}
	}
}

// skip writes the row of a step that does not run, and tells whether that could be done.
func (a *attempt) skip(ctx context.Context, i int, s planned, why string) bool {
	row := pipeline.Step{Index: i, Name: s.name, Command: s.command, Kind: s.kind, Status: pipeline.Skipped, Reason: why}
	err := a.r.c.Facts.EndStep(ctx, a.claimed.Lease, row)
	if err != nil {
		a.log.Error("write a skipped step", "step", row.Index, "err", err)
	}
	return err == nil
}

// command runs step i of the file.
func (a *attempt) command(ctx context.Context, index, i int) (engines.Result, error) {
	s := a.spec.Steps[i]
	// Secrets win over the workflow's variables, what earlier steps set over both, a step's own over these, the
	// framework's over all.
	c := engines.Command{
		Script: s.Command, Shell: s.Shell, Timeout: s.Timeout, Files: stepFiles(), Path: a.told.path,
		Env: merge(pairs(a.spec.Environment), secretEnv(a.values, a.spec.StepSecrets(i)), pairs(a.told.env), pairs(s.Environment), a.env),
	}
	if s.WorkingDirectory != "" {
		c.Dir = path.Join(a.machine.Workspace(), s.WorkingDirectory)
	}
	res, err := a.script(ctx, index, c)
	if err == nil {
		err = a.told.take(res.Files, a.out.Hide, func(sentence string) { a.say(index, sentence) })
	}
	if a.r.c.Ended != nil && (err != nil || res.ExitCode != 0) && res.Killed == "" && ctx.Err() == nil {
		a.r.c.Ended(ctx, a.machine, c, pipeline.Step{Index: index, Name: s.Name, Command: s.Command, ExitCode: res.ExitCode})
	}
	return res, err
}

func (a *attempt) script(ctx context.Context, index int, c engines.Command) (engines.Result, error) {
	stdout, stderr := a.out.Stream(index, "stdout"), a.out.Stream(index, "stderr")
	c.Stdout, c.Stderr = stdout, stderr
	res, err := a.machine.Run(ctx, c)
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
	return a.script(ctx, index, engines.Command{
		Script: knot.CheckoutScript(co, a.machine.Mounted(gitMount)), Env: []string{"GIT_TERMINAL_PROMPT=0"},
	})
}
