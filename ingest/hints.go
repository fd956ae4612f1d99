package ingest

import (
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
	return []string{declarationNSID, manifestNSID, collaboratorNSID, ticketNSID, patchNSID}
}

// hints is what a frame hints at; nothing for frames that concern nobody here.
func (in *Ingest) hints(f Frame) []store.Recheck {
	switch f.Kind {
	case KindCommit:
		var out []store.Recheck
		for _, o := range f.Ops {
			if h, ok := in.hint(f.DID, o); ok {
				out = append(out, h)
			}
		}
		return out
	case KindSync:
		if _, err := syntax.ParseDID(f.DID); err == nil && in.c.Followed.Follows(f.DID) {
			return []store.Recheck{{DID: f.DID, Collection: syncHint, Rkey: "self"}}
		}
	}
	return nil
}

// syncHint stands in the place of a collection for whatever an account holds.
const syncHint = "#sync"

// hint is what one operation hints at. Repositories tell of themselves, and everybody may open a pull request, so
// their collections are taken from all; declarations only from accounts that are followed.
func (in *Ingest) hint(did string, o Op) (store.Recheck, bool) {
	if !strings.HasPrefix(o.Collection, "org.tangled.") {
		return store.Recheck{}, false
	}
	switch o.Collection {
	case manifestNSID, collaboratorNSID, ticketNSID, patchNSID:
		if in.c.OnlyFollowed && !in.c.Followed.Follows(did) {
			return store.Recheck{}, false
		}
	case declarationNSID:
		if !in.c.Followed.Follows(did) {
			in.c.Count("record_not_followed")
			return store.Recheck{}, false
		}
	default:
		return store.Recheck{}, false
	}
	if _, err := syntax.ParseDID(did); err != nil {
		return store.Recheck{}, false
	}
	if _, err := syntax.ParseRecordKey(o.Rkey); err != nil {
		return store.Recheck{}, false
	}
	return store.Recheck{DID: did, Collection: o.Collection, Rkey: o.Rkey}, true
}
