package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"spindle/identity"
	"spindle/knot"
	"spindle/rbac"
	"spindle/store"
)

// accountHint stands where the collection of a record would: it is no NSID, so no record can be mistaken for it.
// The hint means that an account may have changed: its status, its handle, its key, or where its documents say
// that its records live.
const accountHint = "#account"

// AccountHint is the hint that a source commits when a stream says that something happened to an account (frames
// of the kinds identity and account), and false when the account concerns nobody here. What the stream says of it
// does not count: the DID document and the account's host are asked.
func (in *Ingest) AccountHint(ctx context.Context, did, kind string) (store.Recheck, bool) {
	if kind != "identity" && kind != "account" {
		return store.Recheck{}, false
	}
	if followed, err := in.followed.holds(ctx, in.c.Store, did); err != nil || !followed {
		if err != nil && ctx.Err() == nil {
			// Too many hints cost a question each; a lost one is an account that nobody looks after.
			in.c.Log.Error("read whom to follow", "err", err)
			return store.Recheck{DID: did, Collection: accountHint, Rkey: "self"}, true
		}
		return store.Recheck{}, false
	}
	return store.Recheck{DID: did, Collection: accountHint, Rkey: "self"}, true
}

// followed is the set of accounts that matter: who holds a role, repositories, and what is no longer served but
// may come back. It is read anew when the policy has changed.
type followed struct {
	mu      sync.Mutex
	version int64
	read    bool
	more    map[string]bool // gone repositories and their owners; whoever else matters is in the policy
}

func (f *followed) holds(ctx context.Context, s Store, did string) (bool, error) {
	g, err := s.Gate(ctx)
	if err != nil {
		return false, err
	}
	if g.Knows(did) {
		return true, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.read || f.version != g.Version() {
		repos, err := s.Repos(ctx)
		if err != nil {
			return false, err
		}
		f.more = map[string]bool{}
		for _, b := range repos {
			if b.Gone {
				f.more[b.Repo], f.more[b.Owner] = true, true
			}
		}
		f.version, f.read = g.Version(), true
	}
	return f.more[did], nil
}

// account finds out what became of an account and says what follows. An account that is not active keeps what it
// has and may do nothing; of one that was deleted the repositories are gone; one that is active again gets back
// what it had, each repository by being bound anew. A repository's own DID is bound anew as it is.
func (in *Ingest) account(ctx context.Context, did string) (store.Effects, error) {
	repos, err := in.c.Store.Repos(ctx)
	if err != nil {
		return store.Effects{}, err
	}
	var e store.Effects
	var owned []store.RepoBinding
	isRepo := false
	for _, b := range repos {
		isRepo = isRepo || b.Repo == did
		if b.Owner == did {
			owned = append(owned, b)
		}
	}
	defer in.c.Moved(did)
	if isRepo {
		if err := in.c.Prover.Refresh(ctx, did); err != nil && identity.Temporary(err) {
			return store.Effects{}, err
		}
		return store.Effects{Rechecks: []store.Recheck{bindAgain(did)}}, nil
	}
	began := in.c.Clock.Now()
	now, err := in.c.Prover.Account(ctx, did)
	if err != nil {
		return store.Effects{}, err
	}
	before, _, err := in.c.Store.Account(ctx, did)
	if err != nil {
		return store.Effects{}, err
	}
	after := store.Account{DID: did, Inactive: inactiveRole(now.Status), CheckedAt: began}
	e.Accounts = []store.Account{after}
	if before.Inactive != after.Inactive {
		in.c.Count("account_changed")
		in.c.Log.Info("an account changed", "did", did, "status", now.Status, "before", string(before.Inactive))
	}
	for _, b := range owned {
		switch {
		case after.Inactive == rbac.Deleted && !b.Gone:
			b.Gone, b.GoneReason, b.VerifiedAt = true, "the account of its owner was deleted", began
			e.Repos = append(e.Repos, b)
		case after.Inactive == "" && (before.Inactive != "" || b.Gone):
			e.Rechecks = append(e.Rechecks, bindAgain(b.Repo))
		}
	}
	return e, nil
}

// inactiveRole is the policy's word for a status of identity.Account.
func inactiveRole(status string) rbac.Role {
	switch status {
	case "":
		return ""
	case identity.StatusTakendown:
		return rbac.Takendown
	case identity.StatusSuspended:
		return rbac.Suspended
	case identity.StatusDeactivated:
		return rbac.Deactivated
	case identity.StatusDeleted:
		return rbac.Deleted
	}
	return rbac.Unavailable
}

// lost says what follows when the binding of a repository that was served is no longer proven. A host that does
// not hand out the records of an account that is not active decides nothing about whose repository it is: that
// one is paused. Every other one is gone, with the reason.
func lost(old store.RepoBinding, err error) store.Effects {
	var inactive *identity.InactiveError
	if errors.As(err, &inactive) && (inactive.DID == old.Owner || inactive.DID == old.Repo) {
		return store.Effects{Accounts: []store.Account{{
			DID: inactive.DID, Inactive: inactiveRole(inactive.Status), CheckedAt: old.VerifiedAt,
		}}}
	}
	old.Gone = true
	if err != nil {
		old.GoneReason = reason(err)
	}
	return store.Effects{Repos: []store.RepoBinding{old}}
}

// reason is why a repository is not bound, for people.
func reason(err error) string {
	if s, ok := knot.Sentence(err); ok {
		return s
	}
	return "its DID document, manifest and declaration do not name each other"
}

// revive asks after the accounts of a repository that is paused, when somebody wants something of it: a stream
// may have been silent about their return. It gives the binding as it is then.
func (in *Ingest) revive(ctx context.Context, b store.RepoBinding) (store.RepoBinding, error) {
	for _, did := range []string{b.Owner, b.Repo} {
		a, known, err := in.c.Store.Account(ctx, did)
		if err != nil {
			return b, err
		}
		if !known || a.Inactive == "" || in.c.Clock.Now().Sub(a.CheckedAt) < pausedAge {
			continue
		}
		var e store.Effects
		if did == b.Repo {
			e, err = in.repository(ctx, did, false)
		} else {
			e, err = in.account(ctx, did)
		}
		if err != nil {
			if ctx.Err() != nil {
				return b, ctx.Err()
			}
			continue // nobody can be asked: what was heard last still counts
		}
		if _, err := in.c.Store.Accept(ctx, e); err != nil {
			return b, fmt.Errorf("store the account %s: %w", did, err)
		}
		in.wakeProvers()
	}
	now, _, err := in.c.Store.Repo(ctx, b.Repo)
	return now, err
}
