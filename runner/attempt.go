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
	"slices"
	"strings"
	"time"

	"spindle/engines"
	"spindle/knot"
	"spindle/logs"
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
	limit    time.Duration // of the whole attempt
	source   knot.Source   // of the code
	out      *logs.Writer
	machine  engines.Attempt
	dir      string
	env      []string          // the framework's own, of every step
	values   map[string]string // of the secrets
	needs    map[string]workflow.Need
	told     told // by the steps
	released bool // that secrets or a token are handed out is written down
	stale    bool // nothing more may be told
}

// run does everything up to the last step. It leaves closing to close.
func (a *attempt) run(ctx context.Context) ending {
	if err := a.read(); err != nil {
		return a.stopped(ctx, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, errTimeout)
	defer cancel()
	if end, ok := a.ended(ctx); ok {
		return end
	}
	if err := a.prepare(ctx); err != nil {
		return a.stopped(ctx, err)
	}
	return a.all(ctx, a.steps())
}

// read takes the definition out of the claim and looks once more at what is about to be run.
func (a *attempt) read() error {
	if err := json.Unmarshal(a.claimed.Workflow.Spec, &a.spec); err != nil {
		return engines.Fault("the stored definition of this workflow cannot be read", err)
	}
	if len(a.spec.Steps) == 0 {
		// Nothing to do would be a pass that nobody earned.
		return engines.Fault("the stored definition of this workflow has no steps", nil)
	}
	if err := a.claimed.Pipeline.Trigger.Check(); err != nil {
		return engines.Fault(strings.TrimPrefix(err.Error(), "pipeline: "), err)
	}
	a.limit = a.spec.Timeout
	if a.limit <= 0 {
		a.limit = a.r.c.Timeout
	}
	a.limit = min(a.limit, a.r.c.MaxTimeout)
	return nil
}

// prepare opens the log and the machine with what the run is entitled to.
func (a *attempt) prepare(ctx context.Context) error {
	p, w := a.claimed.Pipeline, a.claimed.Workflow
	token, values, err := a.entitle(ctx)
	if err != nil {
		return err
	}
	mask := make([]string, 0, len(values)+1)
	for _, v := range values {
		mask = append(mask, v)
	}
	if token != "" {
		mask = append(mask, token)
	}
	a.values = values
	a.needs = a.claimed.Needs
	if a.r.c.Needs != nil && len(a.spec.WaitsFor) > 0 {
		if a.needs, err = a.r.c.Needs.Needs(ctx, a.claimed); err != nil {
			return engines.Fault("what this workflow waited for could not be read (not your code)", err)
		}
	}
	a.out, err = a.r.c.Logs.Create(logs.Ref{
		Pipeline: string(p.ID), Workflow: w.Name, Attempt: a.claimed.Lease.Attempt,
	}, mask)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	a.preface()
	a.source, err = a.r.c.Checkouts.Locate(ctx, p.Trigger.CodeRepo())
	if err != nil {
		return fmt.Errorf("find the knot of %s: %w", p.Trigger.CodeRepo(), err)
	}
	if err := a.open(ctx); err != nil {
		return fmt.Errorf("open a machine: %w", err)
	}
	a.env = frameworkEnv(p, a.repoURL(ctx), a.claimed.Rkey)
	if token != "" {
		a.env = append(a.env, "TANGLED_ID_TOKEN="+token)
	}
	a.env = append(a.env, "HOME="+a.machine.Home())
	a.env = merge(a.env, pairs(a.spec.CellEnvironment()), pairs(a.spec.NeedsEnvironment(a.needs)), inputs(a.spec.Given))
	return nil
}

// preface says in the log what a reader of this attempt should know before its first line.
func (a *attempt) preface() {
	if b := a.claimed.Before; b.Status != "" {
		n := a.claimed.Lease.Attempt
		a.say(-1, fmt.Sprintf("attempt %d; attempt %d ended as %s: %s", n, n-1, b.Status.Label(), b.Reason))
	}
	if a.spec.Timeout > a.r.c.MaxTimeout {
		a.say(-1, fmt.Sprintf("the file's `timeout: %s` is longer than this spindle allows; %s counts", a.spec.Timeout, a.limit))
	}
	for _, n := range a.spec.NotCarried {
		a.say(-1, n.Why)
	}
}

// entitle reads the secrets and the token that the run may have, and writes down that it is given them before
// anything can use them.
func (a *attempt) entitle(ctx context.Context) (token string, values map[string]string, err error) {
	p := a.claimed.Pipeline
	if p.Trust.Secrets() {
		if values, err = a.r.c.Secrets.Run(ctx, p.Repo, p.Trust); err != nil {
			return "", nil, engines.Fault("the repository's secrets could not be read (not your code)", err)
		}
	}
	if token, err = a.token(ctx); err != nil {
		return "", nil, err
	}
	if len(values) == 0 && token == "" {
		return "", nil, nil
	}
	if err := a.r.c.Facts.MarkReleased(ctx, a.claimed.Lease); err != nil {
		return "", nil, fmt.Errorf("write down that secrets are handed out: %w", err)
	}
	a.released = true
	return token, values, nil
}

// token is the run's ID token, or "" where it asks for none or may have none.
func (a *attempt) token(ctx context.Context) (string, error) {
	p := a.claimed.Pipeline
	if a.spec.Audience == "" || a.r.c.Tokens == nil || !p.Trust.Tokens() {
		return "", nil
	}
	t, err := a.r.c.Tokens.Token(ctx, p, a.claimed.Workflow.Name, a.spec.Audience, a.limit)
	if err != nil {
		return "", engines.Fault("the ID token of this run could not be signed", err)
	}
	return t, nil
}

// open makes the attempt's folder and its machine.
func (a *attempt) open(ctx context.Context) error {
	engine, ok := a.r.engines[a.spec.Engine]
	if !ok {
		return engines.Fault(fmt.Sprintf("this machine has no engine %q", a.spec.Engine), nil)
	}
	id := a.id()
	a.dir = filepath.Join(a.r.c.Dir, id)
	git := filepath.Join(a.dir, "git")
	if err := os.MkdirAll(git, 0o755); err != nil {
		return fmt.Errorf("make the attempt's folder: %w", err)
	}
	spec := engines.Spec{
		ID: id, Image: a.spec.Image, Packages: packages(a.spec.Dependencies), Needs: needs(a.spec.Microvm), Limits: a.r.c.Limits, Mounts: slices.Clone(a.r.c.Mounts),
		Untrusted: !a.claimed.Pipeline.Trust.Secrets(), Progress: func(line string) { a.say(-1, line) },
	}
	if !a.spec.Clone.Skip {
		spec.Mounts = append(spec.Mounts, engines.Mount{Source: git, Target: gitMount})
	}
	var err error
	a.machine, err = guarded(func() (engines.Attempt, error) { return engine.Open(ctx, spec) })
	return err
}

// id names the attempt's machine. Workflow names may hold any character, so they are told by a digest.
func (a *attempt) id() string {
	l := a.claimed.Lease
	sum := sha256.Sum256([]byte(l.Workflow))
	return fmt.Sprintf("%s-%s-%d", l.Pipeline, hex.EncodeToString(sum[:4]), l.Epoch)
}

// repoURL is where the repository itself, not a fork that the code comes from, is cloned from; empty when
// that cannot be told.
func (a *attempt) repoURL(ctx context.Context) string {
	repo := a.claimed.Pipeline.Repo
	if a.source.Repo == repo {
		return a.source.CloneURL()
	}
	src, err := a.r.c.Checkouts.Locate(ctx, repo)
	if err != nil {
		a.log.Warn("find the knot of the pull request's target", "repo", repo, "err", err)
		return ""
	}
	return src.CloneURL()
}

// close ends the machine, then the log, then the files. What steps have printed is on the disk since their
// ends, so a log that does not close costs its index and no line. ctx bounds the machine's end only.
func (a *attempt) close(ctx context.Context) error {
	var errs []error
	if a.machine != nil {
		_, err := guarded(func() (struct{}, error) { return struct{}{}, a.machine.Close(ctx) })
		errs = append(errs, err)
	}
	if a.out != nil {
		errs = append(errs, a.out.Close())
	}
	if a.dir != "" {
		errs = append(errs, os.RemoveAll(a.dir))
	}
	return errors.Join(errs...)
}
