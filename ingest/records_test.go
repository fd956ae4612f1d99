package ingest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/fault"
	"spindle/devnet/jetstream"
	"spindle/devnet/pds"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

const day = "2026-01-01T00:00:00Z"

func (b *bench) may(a *devnet.Account, r *devnet.Repo) bool {
	b.t.Helper()
	g, err := b.store.Gate(context.Background())
	require.NoError(b.t, err)
	return g.May(a.DID.String(), rbac.Push, rbac.Repo{DID: r.DID.String(), Owner: b.alice.DID.String()}).Allowed
}

func (b *bench) binding(r *devnet.Repo) store.RepoBinding {
	b.t.Helper()
	v, _, err := b.store.Repo(context.Background(), r.DID.String())
	require.NoError(b.t, err)
	return v
}

// TestEitherRecordBindsTheRepository lets the stream tell of one of the two records only.
func TestEitherRecordBindsTheRepository(t *testing.T) {
	t.Parallel()
	for _, untold := range []string{devnet.Declaration, devnet.Manifest} {
		b := newBench(t)
		b.net.Jetstream().SetFaults(jetstream.Faults{Drop: func(e jetstream.Event) bool {
			return e.Commit != nil && e.Commit.Collection == untold
		}})
		b.run()
		r := b.repo(b.alice, "hello")
		b.caughtUp()
		require.True(t, b.served(r), "without word of the %s", untold)
		got := b.binding(r)
		require.Equal(t, b.alice.DID.String(), got.Owner)
		require.Equal(t, "main", got.DefaultBranch)
	}
}

// TestStrangersRepositoryIsNotKept has an account that is not admitted choose this spindle.
func TestStrangersRepositoryIsNotKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	r := b.repo(b.account("bob.test"), "hello")
	b.caughtUp()
	_, ok, err := b.store.Repo(t.Context(), r.DID.String())
	require.NoError(t, err)
	require.False(t, ok)
	require.Positive(t, b.tries.of("record_refused"))
}

// TestT02ForgeriesHaveNoEffect tells of records that are nowhere, and serves records whose proofs do not hold.
func TestT02ForgeriesHaveNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob := b.account("bob.test")
	b.run()
	r := b.repo(b.alice, "hello")
	b.caughtUp()
	before := b.binding(r)
	js := b.net.Jetstream()
	for did, records := range map[string]map[string]map[string]map[string]any{
		r.DID.String(): {devnet.Collaborator: {bob.DID.String(): {"$type": devnet.Collaborator, "createdAt": day}}},
		bob.DID.String(): {
			devnet.Declaration: {"3mzzzzzzzzz2b": {"$type": devnet.Declaration, "repo": r.DID.String(), "createdAt": day}},
			devnet.Ticket:      {"3mzzzzzzzzz2c": {"$type": devnet.Ticket, "repo": r.DID.String(), "title": "t", "kind": "pull", "createdAt": day}},
			devnet.Patch: {"3mzzzzzzzzz2d": {"$type": devnet.Patch, "ticket": "3mzzzzzzzzz2c", "base": strings.Repeat("a", 40),
				"head": strings.Repeat("b", 40), "createdAt": day}},
		},
	} {
		for collection, rs := range records {
			for rkey, rec := range rs {
				_, err := js.Forge(did, pds.Create, collection, rkey, rec)
				require.NoError(t, err)
			}
		}
	}
	b.caughtUp()
	require.False(t, b.may(bob, r))
	require.Empty(t, b.events())

	for _, how := range []pds.Tamper{pds.BadSignature, pds.HighS, pds.OtherDID, pds.CorruptBlock, pds.Truncated, pds.ForgedTree, pds.FutureRev} {
		b.alice.Tamper(how)
		_, _, err := b.alice.Put(devnet.Ticket, "3mzzzzzzzzz2e", map[string]any{"repo": r.DID.String(), "title": "t", "kind": "pull", "createdAt": day}, "")
		require.NoError(t, err)
		_, _, err = b.alice.Put(devnet.Patch, "3mzzzzzzzzz2f", map[string]any{"ticket": "3mzzzzzzzzz2e", "base": strings.Repeat("a", 40),
			"head": strings.Repeat("b", 40), "createdAt": day}, "")
		require.NoError(t, err)
		b.caughtUp()
		require.Empty(t, b.events(), "tampered with: %v", how)
	}
	b.alice.Tamper(pds.Honest)
	require.Equal(t, before.Owner, b.binding(r).Owner)
	require.True(t, b.served(r))
}

// TestRotatedKeyIsFollowed proves a record under a new key although the old document is still in memory.
func TestRotatedKeyIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	r := b.repo(b.alice, "hello")
	b.caughtUp()
	_, err := b.alice.RotateKey(false)
	require.NoError(t, err)
	_, err = r.RotateKey(false)
	require.NoError(t, err)
	require.NoError(t, r.UpdateManifest(func(m map[string]any) { m["defaultBranch"] = "trunk" }))
	b.caughtUp()
	require.Equal(t, "trunk", b.binding(r).DefaultBranch)
}

// TestEachSideOfTheBindingCanEndIt breaks the declaration, the manifest and the choice, one at a time.
func TestEachSideOfTheBindingCanEndIt(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(b *bench, r *devnet.Repo) error{
		"declaration deleted": func(b *bench, r *devnet.Repo) error {
			_, err := b.alice.Delete(devnet.Declaration, r.Rkey)
			return err
		},
		"declaration of another repository": func(b *bench, r *devnet.Repo) error {
			_, _, err := b.alice.Put(devnet.Declaration, r.Rkey, map[string]any{"repo": b.repo(b.alice, "other").DID.String(), "createdAt": day}, "")
			return err
		},
		"manifest names another owner": func(b *bench, r *devnet.Repo) error {
			mallory := b.account("mallory.test")
			return r.UpdateManifest(func(m map[string]any) { m["owner"] = mallory.DID.String() })
		},
		"manifest deleted":     func(_ *bench, r *devnet.Repo) error { _, err := r.Delete(devnet.Manifest, "self"); return err },
		"another spindle":      func(_ *bench, r *devnet.Repo) error { return r.SetSpindle("other.test") },
		"a name that is alike": func(_ *bench, r *devnet.Repo) error { return r.SetSpindle("evil-spindle.test") },
		"no spindle":           func(_ *bench, r *devnet.Repo) error { return r.SetSpindle("") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.run()
			r := b.repo(b.alice, "hello")
			b.caughtUp()
			require.True(t, b.served(r))
			require.NoError(t, breakIt(b, r))
			b.caughtUp()
			require.False(t, b.served(r))
		})
	}
}

// TestChoiceByDIDAndInAnyCase serves a repository that names the spindle in another form.
func TestChoiceByDIDAndInAnyCase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	r := b.repo(b.alice, "hello")
	for _, name := range []string{"did:web:" + spindle, "Spindle.Test"} {
		require.NoError(t, r.SetSpindle(name))
		b.caughtUp()
		require.True(t, b.served(r), name)
		require.Equal(t, name, b.binding(r).Spindle)
	}
}

// TestAnothersDeclarationTakesNothing has a member declare the repository of somebody else.
func TestAnothersDeclarationTakesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mallory := b.account("mallory.test")
	require.NoError(t, b.store.Allow(t.Context(), mallory.DID.String(), b.alice.DID.String()))
	b.run()
	r := b.repo(b.alice, "hello")
	_, _, err := mallory.Create(devnet.Declaration, map[string]any{"repo": r.DID.String(), "createdAt": day})
	require.NoError(t, err)
	b.caughtUp()
	require.Equal(t, b.alice.DID.String(), b.binding(r).Owner)
	require.False(t, b.may(mallory, r))
}

// TestCollaboratorsFollowTheRecords adds and removes one.
func TestCollaboratorsFollowTheRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob := b.account("bob.test")
	b.run()
	r := b.repo(b.alice, "hello")
	require.NoError(t, r.AddCollaborator(bob))
	b.caughtUp()
	require.True(t, b.may(bob, r))
	require.NoError(t, r.RemoveCollaborator(bob))
	b.caughtUp()
	require.False(t, b.may(bob, r))
}

// round writes a patch record of author's and returns its key.
func (b *bench) round(author *devnet.Account, rkey, ticket, base, head string, source map[string]any) {
	b.t.Helper()
	rec := map[string]any{"ticket": ticket, "base": base, "head": head, "createdAt": day}
	if source != nil {
		rec["source"] = source
	}
	_, _, err := author.Put(devnet.Patch, rkey, rec, "")
	require.NoError(b.t, err)
}

// TestRoundsThatAreRefused writes patches that must start nothing, then one that does, and tells of it again.
func TestRoundsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob, mallory := b.account("bob.test"), b.account("mallory.test")
	b.run()
	r := b.repo(b.alice, "hello")
	elsewhere, err := b.net.CreateRepo(t.Context(), mallory, "elsewhere", devnet.RepoOptions{Spindle: "other.test"})
	require.NoError(t, err)
	ticket := func(a *devnet.Account, rkey, kind, repo, target string) string {
		_, _, err := a.Put(devnet.Ticket, rkey, map[string]any{"repo": repo, "title": "t", "kind": kind, "targetBranch": target, "createdAt": day}, "")
		require.NoError(t, err)
		return "at://" + a.DID.String() + "/" + devnet.Ticket + "/" + rkey
	}
	own := ticket(bob, "3mzzzzzzzzz2a", "pull", r.DID.String(), "main")
	x, y := strings.Repeat("a", 40), strings.Repeat("b", 40)
	b.round(mallory, "3mzzzzzzzzz3a", own, x, y, nil) // not the author's
	b.round(bob, "3mzzzzzzzzz3b", own, "main", y, nil)
	b.round(bob, "3mzzzzzzzzz3c", own, x, "--upload-pack=touch", nil)
	b.round(bob, "3mzzzzzzzzz3d", own, x[:12], y, nil)
	b.round(bob, "3mzzzzzzzzz3e", own, x, y, map[string]any{"repo": elsewhere.DID.String(), "branch": "a b"})
	b.round(bob, "3mzzzzzzzzz3f", own, x, y, map[string]any{"repo": elsewhere.DID.String(), "branch": "--force"})
	b.round(bob, "3mzzzzzzzzz3g", ticket(bob, "3mzzzzzzzzz2b", "pull", elsewhere.DID.String(), "main"), x, y, nil)
	b.round(bob, "3mzzzzzzzzz3i", ticket(bob, "3mzzzzzzzzz2d", "pull", r.DID.String(), "a\nb"), x, y, nil)
	b.round(bob, "3mzzzzzzzzz3j", "3mzzzzzzzzz2y", x, y, nil) // a thread that does not exist
	b.caughtUp()
	require.Empty(t, b.events())
	require.Zero(t, b.tries.of("record_postponed"), "what a record says does not get better by asking again")

	b.round(bob, "3mzzzzzzzzz3k", own, x, y, map[string]any{"repo": elsewhere.DID.String(), "branch": "fix"})
	b.caughtUp()
	es := b.events()
	require.Len(t, es, 1)
	p := es[0].Trigger.Pull
	require.Equal(t, elsewhere.DID.String(), p.SourceRepo)
	require.Equal(t, []string{"opened", "main", "fix", own}, []string{p.Action, p.TargetBranch, p.SourceBranch, p.Ticket})
	require.Equal(t, bob.DID.String(), es[0].Trigger.Actor)
	require.Equal(t, pipeline.FromRecord, es[0].Trigger.ActorSource)

	// The thread is for another branch now and the stream tells of the round once more: no event, no conflict.
	ticket(bob, "3mzzzzzzzzz2a", "pull", r.DID.String(), "next")
	_, err = b.net.Jetstream().Forge(bob.DID.String(), pds.Update, devnet.Patch, "3mzzzzzzzzz3k", map[string]any{})
	require.NoError(t, err)
	b.caughtUp()
	require.Len(t, b.events(), 1)
	require.Zero(t, b.tries.of("trigger_conflict"))

	_, err = bob.Delete(devnet.Patch, "3mzzzzzzzzz3k")
	require.NoError(t, err)
	b.caughtUp()
	require.Empty(t, b.events(), "a round that was withdrawn before it was planned is not run")
}

// TestHostThatIsDownIsAskedAgain has the PDS fail while a round is told of: one event comes of it, once.
func TestHostThatIsDownIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob := b.account("bob.test")
	b.run()
	r := b.repo(b.alice, "hello")
	b.caughtUp()
	b.net.PDS().Server.Gate.Set(fault.Rule{Path: "/xrpc/com.atproto.sync.", Status: 503})
	_, _, err := bob.Put(devnet.Ticket, "3mzzzzzzzzz2a", map[string]any{"repo": r.DID.String(), "title": "t", "kind": "pull", "createdAt": day}, "")
	require.NoError(t, err)
	b.round(bob, "3mzzzzzzzzz3a", "3mzzzzzzzzz2a", strings.Repeat("a", 40), strings.Repeat("b", 40), nil)
	until(t, func() bool { return b.tries.of("record_postponed") >= 2 }, "put off")
	require.Empty(t, b.events())
	b.net.PDS().Server.Gate.Clear()
	b.caughtUp()
	require.Len(t, b.events(), 1)
}

// TestSlowAccountHoldsUpNobody floods hints of an account whose PDS never answers, before another's.
func TestSlowAccountHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Provers = 2 })
	slow, err := b.net.StartPDS(t.Context(), "slow.test")
	require.NoError(t, err)
	mallory := b.account("mallory.test")
	require.NoError(t, mallory.Move(slow))
	slow.Server.Gate.Set(fault.Rule{Path: "/xrpc/", Silence: true})
	for i := range 50 {
		_, _, err := mallory.Put(devnet.Ticket, fmt.Sprintf("3mzzzzzzzz%d2a", 100+i), map[string]any{"repo": nobody, "title": "t", "kind": "pull", "createdAt": day}, "")
		require.NoError(t, err)
	}
	_, err = b.store.Accept(t.Context(), store.Effects{Rechecks: func() (rs []store.Recheck) {
		for i := range 50 {
			rs = append(rs, store.Recheck{DID: mallory.DID.String(), Collection: devnet.Ticket, Rkey: fmt.Sprintf("3mzzzzzzzz%d2a", 100+i)})
		}
		return rs
	}()})
	require.NoError(t, err)
	b.run()
	began := time.Now()
	r := b.repo(b.alice, "hello")
	until(t, func() bool { return b.served(r) }, "another account is served meanwhile")
	require.Less(t, time.Since(began), 4*time.Second, "before the slow one has even timed out")
	slow.Server.Cut()
}
