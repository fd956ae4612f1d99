package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"spindle/identity"
	"spindle/knot"
	"spindle/rbac"
	"spindle/store"
)

// maxProofTries is how often a record that cannot be reached is asked for; with the back-off below that is
// about three days.
const maxProofTries = 80

// Prove works through hints until ctx ends: each record is proven and its effects are committed together
// with the end of the hint. Hints of one DID are worked one at a time, so that one account's slow server
// takes one place and no more.
func (in *Ingest) Prove(ctx context.Context) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		busy = map[string]bool{}
	)
	defer wg.Wait()
	seats := make(chan struct{}, in.c.Provers)
	for ctx.Err() == nil {
		due, err := in.c.Store.DueRechecks(ctx, 4*in.c.Provers)
		if err != nil && ctx.Err() == nil {
			in.c.Log.Error("read hints", "err", err)
		}
		started := false
		for _, r := range due {
			mu.Lock()
			taken := busy[r.DID]
			busy[r.DID] = true
			mu.Unlock()
			if taken {
				continue
			}
			select {
			case seats <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			started = true
			wg.Go(func() {
				defer func() {
					mu.Lock()
					delete(busy, r.DID)
					mu.Unlock()
					<-seats
					in.wakeProvers()
				}()
				in.prove(ctx, r)
			})
		}
		if started {
			continue
		}
		idle, cancel := context.WithTimeout(ctx, time.Second)
		select {
		case <-in.wake:
		case <-idle.Done():
		}
		cancel()
	}
	return nil
}

func (in *Ingest) prove(ctx context.Context, r store.Recheck) {
	log := in.c.Log.With("did", r.DID, "collection", r.Collection, "rkey", r.Rkey)
	e, err := in.effects(ctx, r)
	if err == nil {
		e.Settled = &r
		_, err = in.c.Store.Accept(ctx, e)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrConflict):
			in.c.Count("trigger_conflict")
			log.Warn("the same trigger with another content is refused", "err", err)
			in.drop(ctx, r)
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	if !temporary(err) || r.Tries+1 >= maxProofTries {
		in.c.Count("record_refused")
		log.Warn("record has no effect", "err", err)
		in.drop(ctx, r)
		return
	}
	wait := min(time.Second<<min(r.Tries, 12), time.Hour)
	wait = wait/2 + rand.N(wait/2)
	if perr := in.c.Store.PostponeRecheck(ctx, r, err.Error(), in.c.Clock.Now().Add(wait)); perr != nil {
		log.Error("postpone a hint", "err", perr)
	}
	in.c.Count("record_postponed")
	log.Info("record cannot be proven yet", "again_in", wait, "err", err)
}

func (in *Ingest) drop(ctx context.Context, r store.Recheck) {
	if _, err := in.c.Store.Accept(ctx, store.Effects{Settled: &r}); err != nil && ctx.Err() == nil {
		in.c.Log.Error("end a hint", "did", r.DID, "collection", r.Collection, "err", err)
	}
}

// temporary tells whether asking again may help.
func temporary(err error) bool { return knot.Temporary(err) || identity.Temporary(err) }

// effects proves the record that r hints at and says what follows from it. Only what the signed state says
// now counts; what the stream said does not.
func (in *Ingest) effects(ctx context.Context, r store.Recheck) (store.Effects, error) {
	switch r.Collection {
	case declarationNSID:
		return in.declaration(ctx, r)
	case manifestNSID:
		return in.repository(ctx, r.DID, false)
	case collaboratorNSID:
		return in.repository(ctx, r.DID, true)
	case ticketNSID:
		return in.ticket(ctx, r)
	case patchNSID:
		return in.patch(ctx, r)
	}
	return store.Effects{}, fmt.Errorf("collection %q is not followed", r.Collection)
}

// repository binds repo anew and takes over its collaborators. With known it is left alone unless it is
// served here already.
func (in *Ingest) repository(ctx context.Context, repo string, known bool) (store.Effects, error) {
	old, served, err := in.c.Store.Repo(ctx, repo)
	if err != nil {
		return store.Effects{}, err
	}
	served = served && !old.Gone
	if known && !served {
		return store.Effects{}, nil
	}
	b, err := in.c.Knots.Bind(ctx, repo)
	switch {
	case err != nil && temporary(err):
		return store.Effects{}, err
	case err != nil && served:
		// The binding that the repository was served under is no longer proven.
		old.Gone = true
		return store.Effects{Repos: []store.RepoBinding{old}}, nil
	case err != nil:
		return store.Effects{}, err
	case !in.ours(b.Spindle):
		if !served {
			return store.Effects{}, nil
		}
		old.Gone = true
		return store.Effects{Repos: []store.RepoBinding{old}}, nil
	}
	people, err := in.c.Knots.Collaborators(ctx, repo)
	if err != nil {
		return store.Effects{}, err
	}
	if people == nil {
		people = []string{}
	}
	return store.Effects{
		Repos:                []store.RepoBinding{binding(b, in.c.Clock.Now())},
		ReplaceCollaborators: map[string][]string{repo: people},
	}, nil
}

func binding(b knot.Binding, now time.Time) store.RepoBinding {
	return store.RepoBinding{
		Repo: b.Repo, Owner: b.Owner, Rkey: b.Rkey, Name: b.Name, Knot: b.Knot,
		DefaultBranch: b.DefaultBranch, Spindle: b.Spindle,
		ManifestCID: b.ManifestCID, DeclarationCID: b.DeclarationCID, VerifiedAt: now,
	}
}

// admitted tells whether owner's repositories are served here at all; nothing of others is fetched.
func (in *Ingest) admitted(ctx context.Context, repo, owner string) (bool, error) {
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return false, err
	}
	return g.Admit(rbac.Repo{DID: repo, Owner: owner}).Allowed, nil
}
