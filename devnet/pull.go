package devnet

import (
	"context"
	"fmt"

	"spindle/devnet/pds"
)

// The records of a pull request, in its author's record repository.
const (
	Ticket = "org.tangled.track.ticket"
	Patch  = "org.tangled.review.patch"
)

// PullOptions says what OpenPull proposes.
type PullOptions struct {
	// Title is one line. Empty means "a change".
	Title string
	// Branch is the source branch. Empty means the default branch of the source.
	Branch string
	// Target is the branch that the change is meant for. Empty means the default branch of the target.
	Target string
}

// Pull is a pull request.
type Pull struct {
	Author     *Account
	Target     *Repo
	Source     *Repo
	TicketRkey string
	Ticket     string // at-uri
	Rounds     []Round

	opts PullOptions
}

// Round is one submission.
type Round struct {
	Rkey       string
	URI        string // at-uri of the patch record
	Base, Head string // commits
}

// OpenPull proposes what is at the source's branch now. Source may be the target itself.
func (n *Net) OpenPull(ctx context.Context, author *Account, target, source *Repo, opts PullOptions) (*Pull, error) {
	if opts.Title == "" {
		opts.Title = "a change"
	}
	if opts.Branch == "" {
		opts.Branch = source.Git.DefaultBranch
	}
	if opts.Target == "" {
		opts.Target = target.Git.DefaultBranch
	}
	p := &Pull{Author: author, Target: target, Source: source, opts: opts}
	if err := p.write("open"); err != nil {
		return nil, err
	}
	_, err := p.Resubmit(ctx)
	return p, err
}

// write puts the ticket with the given state.
func (p *Pull) write(state string) error {
	ticket := map[string]any{
		"repo": p.Target.DID.String(), "title": p.opts.Title, "kind": "pull", "targetBranch": p.opts.Target,
		"state": state, "createdAt": pds.Datetime(p.Target.net.cfg.Clock),
	}
	if p.TicketRkey == "" {
		p.TicketRkey = p.Target.net.tids.Next()
		p.Ticket = "at://" + p.Author.DID.String() + "/" + Ticket + "/" + p.TicketRkey
	}
	_, _, err := p.Author.Put(Ticket, p.TicketRkey, ticket, "")
	return err
}

// SetState writes the ticket again as open, closed or merged.
func (p *Pull) SetState(state string) error { return p.write(state) }

// Resubmit adds a round with what is at the source's branch now.
func (p *Pull) Resubmit(ctx context.Context) (Round, error) {
	head, err := p.Source.Head(ctx, p.opts.Branch)
	if err != nil {
		return Round{}, fmt.Errorf("find the head of %s: %w", p.opts.Branch, err)
	}
	base, err := p.Target.Head(ctx, p.opts.Target)
	if err != nil {
		return Round{}, fmt.Errorf("find the head of %s: %w", p.opts.Target, err)
	}
	// Histories that never met have no merge base; then the target's head must do.
	if merge, err := p.Source.host().MergeBase(ctx, p.Source.Git, head, p.Target.Git, base); err == nil {
		base = merge
	}
	patch := map[string]any{
		"ticket": p.Ticket, "base": base, "head": head, "createdAt": pds.Datetime(p.Target.net.cfg.Clock),
		"source": map[string]any{"repo": p.Source.DID.String(), "branch": p.opts.Branch},
	}
	rkey := p.Target.net.tids.Next()
	if _, _, err := p.Author.Put(Patch, rkey, patch, ""); err != nil {
		return Round{}, err
	}
	r := Round{Rkey: rkey, URI: "at://" + p.Author.DID.String() + "/" + Patch + "/" + rkey, Base: base, Head: head}
	p.Rounds = append(p.Rounds, r)
	return r, nil
}
