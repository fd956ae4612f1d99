package ingest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/identity"
	"spindle/lexicons"
	"spindle/pipeline"
	"spindle/store"
)

// AccountCollections lists what is read of an account at its PDS: all but what a repository says of itself.
func AccountCollections() []string {
	var out []string
	for _, c := range Collections() {
		if c != manifestNSID && c != collaboratorNSID {
			out = append(out, c)
		}
	}
	return out
}

// Binding names the record by which a repository is bound anew.
func Binding() store.RecordKey { return store.RecordKey{Collection: manifestNSID, Rkey: "self"} }

// Replay works the records of one account that keys name as if they were hinted at, and commits what follows from
// all of them together with step. Their proofs may travel with ctx (identity.WithRepo, identity.WithProofs). Triggers
// are marked late, and left out when their record is older than since or than the first look at their repository. A
// record that cannot be judged now is left as a hint, so that one slow server does not hold up the rest.
func (in *Ingest) Replay(ctx context.Context, step store.BackfillStep, keys []store.RecordKey, since time.Time) error {
	var all []store.Effects
	for _, k := range keys {
		e, err := in.replay(ctx, store.Recheck{DID: step.DID, Collection: k.Collection, Rkey: k.Rkey}, since)
		if err != nil {
			return err
		}
		kept := false
		for _, r := range e.Records {
			kept = kept || r.DID == step.DID && r.Collection == k.Collection && r.Rkey == k.Rkey
		}
		if !kept && !proves(e, k) {
			step.Present = append(step.Present, k)
		}
		all = append(all, e)
	}
	conflicts, err := in.c.Store.ApplyBackfill(ctx, step, all)
	if err != nil {
		return err
	}
	for range conflicts {
		in.c.Count("trigger_conflict")
	}
	in.wakeProvers()
	return nil
}

// proves tells whether e leaves k to be proven later: then nothing is known of it now.
func proves(e store.Effects, k store.RecordKey) bool {
	for _, r := range e.Rechecks {
		if r.Collection == k.Collection && r.Rkey == k.Rkey {
			return true
		}
	}
	return false
}

// replay is what follows from one record.
func (in *Ingest) replay(ctx context.Context, r store.Recheck, since time.Time) (store.Effects, error) {
	e, err := in.effects(ctx, r)
	switch {
	case ctx.Err() != nil:
		return store.Effects{}, ctx.Err()
	case err != nil && temporary(err) && (!trigger(r) || in.young(ctx, r, since)):
		in.c.Count("record_postponed")
		r.Reason = err.Error()
		return store.Effects{Rechecks: []store.Recheck{r}}, nil
	case err != nil:
		in.c.Count("record_refused")
		in.c.Log.Debug("record has no effect", "did", r.DID, "collection", r.Collection, "rkey", r.Rkey, "err", err)
		return store.Effects{}, nil
	}
	repo := ""
	switch {
	case e.Event != nil:
		repo = e.Event.Repo
	case e.Pull != nil && e.Pull.Round != nil:
		repo = e.Pull.Repo
	default:
		return e, nil
	}
	first, err := in.c.Store.Sighted(ctx, repo)
	if err != nil {
		return store.Effects{}, err
	}
	if first.After(since) {
		since = first
	}
	if first.IsZero() || !in.young(ctx, r, since) {
		in.c.Count("trigger_too_old")
		e.Event = nil
		if e.Pull != nil && e.Pull.Round != nil {
			e.Pull.Round.Quiet = true // it is known from now on, and starts nothing
		}
		return e, nil
	}
	if e.Event != nil {
		t := *e.Event
		t.Late = true
		e.Event = &t
	}
	if e.Pull != nil && e.Pull.Round != nil {
		e.Pull.Round.Trigger.Late = true
	}
	return e, nil
}

// trigger tells whether a record may start something.
func trigger(r store.Recheck) bool {
	return strings.HasSuffix(r.Collection, ".patch") || strings.HasSuffix(r.Collection, ".pull")
}

// young tells whether a record says of itself that it is at most as old as since. Its author could say anything, and
// gains no more by it than by writing it now.
func (in *Ingest) young(ctx context.Context, r store.Recheck, since time.Time) bool {
	at := time.Time{}
	if id, err := syntax.ParseTID(r.Rkey); err == nil {
		at = id.Time()
	}
	if p, ok, err := identity.Held(ctx, r.DID, r.Collection, r.Rkey); ok && err == nil {
		if rec, err := lexicons.FromCBOR(p.CBOR); err == nil {
			if d, err := rec.Data(); err == nil {
				if s, ok := d["createdAt"].(string); ok {
					if t, err := syntax.ParseDatetimeLenient(s); err == nil {
						at = t.Time()
					}
				}
			}
		}
	}
	return !at.Before(since)
}

// Found takes the move of a ref of a repository that is served here, which a look at its knot found and nobody told
// of. It has the key that the push would have had, and nothing comes of it when the ref is no longer believed to be
// where expect says ("" is nowhere), or when the push was told after all. taken tells whether something did.
func (in *Ingest) Found(ctx context.Context, repo, ref, old, commit, expect string) (taken bool, err error) {
	if err := checkPush(PushCall{Repo: repo, Ref: ref, Old: old, New: commit}); err != nil {
		in.c.Count("late_push_malformed")
		return false, nil // a name that no push could have either
	}
	b, err := in.serve(ctx, repo)
	if err == nil {
		err = in.admit(ctx, b)
	}
	var refused *Refusal
	if errors.As(err, &refused) {
		in.c.Count("late_push_refused")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Who pushed, and with what options, only the notice would have said. The owner stands for them.
	t := pipeline.Trigger{
		Key:  strings.Join([]string{"push", repo, ref, old, commit}, ":"),
		Kind: pipeline.Push, Repo: repo, Actor: b.Owner, ActorSource: pipeline.FromKnot,
		Ref: ref, Commit: commit, Old: old, At: in.c.Clock.Now(), Late: true,
	}
	a, err := in.c.Store.Accept(ctx, store.Effects{Event: &t, Move: &store.RefMove{Expect: expect}})
	return err == nil && !a.Duplicate && !a.Overtaken, err
}
