package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/identity"
	"spindle/knot"
	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// ticket takes over where the thread of a pull request stands, if it is about a repository that is served here. A
// thread that is gone is closed.
func (in *Ingest) ticket(ctx context.Context, r store.Recheck) (store.Effects, error) {
	uri := "at://" + r.DID + "/" + ticketNSID + "/" + r.Rkey
	proven, err := in.c.Prover.Record(ctx, r.DID, ticketNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		return store.Effects{
			Records: gone(r, err), Pull: &store.PullChange{Ticket: uri, State: store.PullClosed},
		}, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[orgtangled.TrackTicket](in, proven)
	if err != nil {
		return store.Effects{}, err
	}
	old, known, err := in.c.Store.Pull(ctx, uri)
	if err != nil {
		return store.Effects{}, err
	}
	if known && old.Repo != view.Repo {
		in.c.Count("pull_moved")
		return store.Effects{}, errMoved
	}
	repo, ok, err := in.c.Store.Repo(ctx, view.Repo)
	if err != nil || !ok || repo.Gone {
		return store.Effects{}, err
	}
	e := store.Effects{Records: []store.Record{record(r, proven, rec)}}
	if view.Kind != "pull" {
		return e, nil
	}
	state, err := in.pullState(ctx, repo, r.DID, view, old)
	if err != nil {
		return store.Effects{}, err
	}
	e.Pull = &store.PullChange{Ticket: uri, Repo: repo.Repo, Author: r.DID, State: state}
	return e, nil
}

// errMoved is a thread that names another repository than it did: its rounds do not go along.
var errMoved = fmt.Errorf("%w: the thread was about another repository before, and a pull request does not move", lexicons.ErrInvalid)

// pullState is where a thread stands, as far as it is believed. Its author may close it and open it again. That it was
// merged is something that happened to the target: it counts when the author may push there, or when the target
// branch holds the proposed commit; otherwise the thread is closed.
func (in *Ingest) pullState(ctx context.Context, repo store.RepoBinding, author string, t *orgtangled.TrackTicket, old store.Pull) (string, error) {
	if t.State == nil {
		return store.PullOpen, nil
	}
	switch *t.State {
	case store.PullOpen, store.PullClosed:
		return *t.State, nil
	case store.PullMerged:
	default:
		return "", nil // a state of tomorrow changes nothing today
	}
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return "", err
	}
	if old.State == store.PullMerged || g.May(author, rbac.Push, rbac.Repo{DID: repo.Repo, Owner: repo.Owner}).Allowed {
		return store.PullMerged, nil
	}
	if old.Last == nil || old.Last.Trigger.Pull == nil {
		return store.PullClosed, nil
	}
	src, err := in.c.Knots.Locate(ctx, repo.Repo)
	if err != nil {
		return "", err
	}
	pull := old.Last.Trigger.Pull
	held, err := in.c.Knots.RefHolds(ctx, src, "refs/heads/"+pull.TargetBranch, pull.Head)
	if err != nil && knot.Temporary(err) {
		return "", fmt.Errorf("prove that %s was merged: %w", pull.Head, err)
	}
	if !held {
		in.c.Count("pull_not_merged")
		return store.PullClosed, nil
	}
	return store.PullMerged, nil
}

// patch turns a proven round of a pull request into an event of the repository that its thread is about. A round
// whose record is gone is withdrawn.
func (in *Ingest) patch(ctx context.Context, r store.Recheck) (store.Effects, error) {
	round := "at://" + r.DID + "/" + patchNSID + "/" + r.Rkey
	proven, err := in.c.Prover.Record(ctx, r.DID, patchNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		e := store.Effects{Records: gone(r, err)}
		ticket, known, err := in.c.Store.RoundTicket(ctx, round)
		if err != nil || !known {
			return e, err
		}
		e.Pull = &store.PullChange{Ticket: ticket, Dropped: round}
		return e, nil
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
	author := uri.Authority().String()
	thread, err := in.c.Prover.Record(ctx, author, ticketNSID, uri.RecordKey().String())
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
	old, known, err := in.c.Store.Pull(ctx, uri.String())
	if err != nil {
		return store.Effects{}, err
	}
	if known && old.Repo != repo.Repo {
		in.c.Count("pull_moved")
		return store.Effects{}, errMoved
	}
	if err := in.mayAddRound(ctx, r.DID, author, repo); err != nil {
		return store.Effects{}, err
	}
	pull, err := pullOf(repo, ticket, patch)
	if err != nil {
		return store.Effects{}, err
	}
	pull.Ticket, pull.Round, pull.RoundCID = uri.String(), round, proven.CID
	c := &store.PullChange{Ticket: uri.String(), Repo: repo.Repo, Author: author, Round: &store.Round{
		URI: round, CID: proven.CID, Place: r.Rkey, Trigger: pipeline.Trigger{
			Kind: pipeline.PullRequest, Repo: repo.Repo, Actor: r.DID, ActorSource: pipeline.FromRecord, Commit: patch.Head, Pull: pull,
		},
	}}
	if !known {
		// Later changes of the thread come with hints of their own, one after the other.
		if c.State, err = in.pullState(ctx, repo, author, ticket, old); err != nil {
			return store.Effects{}, err
		}
	}
	return store.Effects{Records: []store.Record{record(r, proven, rec)}, Pull: c}, nil
}

// mayAddRound refuses rounds that a stranger adds to another's pull request.
func (in *Ingest) mayAddRound(ctx context.Context, by, author string, repo store.RepoBinding) error {
	if by == author {
		return nil
	}
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return err
	}
	if d := g.May(by, rbac.Push, rbac.Repo{DID: repo.Repo, Owner: repo.Owner}); !d.Allowed {
		return fmt.Errorf("%w: the round is not by the author of the pull request", lexicons.ErrInvalid)
	}
	return nil
}

// pullOf is what a round proposes, with source and target apart.
func pullOf(repo store.RepoBinding, ticket *orgtangled.TrackTicket, patch *orgtangled.ReviewPatch) (*pipeline.Pull, error) {
	pull := &pipeline.Pull{SourceRepo: repo.Repo, TargetBranch: repo.DefaultBranch, Base: patch.Base, Head: patch.Head}
	if patch.Source != nil && patch.Source.Repo != nil {
		pull.SourceRepo = *patch.Source.Repo
	}
	if patch.Source != nil && patch.Source.Branch != nil {
		pull.SourceBranch = *patch.Source.Branch
	}
	if ticket.TargetBranch != nil {
		pull.TargetBranch = *ticket.TargetBranch
	}
	return pull, checkPull(pull)
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
