package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/identity"
	"spindle/knot"
	"spindle/lexicons"
	"spindle/lexicons/shtangled"
	"spindle/pipeline"
	"spindle/store"
)

// olderPullNSID is a pull request of the older generation: thread and newest round in one record.
const olderPullNSID = "sh.tangled.repo.pull"

const (
	// headsAtOnce is how many knots are asked at a time where a branch of a pull request is. Strangers choose these
	// knots, so that a slow one must not hold the workers that prove everybody else's records.
	headsAtOnce = 2
	// headPatience bounds one such question, headTurn is the wait for a place to ask.
	headPatience = 15 * time.Second
	headTurn     = 500 * time.Millisecond
)

// olderPull turns a proven record of the older generation into a round of a pull request: the record is both the
// thread and its newest round. An edited record is a new round if it proposes something else than before, and a
// record that is gone is withdrawn.
func (in *Ingest) olderPull(ctx context.Context, r store.Recheck) (store.Effects, error) {
	uri := "at://" + r.DID + "/" + olderPullNSID + "/" + r.Rkey
	proven, err := in.c.Prover.Record(ctx, r.DID, olderPullNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		return store.Effects{Records: gone(r, err), Pull: &store.PullChange{Ticket: uri, Dropped: uri}}, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[shtangled.RepoPull](in, proven)
	if err != nil {
		return store.Effects{}, err
	}
	repo, ok, err := in.olderTarget(ctx, view.Target.Repo)
	if err != nil || !ok {
		return store.Effects{}, err
	}
	old, known, err := in.c.Store.Pull(ctx, uri)
	if err != nil {
		return store.Effects{}, err
	}
	if known && old.Repo != repo.Repo {
		in.c.Count("pull_moved")
		return store.Effects{}, errMoved
	}
	pull, err := in.olderProposal(ctx, repo, view)
	if err != nil {
		return store.Effects{}, err
	}
	pull.Ticket, pull.Round, pull.RoundCID = uri, uri, proven.CID
	return store.Effects{
		Records: []store.Record{record(r, proven, rec)},
		Pull: &store.PullChange{Ticket: uri, Repo: repo.Repo, Author: r.DID, Round: &store.Round{
			URI: uri, CID: proven.CID, Place: r.Rkey, Quiet: sameProposal(old.Last, pull), Trigger: pipeline.Trigger{
				Kind: pipeline.PullRequest, Repo: repo.Repo, Actor: r.DID, ActorSource: pipeline.FromRecord, Commit: pull.Head, Pull: pull,
			},
		}},
	}, nil
}

// sameProposal tells whether a round proposes what the one before it did: then only its words were edited.
func sameProposal(last *store.Round, p *pipeline.Pull) bool {
	if last == nil || last.Trigger.Pull == nil {
		return false
	}
	l := last.Trigger.Pull
	return l.Head == p.Head && l.SourceRepo == p.SourceRepo && l.SourceBranch == p.SourceBranch && l.TargetBranch == p.TargetBranch
}

// olderTarget is the repository that is served here under a name of the older generation: its DID, or the at-uri of
// its owner's record. Only the owner that is bound to a repository can name it.
func (in *Ingest) olderTarget(ctx context.Context, name string) (store.RepoBinding, bool, error) {
	if _, err := syntax.ParseDID(name); err == nil {
		b, ok, err := in.c.Store.Repo(ctx, name)
		return b, ok && !b.Gone, err
	}
	owner, rkey, err := olderName(name)
	if err != nil {
		return store.RepoBinding{}, false, err
	}
	served, err := in.c.Store.Repos(ctx)
	if err != nil {
		return store.RepoBinding{}, false, err
	}
	owns := false
	for _, b := range served {
		if b.Owner != owner || b.Gone {
			continue
		}
		owns = true
		if b.Rkey == rkey {
			return b, true, nil
		}
	}
	if !owns {
		return store.RepoBinding{}, false, nil // nobody of concern here, so nothing is fetched
	}
	did, err := in.olderDID(ctx, owner, rkey)
	if err != nil {
		return store.RepoBinding{}, false, err
	}
	b, ok, err := in.c.Store.Repo(ctx, did)
	return b, ok && !b.Gone && b.Owner == owner, err
}

// olderName takes the at-uri of a record of a repository apart.
func olderName(name string) (owner, rkey string, err error) {
	uri, err := syntax.ParseATURI(name)
	if err != nil || !uri.Authority().IsDID() || uri.Collection() != olderRepoNSID || uri.RecordKey() == "" {
		return "", "", fmt.Errorf("%w: a repository is named by its DID or by the at-uri of its %s record", lexicons.ErrInvalid, olderRepoNSID)
	}
	return uri.Authority().String(), uri.RecordKey().String(), nil
}

// olderDID is the DID that a record of a repository says the repository has.
func (in *Ingest) olderDID(ctx context.Context, owner, rkey string) (string, error) {
	proven, err := in.c.Prover.Record(ctx, owner, olderRepoNSID, rkey)
	if err != nil {
		return "", fmt.Errorf("prove the repository that the pull request names: %w", err)
	}
	_, view, err := decode[shtangled.Repo](in, proven)
	if err != nil {
		return "", err
	}
	if view.RepoDid == nil {
		return "", fmt.Errorf("%w: the repository %q has no DID; its knot must give it one before a pull request can name it", lexicons.ErrInvalid, view.Name)
	}
	if _, err := syntax.ParseDID(*view.RepoDid); err != nil {
		return "", fmt.Errorf("%w: the repository %q has a DID that is none", lexicons.ErrInvalid, view.Name)
	}
	return *view.RepoDid, nil
}

// errBare is a pull request without any commit: a patch alone is text that no repository holds.
var errBare = fmt.Errorf("%w: the pull request carries a patch and names no branch, so there is no commit to run; "+
	"its author can push the change to a branch or a fork and propose that", lexicons.ErrInvalid)

// olderProposal is what a record proposes, with source and target apart. A record of before the object name was written
// down names a branch only; then where that branch is now is asked of the source's own knot.
func (in *Ingest) olderProposal(ctx context.Context, repo store.RepoBinding, v *shtangled.RepoPull) (*pipeline.Pull, error) {
	if v.Source == nil {
		in.c.Count("pull_without_commit")
		return nil, errBare
	}
	p := &pipeline.Pull{SourceRepo: repo.Repo, SourceBranch: v.Source.Branch, TargetBranch: v.Target.Branch}
	if v.Source.Repo != nil {
		p.SourceRepo = *v.Source.Repo
		if _, err := syntax.ParseDID(p.SourceRepo); err != nil {
			owner, rkey, err := olderName(p.SourceRepo)
			if err != nil {
				return nil, err
			}
			if p.SourceRepo, err = in.olderDID(ctx, owner, rkey); err != nil {
				return nil, err
			}
		}
	}
	if err := checkPull(p); err != nil {
		return nil, err
	}
	if v.Source.Sha != nil {
		if !commitName(*v.Source.Sha) || zero(*v.Source.Sha) {
			return nil, fmt.Errorf("%w: the head is not the full name of a commit", lexicons.ErrInvalid)
		}
		p.Head = *v.Source.Sha
		return p, nil
	}
	if p.SourceBranch == "" {
		in.c.Count("pull_without_commit")
		return nil, errBare
	}
	var err error
	p.Head, err = in.branchHead(ctx, p.SourceRepo, p.SourceBranch)
	return p, err
}

// branchHead asks a repository's own knot where a branch is.
func (in *Ingest) branchHead(ctx context.Context, repo, branch string) (string, error) {
	select {
	case in.heads <- struct{}{}:
		defer func() { <-in.heads }()
	default:
		return "", &identity.HostBusyError{Host: "the knot of " + repo, Wait: headTurn}
	}
	ctx, cancel := context.WithTimeout(ctx, headPatience)
	defer cancel()
	src, err := in.c.Knots.Locate(ctx, repo)
	if err != nil {
		return "", fmt.Errorf("find the knot of the pull request's source: %w", err)
	}
	head, err := in.c.Knots.ResolveRef(ctx, src, "refs/heads/"+branch)
	if errors.Is(err, knot.ErrRefGone) {
		in.c.Count("pull_without_commit")
		return "", fmt.Errorf("%w: the source has no branch %q, so there is no commit to run", lexicons.ErrInvalid, branch)
	}
	if err != nil {
		return "", fmt.Errorf("ask where the pull request's branch is: %w", err)
	}
	return head, nil
}
