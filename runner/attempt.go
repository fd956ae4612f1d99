package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"spindle/engines"
	"spindle/knot"
	"spindle/logs"
	"spindle/pipeline"
	"spindle/store"
	"spindle/workflow"
)

// gitMount is where an attempt sees the objects of its commit, read-only.
const gitMount = "/spindle/git"

// attempt is one execution of one workflow.
type attempt struct {
	r       *Runner
	claimed *store.Claimed
	log     *slog.Logger

	spec     workflow.Spec
	source   knot.Source
	out      *logs.Writer
	machine  engines.Attempt
	dir      string
	env      []string // of every step, without the step's own
	secrets  []string
	began    bool
	released bool
	stale    bool
}

// ending is how an attempt ended.
type ending struct {
	status  pipeline.Status
	exit    int
	reason  string
	drained bool
}

// run does everything up to the last step. It leaves closing to close.
func (a *attempt) run(ctx context.Context) ending {
	if err := json.Unmarshal(a.claimed.Workflow.Spec, &a.spec); err != nil {
		a.log.Error("read the stored spec", "err", err)
		return ending{status: pipeline.Error, reason: "the stored definition of this workflow cannot be read"}
	}
	limit := a.limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	if err := a.prepare(ctx, limit); err != nil {
		return a.stopped(ctx, limit, err)
	}
	steps := a.steps()
	for i, s := range steps {
		end := a.step(ctx, limit, i, s)
		if end == nil {
			continue
		}
		if end.status != pipeline.Cancelled && !end.drained && !a.stale {
			a.skipRest(context.WithoutCancel(ctx), steps[i+1:], i+1)
		}
		return *end
	}
	return ending{status: pipeline.Passed}
}

// errTimeout is the cause of a context that ended because the workflow's time was up.
var errTimeout = errors.New("the workflow's time is up")

// limit is how long the attempt may take.
func (a *attempt) limit() time.Duration {
	d := a.spec.Timeout
	if d <= 0 {
		d = a.r.c.Timeout
	}
	return min(d, a.r.c.MaxTimeout)
}

// prepare opens the log, the machine, and what the run is entitled to.
func (a *attempt) prepare(ctx context.Context, limit time.Duration) error {
	p, w := a.claimed.Pipeline, a.claimed.Workflow
	values, err := a.r.c.Secrets.Run(ctx, p.Repo, p.Trust)
	if err != nil {
		return fmt.Errorf("read the repository's secrets: %w", err)
	}
	token, err := a.token(ctx, limit)
	if err != nil {
		return err
	}
	if len(values) > 0 || token != "" {
		if err := a.r.c.Facts.MarkReleased(ctx, a.claimed.Lease); err != nil {
			return fmt.Errorf("write down that secrets are handed out: %w", err)
		}
		a.released = true
	}
	mask := make([]string, 0, len(values)+1)
	for _, v := range values {
		mask = append(mask, v)
	}
	if token != "" {
		mask = append(mask, token)
	}
	a.out, err = a.r.c.Logs.Create(logs.Ref{
		Pipeline: string(p.ID), Workflow: w.Name, Attempt: a.claimed.Lease.Attempt,
	}, mask)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	engine, ok := a.r.engines[a.spec.Engine]
	if !ok {
		return engines.Fault(fmt.Sprintf("this machine has no engine %q", a.spec.Engine), nil)
	}
	a.source, err = a.r.c.Checkouts.Locate(ctx, p.Trigger.CodeRepo())
	if err != nil {
		return fmt.Errorf("find the knot of %s: %w", p.Trigger.CodeRepo(), err)
	}
	id := a.id()
	a.dir = filepath.Join(a.r.c.Dir, id)
	git := filepath.Join(a.dir, "git")
	if err := os.MkdirAll(git, 0o755); err != nil {
		return fmt.Errorf("make the attempt's folder: %w", err)
	}
	framework := frameworkEnv(p, a.source.CloneURL(), a.claimed.Rkey)
	if token != "" {
		framework = append(framework, "TANGLED_ID_TOKEN="+token)
	}
	a.env = framework
	a.secrets = secretEnv(values)
	spec := engines.Spec{ID: id, Image: a.spec.Image, Limits: a.r.c.Limits}
	if !a.spec.Clone.Skip {
		spec.Mounts = []engines.Mount{{Source: git, Target: gitMount}}
	}
	a.machine, err = engine.Open(ctx, spec)
	if err != nil {
		return fmt.Errorf("open a machine: %w", err)
	}
	return nil
}

// id names the attempt's machine. Workflow names may hold any character, so they are told by a digest.
func (a *attempt) id() string {
	l := a.claimed.Lease
	sum := sha256.Sum256([]byte(l.Workflow))
	return fmt.Sprintf("%s-%s-%d", l.Pipeline, hex.EncodeToString(sum[:4]), l.Epoch)
}

// token is the run's ID token, or "" where it asks for none or may have none.
func (a *attempt) token(ctx context.Context, limit time.Duration) (string, error) {
	p := a.claimed.Pipeline
	if a.spec.Audience == "" || a.r.c.Tokens == nil || !p.Trust.Tokens() {
		return "", nil
	}
	t, err := a.r.c.Tokens.Token(ctx, p, a.claimed.Workflow.Name, a.spec.Audience, limit)
	if err != nil {
		return "", engines.Fault("the ID token of this run could not be signed", err)
	}
	return t, nil
}

// stopped turns the failure of something that is not a step into an ending. A context that ended explains
// the failure better than the error does.
func (a *attempt) stopped(ctx context.Context, limit time.Duration, err error) ending {
	if end, ok := a.ended(ctx, limit); ok {
		return end
	}
	a.log.Error("the attempt failed outside of its steps", "err", err)
	reason := publicReason(err)
	if a.out != nil {
		if werr := a.out.System(-1, reason+"\n"); werr != nil {
			a.log.Error("write the reason to the log", "err", werr)
		}
	}
	return ending{status: pipeline.Error, reason: reason}
}

// ended tells how the attempt ends if its context has ended.
func (a *attempt) ended(ctx context.Context, limit time.Duration) (ending, bool) {
	if ctx.Err() == nil {
		return ending{}, false
	}
	cause := context.Cause(ctx)
	var stop *pipeline.Stop
	switch {
	case errors.As(cause, &stop) && stop.Kind == pipeline.StopStale:
		a.stale = true
		return ending{}, true
	case errors.As(cause, &stop) && stop.Kind == pipeline.StopCancel:
		return ending{status: pipeline.Cancelled, reason: "cancelled by " + stop.By}, true
	case errors.Is(cause, errTimeout):
		return ending{
			status: pipeline.Timeout,
			reason: fmt.Sprintf("stopped at the workflow's limit of %s; a longer one is set with `timeout:`", limit),
		}, true
	}
	return ending{drained: true}, true
}

// close ends the machine, then the log, then the files.
func (a *attempt) close(ctx context.Context) error {
	var errs []error
	if a.machine != nil {
		errs = append(errs, a.machine.Close(ctx))
	}
	if a.out != nil {
		errs = append(errs, a.out.Close())
	}
	if a.dir != "" {
		errs = append(errs, os.RemoveAll(a.dir))
	}
	return errors.Join(errs...)
}

// publicReason is what anyone may read of err.
func publicReason(err error) string {
	var e *engines.Error
	if errors.As(err, &e) {
		return e.Public
	}
	if s, ok := knot.Sentence(err); ok {
		return s
	}
	return "the machinery that runs this workflow had a fault; it is not your code"
}
