package knot

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/stretchr/testify/require"

	"spindle/identity"
)

const (
	ownerDID  = "did:plc:owneraaaaaaaaaaaaaaaaaaa"
	victimDID = "did:plc:victimaaaaaaaaaaaaaaaaaa"
	otherDID  = "did:plc:otherrepoaaaaaaaaaaaaaaa"
	rkey      = "3kaaaaaaaaaaa"
	created   = "2026-01-01T00:00:00Z"
)

func manifest(owner, declaration string) map[string]any {
	return map[string]any{"$type": manifestCollection, "owner": owner, "declaration": declaration, "name": "proj",
		"defaultBranch": "trunk", "spindle": "ci.example.com", "createdAt": created}
}

func declaration(repo string) map[string]any {
	return map[string]any{"$type": declarationCollection, "repo": repo, "createdAt": created}
}

// world is one repository with its owner, all well.
type world struct {
	net               *records
	pds, knot         *recordHost
	ownerKey, repoKey atcrypto.PrivateKey
	victimKey         atcrypto.PrivateKey
}

func newWorld(t *testing.T) *world {
	w := &world{net: newRecords(t), pds: newRecordHost(t), knot: newRecordHost(t), ownerKey: newKey(t), repoKey: newKey(t), victimKey: newKey(t)}
	w.net.publish(ownerDID, w.ownerKey, "atproto_pds", "AtprotoPersonalDataServer", w.pds.srv.URL)
	w.net.publish(victimDID, w.victimKey, "atproto_pds", "AtprotoPersonalDataServer", w.pds.srv.URL)
	w.net.publish(repoDID, w.repoKey, identity.KnotService, identity.KnotType, w.knot.srv.URL)
	w.pds.put(ownerDID, w.ownerKey, map[string]any{declarationCollection + "/" + rkey: declaration(repoDID)})
	w.pds.put(victimDID, w.victimKey, map[string]any{declarationCollection + "/" + rkey: declaration(otherDID)})
	w.knot.put(repoDID, w.repoKey, map[string]any{manifestCollection + "/self": manifest(ownerDID, rkey)})
	return w
}

func TestBind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, decl := range []string{rkey, "at://" + ownerDID + "/" + declarationCollection + "/" + rkey} {
		w.knot.put(repoDID, w.repoKey, map[string]any{manifestCollection + "/self": manifest(ownerDID, decl)})
		b, err := w.net.client(t).Bind(t.Context(), repoDID)
		require.NoError(t, err)
		u, err := url.Parse(w.knot.srv.URL)
		require.NoError(t, err)
		require.NotEmpty(t, b.ManifestCID)
		require.NotEmpty(t, b.DeclarationCID)
		require.NotEmpty(t, b.ManifestRev)
		require.NotEmpty(t, b.DeclarationRev)
		require.Equal(t, Binding{Repo: repoDID, Knot: u.Host, KnotURL: w.knot.srv.URL, Owner: ownerDID, Rkey: rkey, Name: "proj",
			DefaultBranch: "trunk", Spindle: "ci.example.com", ManifestCID: b.ManifestCID, ManifestRev: b.ManifestRev,
			DeclarationCID: b.DeclarationCID, DeclarationRev: b.DeclarationRev}, b)
	}
}

// Each of the three statements either points where it should (true) or at somebody else. Only all three
// together bind.
func TestT05AllThreeStatementsMustMatch(t *testing.T) {
	t.Parallel()
	for bits := range 8 {
		document, toOwner, toRepo := bits&1 != 0, bits&2 != 0, bits&4 != 0
		t.Run(fmt.Sprintf("document=%v,manifest=%v,declaration=%v", document, toOwner, toRepo), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if !document { // the document names another knot; that knot has no manifest that the repository signed
				evil := newRecordHost(t)
				evil.put(repoDID, newKey(t), map[string]any{manifestCollection + "/self": manifest(ownerDID, rkey)})
				w.net.publish(repoDID, w.repoKey, identity.KnotService, identity.KnotType, evil.srv.URL)
			}
			owner := ownerDID
			if !toOwner { // the manifest claims a victim as its owner
				owner = victimDID
			}
			w.knot.put(repoDID, w.repoKey, map[string]any{manifestCollection + "/self": manifest(owner, rkey)})
			if !toRepo { // the owner's declaration is of another repository
				w.pds.put(ownerDID, w.ownerKey, map[string]any{declarationCollection + "/" + rkey: declaration(otherDID)})
			}
			_, err := w.net.client(t).Bind(t.Context(), repoDID)
			if document && toOwner && toRepo {
				require.NoError(t, err)
				return
			}
			var be *BindError
			require.ErrorAs(t, err, &be)
			require.ErrorIs(t, err, ErrBind)
			require.False(t, Temporary(err))
			want := ReasonMismatch
			if !document {
				want = ReasonManifest
			}
			require.Equal(t, want, be.Reason)
		})
	}
}

func TestT05TwoOwnersDeclareOneRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pds.put(victimDID, w.victimKey, map[string]any{declarationCollection + "/" + rkey: declaration(repoDID)})
	b, err := w.net.client(t).Bind(t.Context(), repoDID)
	require.NoError(t, err)
	require.Equal(t, ownerDID, b.Owner, "only the one that the manifest names")
}

func TestBindRefusals(t *testing.T) {
	t.Parallel()
	manifestAt := func(w *world, m map[string]any) {
		w.knot.put(repoDID, w.repoKey, map[string]any{manifestCollection + "/self": m})
	}
	for name, tc := range map[string]struct {
		change func(*world)
		reason string
	}{
		"no such DID": {func(w *world) { delete(w.net.docs, repoDID) }, ReasonRepo},
		"no knot": {func(w *world) {
			w.net.publish(repoDID, w.repoKey, "atproto_pds", "AtprotoPersonalDataServer", w.knot.srv.URL)
		}, ReasonRepo},
		"knot with a path": {func(w *world) {
			w.net.publish(repoDID, w.repoKey, identity.KnotService, identity.KnotType, w.knot.srv.URL+"/x")
		}, ReasonRepo},
		"no manifest": {func(w *world) { w.knot.put(repoDID, w.repoKey, map[string]any{"a.b.c/self": declaration(repoDID)}) }, ReasonManifest},
		"forged manifest": {func(w *world) {
			w.knot.put(repoDID, newKey(t), map[string]any{manifestCollection + "/self": manifest(ownerDID, rkey)})
		}, ReasonManifest},
		"wrong type":      {func(w *world) { manifestAt(w, declaration(repoDID)) }, ReasonManifest},
		"owner is no DID": {func(w *world) { manifestAt(w, manifest("owner", rkey)) }, ReasonManifest},
		"key is a path":   {func(w *world) { manifestAt(w, manifest(ownerDID, "a/b")) }, ReasonOwner},
		"uri of another": {func(w *world) {
			manifestAt(w, manifest(ownerDID, "at://"+victimDID+"/"+declarationCollection+"/"+rkey))
		}, ReasonOwner},
		"uri elsewhere":  {func(w *world) { manifestAt(w, manifest(ownerDID, "at://"+ownerDID+"/a.b.c/"+rkey)) }, ReasonOwner},
		"no declaration": {func(w *world) { manifestAt(w, manifest(ownerDID, "3kbbbbbbbbbbb")) }, ReasonDeclaration},
		"forged declaration": {func(w *world) {
			w.pds.put(ownerDID, newKey(t), map[string]any{declarationCollection + "/" + rkey: declaration(repoDID)})
		}, ReasonDeclaration},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.change(w)
			_, err := w.net.client(t).Bind(t.Context(), repoDID)
			var be *BindError
			require.ErrorAs(t, err, &be)
			require.Equal(t, tc.reason, be.Reason, err)
			require.False(t, Temporary(err), err)
		})
	}
}

func TestBindTemporary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.knot.srv.Close()
	_, err := w.net.client(t).Bind(t.Context(), repoDID)
	require.ErrorIs(t, err, ErrBind)
	require.True(t, Temporary(err))
}

func TestBindTakesAnOddBranchAsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := manifest(ownerDID, rkey)
	m["defaultBranch"] = "--upload-pack=x y"
	w.knot.put(repoDID, w.repoKey, map[string]any{manifestCollection + "/self": m})
	b, err := w.net.client(t).Bind(t.Context(), repoDID)
	require.NoError(t, err)
	require.Empty(t, b.DefaultBranch)
}

func TestCollaborators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := map[string]any{"$type": collaboratorCollection, "createdAt": created}
	recs := map[string]any{
		manifestCollection + "/self":             manifest(ownerDID, rkey),
		collaboratorCollection + "/" + victimDID: rec,
		collaboratorCollection + "/" + otherDID:  map[string]any{"$type": collaboratorCollection},
		collaboratorCollection + "/not-a-did":    rec,
	}
	w.knot.put(repoDID, w.repoKey, recs)
	c := w.net.client(t)
	got, err := c.Collaborators(t.Context(), repoDID)
	require.NoError(t, err)
	require.Equal(t, []string{victimDID}, got)

	// A name that the knot adds to the list, without a record in the signed tree, gains nothing.
	w.knot.mu.Lock()
	w.knot.recs[repoDID] = map[string]any{collaboratorCollection + "/" + ownerDID: rec, collaboratorCollection + "/" + victimDID: rec}
	w.knot.mu.Unlock()
	got, err = c.Collaborators(t.Context(), repoDID)
	require.NoError(t, err)
	require.Equal(t, []string{victimDID}, got)
}

func TestBindingChooses(t *testing.T) {
	t.Parallel()
	for spindle, want := range map[string]bool{
		"ci.example.com": true, "CI.example.com": true, "did:web:ci.example.com": true, "": false,
		"ci.example.com.evil.test": false, "https://ci.example.com": false, "did:web:ci.example.com:x": false,
	} {
		require.Equal(t, want, Binding{Spindle: spindle}.Chooses("ci.example.com"), spindle)
	}
	require.True(t, Binding{Spindle: "did:web:localhost%3A6555"}.Chooses("localhost:6555"))
	require.False(t, Binding{}.Chooses(""))
}
