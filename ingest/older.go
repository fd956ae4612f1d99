package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/identity"
	"spindle/lexicons"
	"spindle/lexicons/shtangled"
	"spindle/store"
)

// The collections that matter, in the older generation of the network.
const (
	olderRepoNSID         = "sh.tangled.repo"
	olderCollaboratorNSID = "sh.tangled.repo.collaborator"
	memberNSID            = "sh.tangled.spindle.member"
)

// membersHint stands in the place of a collection for all members that an account's records name.
const membersHint = "#members"

// mostOlder bounds how many records of one collection of an account are read.
const mostOlder = 1000

// olderRepo follows a record of a repository to the repository's DID, if it has one. What binds the repository is its
// own: the record tells only that there may be something to bind.
func (in *Ingest) olderRepo(ctx context.Context, r store.Recheck) (store.Effects, error) {
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
	proven, err := in.c.Prover.Record(ctx, r.DID, olderRepoNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		e.Records = gone(r, err)
		return e, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[shtangled.Repo](in, proven)
	if err != nil {
		return store.Effects{}, err
	}
	if view.RepoDid == nil {
		if len(e.Rechecks) == 0 && view.Spindle != nil && *view.Spindle == in.c.Hostname {
			in.c.Count("repo_without_did")
			return e, fmt.Errorf("%w: repository %q has no DID; its knot must give it one before it can be served here", lexicons.ErrInvalid, view.Name)
		}
		return e, nil
	}
	e.Records = append(e.Records, record(r, proven, rec))
	if again := bindAgain(*view.RepoDid); !slices.Contains(e.Rechecks, again) {
		e.Rechecks = append(e.Rechecks, again)
	}
	return e, nil
}

// olderCollaborators has the collaborators of an owner's repositories read anew.
func (in *Ingest) olderCollaborators(ctx context.Context, owner string) (store.Effects, error) {
	repos, err := in.c.Store.Repos(ctx)
	if err != nil {
		return store.Effects{}, err
	}
	var e store.Effects
	for _, b := range repos {
		if b.Owner == owner && !b.Gone {
			e.Rechecks = append(e.Rechecks, bindAgain(b.Repo))
		}
	}
	return e, nil
}

// alsoCollaborators lists whom the owner's own records of the older generation let push to a repository. Records of
// anybody else are not looked at.
func (in *Ingest) alsoCollaborators(ctx context.Context, b store.RepoBinding) ([]string, error) {
	list, err := in.c.Prover.List(ctx, b.Owner, "", olderCollaboratorNSID, mostOlder)
	if err != nil && temporary(err) {
		return nil, fmt.Errorf("list collaborators by %s: %w", b.Owner, err)
	}
	if err != nil {
		in.c.Count("record_refused")
		return nil, nil
	}
	var out []string
	for _, p := range list {
		_, c, err := decode[shtangled.RepoCollaborator](in, p)
		if err != nil || c.Repo != b.Repo && c.Repo != "at://"+b.Owner+"/"+olderRepoNSID+"/"+b.Rkey {
			continue
		}
		if _, err := syntax.ParseDID(c.Subject); err == nil {
			out = append(out, c.Subject)
		}
	}
	return out, nil
}

// grants tells whether an account's records can put others on the allow-list.
func (in *Ingest) grants(ctx context.Context, did string) (bool, error) {
	dids, err := in.c.Store.Granters(ctx)
	return slices.Contains(dids, did), err
}

// member takes over one record that puts an account on the allow-list, or its absence.
func (in *Ingest) member(ctx context.Context, r store.Recheck) (store.Effects, error) {
	if ok, err := in.grants(ctx, r.DID); err != nil || !ok {
		if err == nil {
			in.c.Count("member_by_stranger")
		}
		return store.Effects{}, err
	}
	removed := store.Effects{Members: []store.Member{{Author: r.DID, Rkey: r.Rkey, Removed: true}}}
	proven, err := in.c.Prover.Record(ctx, r.DID, memberNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		removed.Records = gone(r, err)
		return removed, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	m, rec, ok := in.memberOf(proven)
	if !ok {
		return removed, nil
	}
	return store.Effects{Records: []store.Record{record(r, proven, rec)}, Members: []store.Member{m}}, nil
}

// memberOf is what a record says, if it is for this spindle: the name must be ours to the letter, and the subject a DID.
func (in *Ingest) memberOf(p identity.Proven) (store.Member, lexicons.Record, bool) {
	rec, v, err := decode[shtangled.SpindleMember](in, p)
	if err != nil || v.Instance != in.c.Hostname {
		return store.Member{}, rec, false
	}
	if _, err := syntax.ParseDID(v.Subject); err != nil {
		return store.Member{}, rec, false
	}
	return store.Member{DID: v.Subject, Author: p.DID, Rkey: p.Rkey}, rec, true
}

// members takes over all of an account's records. What the list leaves out and is known here is asked for one by one:
// that a record is gone is believed with its proof only.
func (in *Ingest) members(ctx context.Context, did string) (store.Effects, error) {
	if ok, err := in.grants(ctx, did); err != nil || !ok {
		return store.Effects{}, err
	}
	list, err := in.c.Prover.List(ctx, did, "", memberNSID, mostOlder)
	if err != nil {
		return store.Effects{}, fmt.Errorf("list members by %s: %w", did, err)
	}
	known, err := in.c.Store.Grants(ctx, did)
	if err != nil {
		return store.Effects{}, err
	}
	var e store.Effects
	for _, p := range list {
		if m, _, ok := in.memberOf(p); ok {
			e.Members = append(e.Members, m)
			delete(known, p.Rkey)
		}
	}
	for rkey := range known {
		e.Rechecks = append(e.Rechecks, store.Recheck{DID: did, Collection: memberNSID, Rkey: rkey})
	}
	return e, nil
}

// askMembers has the members read anew that records of the owner and the admins name.
func (in *Ingest) askMembers(ctx context.Context) error {
	dids, err := in.c.Store.Granters(ctx)
	if err != nil {
		return err
	}
	var e store.Effects
	for _, did := range dids {
		e.Rechecks = append(e.Rechecks, store.Recheck{DID: did, Collection: membersHint, Rkey: "self"})
	}
	if _, err := in.c.Store.Accept(ctx, e); err != nil {
		return err
	}
	in.wakeProvers()
	return nil
}
