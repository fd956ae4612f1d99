package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// Call errors. Each is a *Refusal or one of these.
var (
	// ErrNotServed is a repository that did not choose this spindle, or whose binding is not proven.
	ErrNotServed = errors.New("ingest: the repository is not served here")
	// ErrUnreachable is a source that could not be asked now; the caller may try again.
	ErrUnreachable = errors.New("ingest: a server that must be asked does not answer")
	// ErrInput is a malformed ref, commit or input.
	ErrInput = errors.New("ingest: malformed")
)

// Refusal is a call that the gate turned away; Code and Sentence are for the caller.
type Refusal struct{ Code, Sentence string }

// Error implements error.
func (r *Refusal) Error() string { return "refused: " + r.Sentence }

// Answer is what came of a call.
type Answer struct {
	// Pipelines are the ids that the event started; empty when it started none, or not yet.
	Pipelines []pipeline.ID
	// Message is for the person who pushed: what runs, or why nothing does.
	Message string
	// Duplicate is set when the event had been accepted before.
	Duplicate bool
}

// PushCall is a knot's word that a ref moved.
type PushCall struct {
	// Caller is the DID that signed the call.
	Caller string
	Repo   string
	Ref    string
	Old    string
	New    string
	// Actor is who pushed, as the knot says; may be empty.
	Actor   string
	Options []string
}

// ManualCall is a person's wish to run a commit.
type ManualCall struct {
	Caller string
	Repo   string
	Commit string
	// Ref, if given, must contain the commit: it becomes part of what the run may claim.
	Ref    string
	Inputs []pipeline.Input
	Only   []string
	// Key makes the call idempotent: the same caller and key start one pipeline.
	Key string
}

// RetryCall is a person's wish to run a pipeline again.
type RetryCall struct {
	Caller   string
	Pipeline pipeline.ID
	Repo     string
	Only     []string
	Key      string
}

// Push accepts a knot's push. The caller must be the repository itself or the knot that its DID document
// names; whatever else it says counts for that repository only.
func (in *Ingest) Push(ctx context.Context, c PushCall) (Answer, error) {
	if err := checkPush(c); err != nil {
		return Answer{}, err
	}
	repo, err := in.serve(ctx, c.Repo)
	if err != nil {
		return Answer{}, err
	}
	if c.Caller != repo.Repo && c.Caller != webDID(repo.Knot) {
		in.c.Count("push_wrong_caller")
		return Answer{}, &Refusal{
			Code:     "AccessControl",
			Sentence: fmt.Sprintf("%s may not report pushes for %s: only the repository itself or its knot may", c.Caller, c.Repo),
		}
	}
	if err := in.admit(ctx, repo); err != nil {
		return Answer{}, err
	}
	// That a branch is gone is an event like any other move of it: what comes after it is not what was before.
	return in.accept(ctx, pushTrigger(repo, c, pipeline.FromKnot, in.c.Clock.Now()))
}

// Manual starts a run of a commit for a person who may push to the repository.
func (in *Ingest) Manual(ctx context.Context, c ManualCall) (Answer, error) {
	if err := checkManual(c); err != nil {
		return Answer{}, err
	}
	repo, err := in.serve(ctx, c.Repo)
	if err != nil {
		return Answer{}, err
	}
	if err := in.may(ctx, c.Caller, rbac.Push, repo); err != nil {
		return Answer{}, err
	}
	if err := in.admit(ctx, repo); err != nil {
		return Answer{}, err
	}
	if c.Ref != "" {
		if err := in.proveRef(ctx, c); err != nil {
			return Answer{}, err
		}
	}
	return in.accept(ctx, pipeline.Trigger{
		Key:  strings.Join([]string{"manual", c.Caller, c.Repo, c.Key}, ":"),
		Kind: pipeline.Manual, Repo: c.Repo, Actor: c.Caller, ActorSource: pipeline.FromCaller,
		Ref: c.Ref, Commit: c.Commit, Inputs: c.Inputs, Only: c.Only,
	})
}

// Retry repeats an ended pipeline from what was stored of it, at the trust that it had.
func (in *Ingest) Retry(ctx context.Context, c RetryCall) (Answer, error) {
	if err := checkAsked(c.Key, c.Only); err != nil {
		return Answer{}, err
	}
	old, ok, err := in.c.Store.Pipeline(ctx, c.Pipeline)
	if err != nil {
		return Answer{}, fmt.Errorf("read pipeline %s: %w", c.Pipeline, err)
	}
	if !ok || old.Repo != c.Repo {
		return Answer{}, store.ErrNotFound
	}
	repo, err := in.serve(ctx, c.Repo)
	if err != nil {
		return Answer{}, err
	}
	if err := in.may(ctx, c.Caller, rbac.Push, repo); err != nil {
		return Answer{}, err
	}
	if err := in.admit(ctx, repo); err != nil {
		return Answer{}, err
	}
	if !old.Status.Terminal() {
		return Answer{}, &Refusal{Code: "NotRetryable", Sentence: fmt.Sprintf("pipeline %s is %s; cancel it or wait for its end", old.ID, old.Status.Label())}
	}
	if old.Trust == pipeline.TrustFork {
		return Answer{}, &Refusal{Code: "NotRetryable", Sentence: "a run that needs an approval and never got one cannot be repeated"}
	}
	t := old.Trigger
	t.Key = strings.Join([]string{"retry", string(old.ID), c.Caller, c.Key}, ":")
	t.Actor, t.ActorSource, t.RetryOf, t.Only = c.Caller, pipeline.FromCaller, old.ID, c.Only
	if t.Pull != nil {
		// What a stranger called their branch must never look like a branch of the target.
		p := *t.Pull
		p.SourceBranch = ""
		t.Pull = &p
	}
	return in.accept(ctx, t)
}

// bindingAge is how long a binding is believed without being asked for again. Changes are heard of by the
// stream; this is for those that it did not tell.
const bindingAge = 24 * time.Hour

// pausedAge is how long it is believed that an account is not active when something is wanted of it.
const pausedAge = time.Minute

// serve is the binding of a repository that is served here, made now if it is not known yet: a push may
// well come before the records that announce the repository.
func (in *Ingest) serve(ctx context.Context, repo string) (store.RepoBinding, error) {
	b, ok, err := in.c.Store.Repo(ctx, repo)
	if err != nil {
		return b, fmt.Errorf("read repository %s: %w", repo, err)
	}
	served := ok && !b.Gone
	if served && b.Paused != "" {
		if b, err = in.revive(ctx, b); err != nil {
			return b, err
		}
		served = !b.Gone
	}
	if served && in.c.Clock.Now().Sub(b.VerifiedAt) < bindingAge {
		return b, nil
	}
	e, err := in.repository(ctx, repo, false)
	var refused *Refusal
	switch {
	case err != nil && temporary(err) && served:
		return b, nil // an old proof must do while nobody can be asked for a new one
	case err != nil && temporary(err):
		return b, fmt.Errorf("%w: bind %s: %w", ErrUnreachable, repo, err)
	case errors.As(err, &refused):
		return b, err
	case err != nil:
		in.c.Count("bind_refused")
		return b, fmt.Errorf("%w: %w", ErrNotServed, err)
	case len(e.Repos) == 0 && len(e.Accounts) > 0:
		// It is paused from now on; the gate says so.
		if _, err := in.c.Store.Accept(ctx, e); err != nil {
			return b, fmt.Errorf("store the accounts of %s: %w", repo, err)
		}
		return b, nil
	case len(e.Repos) == 0:
		return b, ErrNotServed
	}
	if !served {
		// Changes of a repository that is not served are not followed. What changed while this was read is
		// found by reading once more.
		e.Rechecks = append(e.Rechecks, bindAgain(repo))
	}
	if _, err := in.c.Store.Accept(ctx, e); err != nil {
		return b, fmt.Errorf("store the binding of %s: %w", repo, err)
	}
	in.wakeProvers()
	if e.Repos[0].Gone {
		return b, ErrNotServed
	}
	return e.Repos[0], nil
}

func (in *Ingest) admit(ctx context.Context, repo store.RepoBinding) error {
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	return refusal(g.Admit(rbac.Repo{DID: repo.Repo, Owner: repo.Owner}))
}

func (in *Ingest) may(ctx context.Context, actor string, a rbac.Action, repo store.RepoBinding) error {
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	return refusal(g.May(actor, a, rbac.Repo{DID: repo.Repo, Owner: repo.Owner}))
}

func refusal(d rbac.Decision) error {
	if d.Allowed {
		return nil
	}
	return &Refusal{Code: string(d.Code), Sentence: d.Sentence}
}

func (in *Ingest) proveRef(ctx context.Context, c ManualCall) error {
	if err := checkRef(c.Ref); err != nil {
		return err
	}
	src, err := in.c.Knots.Locate(ctx, c.Repo)
	switch {
	case err != nil && temporary(err):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotServed, err)
	}
	inside, err := in.c.Knots.RefContains(ctx, src, c.Ref, c.Commit)
	switch {
	case err != nil && temporary(err):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case err != nil:
		return &Refusal{Code: "RefNotFound", Sentence: fmt.Sprintf("%s was not found at the knot", c.Ref)}
	case !inside:
		return &Refusal{Code: "RefNotFound", Sentence: fmt.Sprintf("commit %s is not in %s", c.Commit, c.Ref)}
	}
	return nil
}

// accept writes the event and waits a while for what comes of it.
func (in *Ingest) accept(ctx context.Context, t pipeline.Trigger) (Answer, error) {
	t.At = in.c.Clock.Now()
	got, err := in.c.Store.Accept(ctx, store.Effects{Event: &t})
	if err != nil {
		return Answer{}, fmt.Errorf("accept the event: %w", err)
	}
	a, err := in.outcome(ctx, got.Key)
	a.Duplicate = got.Duplicate
	return a, err
}

// outcome waits until the event is settled, or its patience ends: the event is durable, so an answer that
// comes too early loses nothing.
func (in *Ingest) outcome(ctx context.Context, key string) (Answer, error) {
	wait, cancel := context.WithTimeout(ctx, in.c.Patience)
	defer cancel()
	for {
		wake := in.c.Store.Changed()
		v, ok, err := in.c.Store.EventByKey(wait, key)
		switch {
		case err != nil && wait.Err() == nil:
			return Answer{}, fmt.Errorf("read the event: %w", err)
		case ok && v.State == store.EventDone:
			return Answer{Pipelines: []pipeline.ID{v.Pipeline}, Message: in.summary(ctx, v.Pipeline)}, nil
		case ok && v.State == store.EventRefused:
			return Answer{}, &Refusal{Code: cmp.Or(v.Code, "AccessControl"), Sentence: v.Reason}
		case ok && v.State != store.EventPending:
			return Answer{Message: v.Reason}, nil
		}
		select {
		case <-wake:
		case <-wait.Done():
			if err := ctx.Err(); err != nil {
				return Answer{}, err
			}
			return Answer{Message: "accepted; the workflow files are being read"}, nil
		}
	}
}

// summary is what a pusher reads: what runs, and what is wrong with the files that do not.
func (in *Ingest) summary(ctx context.Context, id pipeline.ID) string {
	p, ok, err := in.c.Store.Pipeline(ctx, id)
	if err != nil || !ok {
		return "pipeline " + string(id)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline %s: %s/p/%s", id, in.c.PublicURL, id)
	if p.Note != "" {
		b.WriteString("\n" + p.Note)
	}
	for _, w := range p.Workflows {
		fmt.Fprintf(&b, "\n  %s %s %s", w.Status.Symbol(), w.Name, w.Status.Label())
		if w.Status == pipeline.Invalid || w.Status == pipeline.Held {
			fmt.Fprintf(&b, "\n%s", w.Reason)
		}
	}
	return b.String()
}
