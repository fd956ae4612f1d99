package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"spindle/identity"
	"spindle/knot"
	"spindle/lexicons"
	"spindle/rbac"
	"spindle/store"
)

// maxProofTries is how often a record that cannot be reached is asked for; with the back-off below that is
// about three days.
const maxProofTries = 80

// mostHints is how far the list of due hints is read to find one of an account that is not being worked on.
const mostHints = 1 << 16

// Prove works through hints until ctx ends: each record is proven and its effects are committed together
// with the end of the hint. Hints of one DID are worked one at a time, so that one account's slow server
// takes one place and no more, however many hints of it are waiting.
func (in *Ingest) Prove(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	// Who is on the allow-list by a record is few, and no stream is needed to know it.
	if err := in.askMembers(ctx); err != nil && ctx.Err() == nil {
		in.c.Log.Error("have the members read anew", "err", err)
	}
	busy := newBusy()
	seats := make(chan struct{}, in.c.Provers)
	look := 4 * in.c.Provers
	for ctx.Err() == nil {
		// Who was busy before the list was read is left out: his hint on it may be settled by now.
		taken := busy.list()
		in.away.mark(taken, in.c.Clock.Now())
		due, err := in.c.Store.DueRechecks(ctx, look)
		if err != nil && ctx.Err() == nil {
			in.c.Log.Error("read hints", "err", err)
		}
		started := false
		for _, r := range due {
			if taken[r.DID] {
				continue
			}
			taken[r.DID] = true
			select {
			case seats <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			started = true
			busy.add(r.DID)
			wg.Go(func() {
				defer func() {
					busy.remove(r.DID)
					<-seats
					in.wakeProvers()
				}()
				in.prove(ctx, r)
			})
		}
		switch {
		case started:
			// What stood in front still does.
			look = max(4*in.c.Provers, look/2)
			continue
		case len(due) == look && look < mostHints:
			look *= 4 // all of these are of accounts that are being worked on; others may stand behind them
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

// longRest is how long a host may ask to be left alone before that is written down rather than remembered.
const longRest = time.Minute

// away is the set of accounts whose host has no place for them now, with the time to come again.
type away struct {
	mu sync.Mutex
	m  map[string]time.Time
}

func (a *away) add(did string, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m == nil {
		a.m = map[string]time.Time{}
	}
	a.m[did] = until
}

// mark adds who is away at now to taken, and forgets the others.
func (a *away) mark(taken map[string]bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for did, until := range a.m {
		if until.After(now) {
			taken[did] = true
		} else {
			delete(a.m, did)
		}
	}
}

// busy is the set of accounts that are being worked on.
type busy struct {
	mu   sync.Mutex
	dids map[string]bool
}

func newBusy() *busy { return &busy{dids: map[string]bool{}} }

func (b *busy) list() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.dids)
}

func (b *busy) add(did string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dids[did] = true
}

func (b *busy) remove(did string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.dids, did)
}

func (in *Ingest) prove(ctx context.Context, r store.Recheck) {
	log := in.c.Log.With("did", r.DID, "collection", r.Collection, "rkey", r.Rkey)
	visit, leave := identity.Visit(ctx)
	e, err := in.effects(visit, r)
	leave()
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
	var busyHost *identity.HostBusyError
	if errors.As(err, &busyHost) && busyHost.Wait < longRest {
		// Not a failure, and nothing was asked: the account gives its place to others until it is its turn.
		in.away.add(r.DID, in.c.Clock.Now().Add(busyHost.Wait))
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
	if busyHost != nil {
		wait = max(wait, busyHost.Wait)
	}
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

// temporary tells whether asking again may help. What a record says does not get better by asking again.
func temporary(err error) bool {
	var refused *Refusal
	if errors.As(err, &refused) {
		return false
	}
	for _, decided := range []error{
		lexicons.ErrInvalid, lexicons.ErrMalformed, lexicons.ErrWrongType, lexicons.ErrNoType, lexicons.ErrNotCanonical,
		lexicons.ErrTooBig, lexicons.ErrTooDeep, lexicons.ErrUnknownMember, store.ErrTooLarge, store.ErrConflict,
	} {
		if errors.Is(err, decided) {
			return false
		}
	}
	return knot.Temporary(err) || identity.Temporary(err)
}

// effects proves the record that r hints at and says what follows from it. Only what the signed state says
// now counts; what the stream said does not.
func (in *Ingest) effects(ctx context.Context, r store.Recheck) (store.Effects, error) {
	if r.Collection != accountHint && r.Collection != manifestNSID {
		g, err := in.c.Store.Gate(ctx)
		if err != nil {
			return store.Effects{}, err
		}
		if _, inactive := g.Inactive(r.DID); inactive {
			return store.Effects{}, nil // its records have no new effect; what matters is read when it is back
		}
	}
	switch r.Collection {
	case accountHint:
		return in.account(ctx, r.DID)
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
	case olderRepoNSID:
		return in.olderRepo(ctx, r)
	case olderCollaboratorNSID:
		return in.olderCollaborators(ctx, r.DID)
	case olderPullNSID:
		return in.olderPull(ctx, r)
	case memberNSID:
		return in.member(ctx, r)
	case membersHint:
		return in.members(ctx, r.DID)
	case syncHint:
		return in.resync(ctx, r.DID)
	case pushEventNSID, refUpdateNSID, pipelineNSID:
		return in.claim(ctx, r)
	}
	return store.Effects{}, fmt.Errorf("collection %q is not followed", r.Collection)
}

// repository binds repo anew and takes over its collaborators. With known it is left alone unless it is
// served here already. A repository that chose this server and whose owner is not served is a *Refusal.
func (in *Ingest) repository(ctx context.Context, repo string, known bool) (store.Effects, error) {
	old, served, err := in.c.Store.Repo(ctx, repo)
	if err != nil {
		return store.Effects{}, err
	}
	served = served && !old.Gone
	if known && !served {
		return store.Effects{}, nil
	}
	// The binding is as old as its oldest proof: of two that were read at a time, the one begun later counts.
	began := in.c.Clock.Now()
	b, err := in.c.Knots.Bind(ctx, repo)
	switch {
	case err != nil && (temporary(err) || !served):
		return store.Effects{}, err
	case err != nil || served && !b.Chooses(in.c.Hostname):
		// The binding that the repository was served under is no longer proven, or it left.
		old.VerifiedAt = began
		return lost(old, err), nil
	case !b.Chooses(in.c.Hostname):
		return store.Effects{}, nil
	}
	bound := binding(b, began)
	if !served {
		if err := in.admit(ctx, bound); err != nil {
			return store.Effects{}, err
		}
	}
	people, err := in.c.Knots.Collaborators(ctx, repo)
	if err != nil {
		return store.Effects{}, err
	}
	also, err := in.alsoCollaborators(ctx, bound)
	if err != nil {
		return store.Effects{}, err
	}
	people = append(append([]string{}, people...), also...)
	e := store.Effects{
		Repos:                []store.RepoBinding{bound},
		ReplaceCollaborators: map[string][]string{repo: people},
	}
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return store.Effects{}, err
	}
	if _, was := g.Inactive(repo); was {
		// Its knot hands out its records again.
		e.Accounts = []store.Account{{DID: repo, CheckedAt: began}}
	}
	return e, nil
}

func binding(b knot.Binding, now time.Time) store.RepoBinding {
	return store.RepoBinding{
		Repo: b.Repo, Owner: b.Owner, Rkey: b.Rkey, Name: b.Name, Knot: b.Knot,
		DefaultBranch: b.DefaultBranch, Spindle: b.Spindle,
		ManifestCID: b.ManifestCID, DeclarationCID: b.DeclarationCID, VerifiedAt: now,
	}
}

// admitted tells whether owner's repositories are served here at all; nothing of others is fetched. The
// repository is not known yet, so the owner stands in its place as well.
func (in *Ingest) admitted(ctx context.Context, owner string) (bool, error) {
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return false, err
	}
	return g.Admit(rbac.Repo{DID: owner, Owner: owner}).Allowed, nil
}
