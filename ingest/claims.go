package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"spindle/identity"
	"spindle/knot"
	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/store"
)

// maxEdits bounds how many refs one signed push may move and still start something: what is above is no push that
// anybody waits for.
const maxEdits = 64

// claim proves a push that a knot's stream told of. The host must be the one that the repository's DID document names
// now. A signed push is the repository's own word; of an unsigned one only what the knot hands out counts: that the
// ref holds the commit.
func (in *Ingest) claim(ctx context.Context, r store.Recheck) (store.Effects, error) {
	var c claim
	if err := json.Unmarshal([]byte(r.Body), &c); err != nil {
		return store.Effects{}, fmt.Errorf("%w: a stored push: %w", lexicons.ErrMalformed, err)
	}
	repo, err := in.serve(ctx, r.DID)
	if errors.Is(err, ErrNotServed) {
		return store.Effects{}, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	if err := in.admit(ctx, repo); err != nil {
		return store.Effects{}, err
	}
	src, err := in.c.Knots.Locate(ctx, repo.Repo)
	if err != nil {
		return store.Effects{}, err
	}
	if u, err := url.Parse(src.KnotURL); err != nil || u.Host != c.Host {
		in.c.Count("knot_not_its_host")
		return store.Effects{}, fmt.Errorf("%w: a push of %s told by %s, which is not its knot", lexicons.ErrInvalid, repo.Repo, c.Host)
	}
	if r.Collection == pushEventNSID {
		return in.signedPush(ctx, repo, c)
	}
	return in.unsignedPush(ctx, repo, src, c)
}

func (in *Ingest) unsignedPush(ctx context.Context, repo store.RepoBinding, src knot.Source, c claim) (store.Effects, error) {
	holds, err := false, error(nil)
	if zero(c.New) {
		// A ref that is gone is what the knot has no more.
		_, err = in.c.Knots.RefHolds(ctx, src, c.Ref, c.Old)
		holds = errors.Is(err, knot.ErrRefGone)
	} else {
		holds, err = in.c.Knots.RefHolds(ctx, src, c.Ref, c.New)
	}
	if err != nil && temporary(err) {
		return store.Effects{}, fmt.Errorf("prove a push to %s: %w", c.Ref, err)
	}
	if !holds {
		in.c.Count("knot_unproven_push")
		in.c.Log.Info("a push that the knot cannot show has no effect", "repo", repo.Repo, "ref", c.Ref, "commit", c.New)
		return store.Effects{}, nil
	}
	t := pushTrigger(repo, PushCall{Ref: c.Ref, Old: c.Old, New: c.New, Actor: c.Actor}, pipeline.FromClaim, in.pushTime(c.At))
	return store.Effects{Event: &t}, nil
}

func (in *Ingest) signedPush(ctx context.Context, repo store.RepoBinding, c claim) (store.Effects, error) {
	signed, sig, err := lexicons.Unsigned(c.Raw)
	if err != nil {
		return store.Effects{}, err
	}
	if err := in.c.Signatures.VerifySignature(ctx, repo.Repo, signed, sig); err != nil {
		if errors.Is(err, identity.ErrSignature) {
			in.c.Count("knot_wrong_signature")
		}
		return store.Effects{}, err
	}
	var e orgtangled.GitPushEvent
	if err := e.UnmarshalCBOR(bytes.NewReader(c.Raw)); err != nil {
		return store.Effects{}, fmt.Errorf("%w: %w", lexicons.ErrMalformed, err)
	}
	if e.Repo != repo.Repo || len(e.Edits) == 0 || len(e.Edits) > maxEdits {
		return store.Effects{}, fmt.Errorf("%w: a push of %q with %d edits", lexicons.ErrInvalid, e.Repo, len(e.Edits))
	}
	var triggers []pipeline.Trigger
	for _, edit := range e.Edits {
		call := PushCall{Ref: edit.Name, Old: edit.Old, New: edit.New, Actor: e.Pusher, Options: e.Options}
		if err := checkPush(call); err != nil {
			return store.Effects{}, fmt.Errorf("%w: %w", lexicons.ErrInvalid, err)
		}
		triggers = append(triggers, pushTrigger(repo, call, pipeline.FromStream, in.pushTime(c.At)))
	}
	// Each has a key of its own, so that a kill between two of them repeats nothing. The last one ends the hint.
	last := len(triggers) - 1
	for i := range triggers[:last] {
		if _, err := in.c.Store.Accept(ctx, store.Effects{Event: &triggers[i]}); err != nil {
			return store.Effects{}, fmt.Errorf("accept a push to %s: %w", triggers[i].Ref, err)
		}
	}
	return store.Effects{Event: &triggers[last]}, nil
}

// pushTime is when a push happened, as its stream says; what cannot be is now.
func (in *Ingest) pushTime(at time.Time) time.Time {
	if now := in.c.Clock.Now(); at.IsZero() || at.After(now) {
		return now
	}
	return at
}

// pushTrigger is the one trigger of a push, by whichever way it was told.
func pushTrigger(repo store.RepoBinding, c PushCall, source pipeline.Source, at time.Time) pipeline.Trigger {
	actor := c.Actor
	if actor == "" {
		// A knot that does not say who pushed let somebody push who may; the owner stands for them.
		actor = repo.Owner
	}
	return pipeline.Trigger{
		Key:  strings.Join([]string{"push", repo.Repo, c.Ref, c.Old, c.New}, ":"),
		Kind: pipeline.Push, Repo: repo.Repo, Actor: actor, ActorSource: source,
		Ref: c.Ref, Commit: c.New, Old: c.Old, Options: c.Options, At: at,
	}
}
