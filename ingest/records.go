package ingest

import (
	"context"
	"errors"
	"fmt"

	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/identity"
	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// declaration follows an owner's declaration to the repository that it names.
func (in *Ingest) declaration(ctx context.Context, r store.Recheck) (store.Effects, error) {
	ok, err := in.admitted(ctx, "", r.DID)
	if err != nil || !ok {
		return store.Effects{}, err
	}
	proven, err := in.c.Prover.Record(ctx, r.DID, declarationNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		return in.undeclared(ctx, r)
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[orgtangled.RepoDeclaration](proven)
	if err != nil {
		return store.Effects{}, err
	}
	e, err := in.repository(ctx, view.Repo, false)
	if err != nil {
		return store.Effects{}, err
	}
	e.Records = append(e.Records, record(r, proven, rec))
	return e, nil
}

// undeclared handles a declaration that is proven to be gone: whatever it declared is bound anew, which
// finds it unbound.
func (in *Ingest) undeclared(ctx context.Context, r store.Recheck) (store.Effects, error) {
	old, ok, err := in.c.Store.Record(ctx, r.DID, r.Collection, r.Rkey)
	if err != nil || !ok || old.Deleted {
		return store.Effects{}, err
	}
	rec, err := lexicons.FromCBOR(old.CBOR)
	if err != nil {
		return store.Effects{}, fmt.Errorf("read the stored declaration: %w", err)
	}
	view, err := lexicons.Decode[orgtangled.RepoDeclaration](rec)
	if err != nil {
		return store.Effects{}, fmt.Errorf("read the stored declaration: %w", err)
	}
	return in.repository(ctx, view.Repo, true)
}

// ticket keeps a proven pull request thread of a repository that is served here.
func (in *Ingest) ticket(ctx context.Context, r store.Recheck) (store.Effects, error) {
	proven, err := in.c.Prover.Record(ctx, r.DID, ticketNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		return store.Effects{}, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[orgtangled.TrackTicket](proven)
	if err != nil {
		return store.Effects{}, err
	}
	repo, ok, err := in.c.Store.Repo(ctx, view.Repo)
	if err != nil || !ok || repo.Gone {
		return store.Effects{}, err
	}
	return store.Effects{Records: []store.Record{record(r, proven, rec)}}, nil
}

// patch turns a proven round of a pull request into an event of the repository that its thread is about.
func (in *Ingest) patch(ctx context.Context, r store.Recheck) (store.Effects, error) {
	proven, err := in.c.Prover.Record(ctx, r.DID, patchNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		return store.Effects{}, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, patch, err := decode[orgtangled.ReviewPatch](proven)
	if err != nil {
		return store.Effects{}, err
	}
	if !commitName(patch.Head) || !commitName(patch.Base) {
		return store.Effects{}, fmt.Errorf("%w: base or head is not the full name of a commit", lexicons.ErrInvalid)
	}
	uri, err := lexicons.TicketURI(r.DID, patch.Ticket)
	if err != nil {
		return store.Effects{}, err
	}
	thread, err := in.c.Prover.Record(ctx, uri.Authority().String(), ticketNSID, uri.RecordKey().String())
	if err != nil {
		return store.Effects{}, fmt.Errorf("prove the thread of the pull request: %w", err)
	}
	_, ticket, err := decode[orgtangled.TrackTicket](thread)
	if err != nil {
		return store.Effects{}, err
	}
	repo, ok, err := in.c.Store.Repo(ctx, ticket.Repo)
	if err != nil || !ok || repo.Gone || ticket.Kind != "pull" {
		return store.Effects{}, err
	}
	// A stranger may not add rounds to another's pull request.
	if r.DID != uri.Authority().String() {
		g, err := in.c.Store.Gate(ctx)
		if err != nil {
			return store.Effects{}, err
		}
		if d := g.May(r.DID, rbac.Push, rbac.Repo{DID: repo.Repo, Owner: repo.Owner}); !d.Allowed {
			return store.Effects{}, fmt.Errorf("%w: the round is not by the author of the pull request", lexicons.ErrInvalid)
		}
	}
	pull := &pipeline.Pull{
		Ticket: uri.String(), Round: "at://" + r.DID + "/" + patchNSID + "/" + r.Rkey, RoundCID: proven.CID,
		SourceRepo: repo.Repo, TargetBranch: repo.DefaultBranch, Base: patch.Base, Head: patch.Head,
	}
	if patch.Source != nil && patch.Source.Repo != nil {
		pull.SourceRepo = *patch.Source.Repo
	}
	if patch.Source != nil && patch.Source.Branch != nil {
		pull.SourceBranch = *patch.Source.Branch
	}
	if ticket.TargetBranch != nil {
		pull.TargetBranch = *ticket.TargetBranch
	}
	if pull.Action, err = in.action(ctx, repo.Repo, pull); err != nil {
		return store.Effects{}, err
	}
	return store.Effects{
		Records: []store.Record{record(r, proven, rec)},
		Event: &pipeline.Trigger{
			Key:  "pull:" + pull.Round + ":" + pull.RoundCID,
			Kind: pipeline.PullRequest, Repo: repo.Repo, Actor: r.DID, ActorSource: pipeline.FromRecord,
			Commit: patch.Head, Pull: pull, At: in.c.Clock.Now(),
		},
	}, nil
}

// action is "opened" for the first round of a pull request and "synchronize" for those after it.
func (in *Ingest) action(ctx context.Context, repo string, pull *pipeline.Pull) (string, error) {
	ps, _, err := in.c.Store.Pipelines(ctx, store.Query{
		Repo: repo, Kinds: []pipeline.Kind{pipeline.PullRequest}, Limit: 250,
	})
	if err != nil {
		return "", err
	}
	for _, p := range ps {
		if o := p.Trigger.Pull; o != nil && o.Ticket == pull.Ticket && o.Round != pull.Round {
			return "synchronize", nil
		}
	}
	return "opened", nil
}

// decode reads a proven record. The raw bytes stay the truth; the view is for reading.
func decode[T any, P interface {
	*T
	cbg.CBORUnmarshaler
}](p identity.Proven) (lexicons.Record, *T, error) {
	rec, err := lexicons.FromCBOR(p.CBOR)
	if err != nil {
		return rec, nil, err
	}
	v, err := lexicons.Decode[T, P](rec)
	return rec, v, err
}

func record(r store.Recheck, p identity.Proven, rec lexicons.Record) store.Record {
	return store.Record{
		DID: r.DID, Collection: r.Collection, Rkey: r.Rkey, Rev: p.Rev, CID: p.CID, CBOR: rec.Bytes(),
	}
}
