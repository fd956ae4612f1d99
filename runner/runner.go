package runner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"spindle/engines"
	"spindle/internal/clock"
	"spindle/knot"
	"spindle/logs"
	"spindle/pipeline"
	"spindle/store"
	"spindle/workflow"
)

// Facts is where an attempt's facts go: the store, or the wire to it.
type Facts interface {
	Apply(ctx context.Context, id pipeline.ID, workflow string, f pipeline.Fact) (pipeline.Workflow, error)
	// StartStep writes the start of a step; the first one makes the workflow running.
	StartStep(ctx context.Context, l pipeline.Lease, s pipeline.Step) error
	// EndStep writes the end of a step, also of one that never started.
	EndStep(ctx context.Context, l pipeline.Lease, s pipeline.Step) error
	// MarkReleased writes down that secrets or a token are about to be handed to the attempt.
	MarkReleased(ctx context.Context, l pipeline.Lease) error
}

// Checkouts prepares the objects of one commit for a checkout inside the attempt.
type Checkouts interface {
	PrepareCheckout(ctx context.Context, r knot.CheckoutRequest) (knot.Checkout, error)
	// Locate is the knot that serves the repository now, from its DID document.
	Locate(ctx context.Context, repo string) (knot.Source, error)
}

// Secrets hands out the set of a run; it is empty where the trust does not allow any.
type Secrets interface {
	Run(ctx context.Context, repo string, trust pipeline.Trust) (map[string]string, error)
}

// Tokens mints the ID token of a run. A run whose identity may not be signed gets "" and no error.
type Tokens interface {
	Token(ctx context.Context, p pipeline.Pipeline, workflow, audience string, life time.Duration) (string, error)
}

// Logs opens the log of an attempt. Values in mask never appear in it.
type Logs interface {
	Create(ref logs.Ref, mask []string) (*logs.Writer, error)
}

// Needs tells how the workflows ended that an attempt's workflow waited for, by their planned names.
type Needs interface {
	Needs(ctx context.Context, c *store.Claimed) (map[string]workflow.Need, error)
}

// Results takes what the steps of an attempt told, before its end is reported.
type Results interface {
	Keep(ctx context.Context, l pipeline.Lease, r Result) error
}

// Result is what the steps of an attempt told beside their output. No secret is in it.
type Result struct {
	// Outputs are what they wrote to $SPINDLE_OUTPUT, in the order of the first time of each.
	Outputs []workflow.Env
	// Summary is what they wrote to $SPINDLE_SUMMARY: Markdown of the job's, to be treated as hostile.
	Summary string
}

// Config is what a Runner needs. All fields but Tokens, Needs and Results are required.
type Config struct {
	Facts     Facts
	Checkouts Checkouts
	Secrets   Secrets
	// Tokens is nil where no issuer is configured: then no workflow gets a token.
	Tokens Tokens
	// Needs is nil where the claim says how they ended, Results where the end of the attempt says enough.
	Needs   Needs
	Results Results
	Logs    Logs
	Engines []engines.Engine
	Clock   clock.Clock
	Log     *slog.Logger
	// Mounts are shown to every attempt, beside what its checkout needs.
	Mounts []engines.Mount
	// Step, if not nil, is asked before each of the file's steps whether it is left out, and why; the index is that in
	// the Spec.
	Step func(index int) (why string, skip bool)
	// Ended, if not nil, is called after a step of the file that did not pass, while its machine is still there.
	Ended func(ctx context.Context, m engines.Attempt, c engines.Command, s pipeline.Step)
	// Dir holds what attempts share with their machine; each attempt's part is removed at its end.
	Dir string
	// Timeout bounds an attempt whose workflow names none, MaxTimeout those that do. Zero means 5 minutes and an hour.
	Timeout, MaxTimeout time.Duration
	// Limits is handed to the engine for every attempt.
	Limits engines.Limits
}

// Runner executes leased workflows. Make it with New; it is safe for concurrent use.
type Runner struct {
	c       Config
	engines map[string]engines.Engine
}

// New returns a runner.
func New(c Config) *Runner {
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Minute
	}
	if c.MaxTimeout <= 0 {
		c.MaxTimeout = time.Hour
	}
	r := &Runner{c: c, engines: map[string]engines.Engine{}}
	for _, e := range c.Engines {
		r.engines[e.Name()] = e
	}
	return r
}

// Names lists the engines that the runner has.
func (r *Runner) Names() []string {
	out := make([]string, 0, len(r.c.Engines))
	for _, e := range r.c.Engines {
		out = append(out, e.Name())
	}
	return out
}

// Execute implements queue.Executor: it takes c to its end and reports it, whatever happens on the way.
func (r *Runner) Execute(ctx context.Context, c *store.Claimed) {
	log := r.c.Log.With("pipeline", c.Lease.Pipeline, "workflow", c.Lease.Workflow, "attempt", c.Lease.Attempt)
	a := &attempt{r: r, claimed: c, log: log}
	end, err := guarded(func() (ending, error) { return a.run(ctx), nil })
	if err != nil {
		end = a.stopped(ctx, err)
	}
	// What the attempt found out must be written even though its own context has ended.
	ctx = context.WithoutCancel(ctx)
	closing, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	if err := a.close(closing); err != nil {
		log.Error("clean up after the attempt", "err", err)
	}
	if a.stale {
		log.Warn("the lease was lost; the result is not told")
		return
	}
	a.keep(ctx)
	f := a.fact(end)
	switch err := a.tell(ctx, f); {
	case lost(err):
		log.Warn("the lease was lost; the result is not believed", "status", end.status)
	case err != nil:
		log.Error("report the end of the attempt", "status", end.status, "err", err)
	case end.drained:
		log.Info("workflow handed back")
	default:
		log.Info("workflow ended", "status", end.status, "exit", end.exit, "reason", end.reason)
	}
}

// keep hands on what the steps told.
func (a *attempt) keep(ctx context.Context) {
	r := Result{Outputs: a.told.outputs, Summary: a.told.summary.String()}
	if a.r.c.Results == nil || len(r.Outputs) == 0 && r.Summary == "" {
		return
	}
	if err := a.r.c.Results.Keep(ctx, a.claimed.Lease, r); err != nil {
		a.log.Error("keep the outputs and the summary of the attempt", "err", err)
	}
}

// fact is what the store is told of end.
func (a *attempt) fact(end ending) pipeline.Fact {
	epoch := a.claimed.Lease.Epoch
	if !end.drained {
		f := pipeline.Finished{Epoch: epoch, Status: end.status, ExitCode: end.exit, Reason: end.reason}
		for _, o := range a.told.outputs {
			if f.Outputs == nil {
				f.Outputs = make(map[string]string, len(a.told.outputs))
			}
			f.Outputs[o.Key] = o.Value
		}
		return f
	}
	// The workflow itself did nothing wrong: it is handed back, so that another attempt takes it up.
	reason := (&pipeline.Stop{Kind: pipeline.StopDrain}).Sentence()
	if a.released {
		reason += "; it had been given secrets or a token, so it is not repeated by itself"
	}
	return pipeline.Lost{Epoch: epoch, Again: !a.released, Reason: reason}
}

// tell reports f, again and again while that may help. The lease is kept meanwhile by whoever called Execute.
func (a *attempt) tell(ctx context.Context, f pipeline.Fact) error {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	l := a.claimed.Lease
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		_, err := a.r.c.Facts.Apply(ctx, l.Pipeline, l.Workflow, f)
		if err == nil || lost(err) || errors.Is(err, pipeline.ErrMove) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrClosed) {
			return err
		}
		a.log.Warn("report the end of the attempt: trying again", "err", err)
		if a.r.c.Clock.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

const (
	// closeTime bounds the end of an attempt's machine.
	closeTime = time.Minute
	// reportTime bounds the report, which has a time of its own, so that a machine that does not end does not
	// cost the result.
	reportTime = time.Minute
	// firstPause and maxPause are the first and the longest time between two tries of the report.
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)
