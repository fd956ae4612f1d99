package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"spindle/identity"
	"spindle/identity/oidc"
	"spindle/ingest"
	"spindle/internal/tid"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/secrets"
	"spindle/store"
	"spindle/trigger"
	"spindle/xrpc"
)

// tokens mints the ID tokens of runs from what the server itself knows of them.
type tokens struct {
	issuer *oidc.Issuer
	log    *slog.Logger
}

// Token implements runner.Tokens.
func (t tokens) Token(ctx context.Context, p pipeline.Pipeline, workflow, audience string, _ time.Duration) (string, error) {
	c := oidc.Claims{
		Audience: audience, Repo: p.Repo, Owner: p.Owner, SHA: p.Trigger.Commit,
		Event: p.Trigger.Kind, Actor: p.Trigger.Actor, ActorSource: p.Trigger.ActorSource,
		Workflow: workflow, Pipeline: string(p.ID), Trust: p.Trust, Runner: "self-hosted",
	}
	// The branch that a pull request comes from has no standing in the repository that it is for.
	if p.Trigger.Pull == nil {
		c.Ref = p.Trigger.Ref
	}
	tok, err := t.issuer.Mint(ctx, c)
	if errors.Is(err, oidc.ErrUnrecordable) {
		t.log.Warn("a run's identity may not be signed; it gets no token", "pipeline", p.ID, "workflow", workflow, "err", err)
		return "", nil
	}
	return tok, err
}

// verifier tells the edge who brought a token.
type verifier struct{ *identity.Verifier }

// Verify implements xrpc.Tokens.
func (v verifier) Verify(ctx context.Context, bearer, lxm string) (string, error) {
	c, err := v.Verifier.Verify(ctx, bearer, lxm)
	return c.DID, err
}

// intake turns the edge's calls into those of ingest, and its refusals into the edge's errors.
type intake struct {
	in  *ingest.Ingest
	ids *tid.Source
}

// NotifyPush implements xrpc.Ingest.
func (i intake) NotifyPush(ctx context.Context, p xrpc.Push) (xrpc.Notified, error) {
	a, err := i.in.Push(ctx, ingest.PushCall{
		Caller: p.Caller, Repo: p.Repo, Ref: p.Ref, Old: p.Old, New: p.New, Actor: p.Actor, Options: p.Options,
	})
	return xrpc.Notified{Pipelines: a.Pipelines, Message: a.Message}, edge(err)
}

// NotifyManual implements xrpc.Ingest.
func (i intake) NotifyManual(ctx context.Context, m xrpc.Manual) (xrpc.Notified, error) {
	a, err := i.in.Manual(ctx, ingest.ManualCall{
		Caller: m.Caller, Repo: m.Repo, Commit: m.Commit, Ref: m.Ref, Inputs: m.Inputs, Only: m.Workflows, Key: i.ids.Next(),
	})
	return xrpc.Notified{Pipelines: a.Pipelines, Message: a.Message}, edge(err)
}

// Retry implements xrpc.Retries.
func (i intake) Retry(ctx context.Context, old pipeline.Pipeline, workflows []string, by string) (pipeline.ID, error) {
	a, err := i.in.Retry(ctx, ingest.RetryCall{
		Caller: by, Pipeline: old.ID, Repo: old.Repo, Only: workflows, Key: i.ids.Next(),
	})
	if err != nil {
		return "", edge(err)
	}
	if len(a.Pipelines) == 0 {
		return "", &xrpc.Error{Code: xrpc.NoMatchingWorkflows, Message: a.Message}
	}
	return a.Pipelines[0], nil
}

// gaps has what a record stream did not tell looked up. It is made before the part that does so.
type gaps struct{ d *Daemon }

// Gap implements ingest.Gaps.
func (g gaps) Gap(ctx context.Context, source, host string, from, to int64, reason string) error {
	return g.d.backfill.Gap(ctx, source, host, from, to, reason)
}

// edge gives err the name that the edge's closed list has for it. Unknown errors pass and become internal ones.
func edge(err error) error {
	var refused *ingest.Refusal
	var unbound *knot.BindError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		code := xrpc.Forbidden
		switch refused.Code {
		case rbac.CodeBanned:
			code = xrpc.OwnerBanned
		case rbac.CodePaused, rbac.CodeNotAllowed, rbac.CodeInactive:
			code = xrpc.OwnerPaused
		case "RefNotFound":
			code = xrpc.RefNotFound
		case trigger.CodeInput:
			code = xrpc.InvalidRequest
		case "NotRetryable":
			code = xrpc.PipelineNotRetryable
		}
		return &xrpc.Error{Code: code, Message: refused.Sentence}
	case errors.Is(err, ingest.ErrInput):
		return &xrpc.Error{Code: xrpc.InvalidRequest, Message: err.Error()}
	case errors.Is(err, ingest.ErrNotServed) && errors.As(err, &unbound):
		// Which of the three statements is missing.
		why, _ := knot.Sentence(unbound)
		return &xrpc.Error{Code: xrpc.RepoNotVerified, Message: "the repository is not bound here: " + why}
	case errors.Is(err, ingest.ErrNotServed):
		if why, ok := knot.Sentence(err); ok {
			return &xrpc.Error{Code: xrpc.RepoNotVerified, Message: "the repository is not served here: " + why}
		}
		return &xrpc.Error{Code: xrpc.RepoNotVerified, Message: "the repository did not choose this spindle, or its DID document, manifest and declaration do not name each other"}
	case errors.Is(err, ingest.ErrUnreachable):
		return &xrpc.Error{Code: xrpc.UpstreamFailure, Message: "a server that must be asked about the repository does not answer; send this again", RetryAfter: 10 * time.Second}
	case errors.Is(err, store.ErrConflict):
		return &xrpc.Error{Code: xrpc.EventConflict, Message: "the same event was accepted with another content"}
	case errors.Is(err, store.ErrNotFound):
		return &xrpc.Error{Code: xrpc.PipelineNotFound, Message: "there is no such pipeline in the repository"}
	}
	return err
}

// hosts tells the did:web of a repository's knot.
type hosts struct{ knots *knot.Client }

// KnotDID implements xrpc.Knots.
func (h hosts) KnotDID(ctx context.Context, repo string) (string, error) {
	src, err := h.knots.Locate(ctx, repo)
	if err != nil {
		return "", fmt.Errorf("find the knot of %s: %w", repo, err)
	}
	u, err := url.Parse(src.KnotURL)
	if err != nil {
		return "", fmt.Errorf("read the address of the knot of %s: %w", repo, err)
	}
	return "did:web:" + strings.ReplaceAll(u.Host, ":", "%3A"), nil
}

// vault lists secrets without their values, and gives the vault's refusals the name that callers know.
type vault struct{ *secrets.Vault }

// Put implements xrpc.Secrets.
func (v vault) Put(ctx context.Context, repo, name, value, by string) error {
	return unfit(v.Vault.Put(ctx, repo, name, value, by))
}

// Delete implements xrpc.Secrets.
func (v vault) Delete(ctx context.Context, repo, name, by string) (bool, error) {
	was, err := v.Vault.Delete(ctx, repo, name, by)
	return was, unfit(err)
}

// unfit turns the vault's refusal of a name or value into one for the caller. Those sentences hold neither.
func unfit(err error) error {
	for _, refused := range []error{secrets.ErrName, secrets.ErrTooShort, secrets.ErrTooLong, secrets.ErrNUL, secrets.ErrTooMany} {
		if errors.Is(err, refused) {
			return &xrpc.Error{Code: xrpc.InvalidSecret, Message: strings.TrimPrefix(refused.Error(), "secrets: ")}
		}
	}
	return err
}

// List implements xrpc.Secrets.
func (v vault) List(ctx context.Context, repo string) ([]xrpc.Secret, error) {
	infos, err := v.Vault.List(ctx, repo)
	out := make([]xrpc.Secret, 0, len(infos))
	for _, s := range infos {
		out = append(out, xrpc.Secret{Name: s.Name, CreatedAt: s.CreatedAt, CreatedBy: s.CreatedBy})
	}
	return out, err
}
