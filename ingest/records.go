package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bluesky-social/indigo/atproto/syntax"
	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/identity"
	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// declaration follows an owner's declaration to the repositories that it names, or named until now: each gets
// a hint of its own, so that all that binds one repository happens one after the other.
func (in *Ingest) declaration(ctx context.Context, r store.Recheck) (store.Effects, error) {
	served, err := in.c.Store.Repos(ctx)
	if err != nil {
		return store.Effects{}, err
	}
	var e store.Effects
	for _, b := range served {
		if b.Owner == r.DID && b.Rkey == r.Rkey && !b.Gone {
			e.Rechecks = append(e.Rechecks, bindAgain(b.Repo))
		}
	}
	if ok, err := in.admitted(ctx, r.DID); err != nil || !ok {
		return e, err
	}
	proven, err := in.c.Prover.Record(ctx, r.DID, declarationNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		return e, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[orgtangled.RepoDeclaration](in, proven)
	if err != nil {
		return store.Effects{}, err
	}
	e.Records = append(e.Records, record(r, proven, rec))
	if again := bindAgain(view.Repo); !slices.Contains(e.Rechecks, again) {
		e.Rechecks = append(e.Rechecks, again)
	}
	return e, nil
}

// bindAgain is the hint that a repository's binding may have changed.
func bindAgain(repo string) store.Recheck {
	return store.Recheck{DID: repo, Collection: manifestNSID, Rkey: "self"}
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
	rec, view, err := decode[orgtangled.TrackTicket](in, proven)
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
	rec, patch, err := decode[orgtangled.ReviewPatch](in, proven)
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
	_, ticket, err := decode[orgtangled.TrackTicket](in, thread)
	if err != nil {
		return store.Effects{}, err
	}
	repo, ok, err := in.c.Store.Repo(ctx, ticket.Repo)
	if err != nil || !ok || repo.Gone || ticket.Kind != "pull" {
		return store.Effects{}, err
	}
	key := "pull:at://" + r.DID + "/" + patchNSID + "/" + r.Rkey + ":" + proven.CID
	if _, known, err := in.c.Store.EventByKey(ctx, key); err != nil || known {
		// A stream tells things twice. What the event meant was decided when it was told first.
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
	if err := checkPull(pull); err != nil {
		return store.Effects{}, err
	}
	if pull.Action, err = in.action(ctx, repo.Repo, pull); err != nil {
		return store.Effects{}, err
	}
	return store.Effects{
		Records: []store.Record{record(r, proven, rec)},
		Event: &pipeline.Trigger{
			Key: key, Kind: pipeline.PullRequest, Repo: repo.Repo, Actor: r.DID, ActorSource: pipeline.FromRecord,
			Commit: patch.Head, Pull: pull, At: in.c.Clock.Now(),
		},
	}, nil
}

// checkPull refuses what is not the name of a repository or of a branch: these words of a stranger go on into
// conditions, environments and pages.
func checkPull(p *pipeline.Pull) error {
	if _, err := syntax.ParseDID(p.SourceRepo); err != nil {
		return fmt.Errorf("%w: the source of the pull request is not the DID of a repository", lexicons.ErrInvalid)
	}
	for _, branch := range []string{p.SourceBranch, p.TargetBranch} {
		if branch != "" && checkRef("refs/heads/"+branch) != nil {
			return fmt.Errorf("%w: the pull request names a branch that git would not take", lexicons.ErrInvalid)
		}
	}
	return nil
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

// decode reads a proven record and checks it against its lexicon. The raw bytes stay the truth; the view is
// for reading.
func decode[T any, P interface {
	*T
	cbg.CBORUnmarshaler
}](in *Ingest, p identity.Proven) (lexicons.Record, *T, error) {
	rec, err := lexicons.FromCBOR(p.CBOR)
	if err != nil {
		return rec, nil, err
	}
	catalog, err := in.catalog()
	if err != nil {
		return rec, nil, fmt.Errorf("read our own lexicons: %w", err)
	}
	if err := rec.Validate(catalog); err != nil {
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
