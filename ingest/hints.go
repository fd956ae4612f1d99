package ingest

import (
	"context"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/store"
)

// The collections that matter, in the native generation of the network.
const (
	declarationNSID  = "org.tangled.repo.declaration"
	manifestNSID     = "org.tangled.repo.manifest"
	collaboratorNSID = "org.tangled.graph.collaborator"
	ticketNSID       = "org.tangled.track.ticket"
	patchNSID        = "org.tangled.review.patch"
)

// Collections lists what the server asks a record stream for.
func Collections() []string {
	return []string{declarationNSID, manifestNSID, collaboratorNSID, ticketNSID, patchNSID,
		olderRepoNSID, olderCollaboratorNSID, memberNSID, olderPullNSID}
}

// hints is what a frame hints at; nothing for frames that concern nobody here.
func (in *Ingest) hints(ctx context.Context, f Frame) []store.Recheck {
	switch f.Kind {
	case KindCommit:
		var out []store.Recheck
		for _, o := range f.Ops {
			if h, ok := in.hint(ctx, f.DID, o); ok {
				out = append(out, h)
			}
		}
		return out
	case KindSync:
		if in.follows(ctx, f.DID) {
			return []store.Recheck{{DID: f.DID, Collection: syncHint, Rkey: "self"}}
		}
	default:
		if h, ok := in.AccountHint(ctx, f.DID, f.Kind); ok {
			return []store.Recheck{h}
		}
	}
	return nil
}

// syncHint stands in the place of a collection for whatever an account holds.
const syncHint = "#sync"

// hint is what one operation hints at. Repositories tell of themselves, and everybody may open a pull request, so
// their collections are taken from all; declarations only of owners whose repositories are served here.
func (in *Ingest) hint(ctx context.Context, did string, o Op) (store.Recheck, bool) {
	if !strings.HasPrefix(o.Collection, "org.tangled.") && !strings.HasPrefix(o.Collection, "sh.tangled.") {
		return store.Recheck{}, false
	}
	switch o.Collection {
	case manifestNSID, collaboratorNSID, ticketNSID, patchNSID, declarationNSID, olderRepoNSID, olderCollaboratorNSID, memberNSID, olderPullNSID:
	default:
		return store.Recheck{}, false
	}
	if _, err := syntax.ParseDID(did); err != nil {
		return store.Recheck{}, false
	}
	if _, err := syntax.ParseRecordKey(o.Rkey); err != nil {
		return store.Recheck{}, false
	}
	stranger := o.Collection != declarationNSID && !strings.HasPrefix(o.Collection, "sh.") || o.Collection == olderPullNSID
	if (in.c.OnlyFollowed || !stranger) && !in.follows(ctx, did) {
		in.c.Count("record_not_followed")
		return store.Recheck{}, false
	}
	return store.Recheck{DID: did, Collection: o.Collection, Rkey: o.Rkey}, true
}

// follows tells whether an account's own records matter here: it holds a role, is a repository that is known or owns
// one, or may have its repositories run here. It is asked of the policy in force, so who is let in is followed at once;
// what cannot be read is taken for a yes, as a hint too many costs a question and one too few a push.
func (in *Ingest) follows(ctx context.Context, did string) bool {
	if _, err := syntax.ParseDID(did); err != nil {
		return false
	}
	yes, err := in.followed.holds(ctx, in.c.Store, did)
	if err == nil && !yes {
		yes, err = in.admitted(ctx, did)
	}
	if err != nil && ctx.Err() == nil {
		in.c.Log.Error("read whom to follow", "err", err)
	}
	return yes || err != nil
}

// wanted lists the accounts that follows is true of, as far as they can be listed, and what is closed when that may
// have changed.
func (in *Ingest) wanted(ctx context.Context) ([]string, <-chan struct{}, error) {
	changed := in.c.Store.Changed()
	g, err := in.c.Store.Gate(ctx)
	if err != nil {
		return nil, changed, err
	}
	repos, err := in.c.Store.Repos(ctx)
	if err != nil {
		return nil, changed, err
	}
	dids := g.Tracked()
	for _, b := range repos {
		dids = append(dids, b.Repo, b.Owner)
	}
	slices.Sort(dids)
	return slices.Compact(dids), changed, nil
}
