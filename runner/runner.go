package runner

import (
	"context"
	"log/slog"
	"time"

	"spindle/engines"
	"spindle/internal/clock"
	"spindle/knot"
	"spindle/logs"
	"spindle/pipeline"
	"spindle/store"
)

// Facts is where an attempt's facts go: the store, or the wire to it.
type Facts interface {
	Apply(ctx context.Context, id pipeline.ID, workflow string, f pipeline.Fact) (pipeline.Workflow, error)
	StartStep(ctx context.Context, l pipeline.Lease, s pipeline.Step) error
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

// Logs opens the log of an attempt.
type Logs interface {
	Create(ref logs.Ref, mask []string) (*logs.Writer, error)
}

// Config is what a Runner needs. All fields but Tokens are required.
type Config struct {
	Facts     Facts
	Checkouts Checkouts
	Secrets   Secrets
	// Tokens is nil where no issuer is configured: then no workflow gets a token.
	Tokens  Tokens
	Logs    Logs
	Engines []engines.Engine
	Clock   clock.Clock
	Log     *slog.Logger
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

// Execute implements queue.Executor: it takes c to its end and reports it.
func (r *Runner) Execute(ctx context.Context, c *store.Claimed) {
	log := r.c.Log.With("pipeline", c.Lease.Pipeline, "workflow", c.Lease.Workflow, "attempt", c.Lease.Attempt)
	a := &attempt{r: r, claimed: c, log: log}
	end := a.run(ctx)
	// What the attempt found out must be written even though its own context has ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := a.close(last); err != nil {
		log.Error("clean up after the attempt", "err", err)
	}
	if a.stale {
		log.Warn("the lease was lost; the result is not told")
		return
	}
	if end.drained {
		// The workflow itself did nothing wrong: hand it back, so that another attempt takes it up.
		_, err := r.c.Facts.Apply(last, c.Lease.Pipeline, c.Lease.Workflow, pipeline.Lost{
			Epoch: c.Lease.Epoch, Again: !a.released, Reason: "interrupted: the spindle was stopped",
		})
		if err != nil {
			log.Error("hand the workflow back", "err", err)
		}
		return
	}
	f := pipeline.Finished{Epoch: c.Lease.Epoch, Status: end.status, ExitCode: end.exit, Reason: end.reason}
	if _, err := r.c.Facts.Apply(last, c.Lease.Pipeline, c.Lease.Workflow, f); err != nil {
		log.Error("report the end of the attempt", "status", end.status, "err", err)
		return
	}
	log.Info("workflow ended", "status", end.status, "exit", end.exit, "reason", end.reason)
}

// closeTime bounds what is done after the attempt's end: killing its machine, syncing its log, its last row.
const closeTime = time.Minute
