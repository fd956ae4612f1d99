package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/fault"
	"spindle/devnet/jetstream"
	"spindle/devnet/plc"
	"spindle/rbac"
	"spindle/store"
)

// member makes an account that may have repositories here.
func (b *bench) member(handle string) *devnet.Account {
	b.t.Helper()
	a := b.account(handle)
	require.NoError(b.t, b.store.Allow(context.Background(), a.DID.String(), b.alice.DID.String()))
	return a
}

// inactive is why did is not active, as far as the store knows.
func (b *bench) inactive(did string) rbac.Role {
	b.t.Helper()
	a, _, err := b.store.Account(context.Background(), did)
	require.NoError(b.t, err)
	return a.Inactive
}

// becomes waits until the account is known to be not active for the reason why, or active for none.
func (b *bench) becomes(a *devnet.Account, why rbac.Role) {
	b.t.Helper()
	until(b.t, func() bool { return b.inactive(a.DID.String()) == why }, "the account's status is known")
	b.caughtUp()
}

// TestAccountsThatAreNotActivePause takes an account through each status: its repository is paused with the
// reason, starts nothing, keeps its binding, and comes back by itself.
func TestAccountsThatAreNotActivePause(t *testing.T) {
	t.Parallel()
	for status, words := range map[string]string{
		"takendown": "taken down by its host", "suspended": "suspended by its host", "deactivated": "deactivated by its owner",
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			otis := b.member("otis.test")
			b.run()
			r := b.repo(otis, "tidepool")
			b.caughtUp()
			require.True(t, b.served(r))
			before := b.binding(r)

			require.NoError(t, otis.SetStatus(status))
			b.becomes(otis, rbac.Role(status))
			require.True(t, b.served(r), "paused is not gone")
			require.Equal(t, rbac.Role(status), b.binding(r).Paused)
			var refused *Refusal
			_, err := b.Push(t.Context(), call(r, zeros, commitA))
			require.ErrorAs(t, err, &refused)
			require.Equal(t, rbac.CodeInactive, refused.Code)
			require.Contains(t, refused.Sentence, words)
			_, err = b.Manual(t.Context(), ManualCall{Caller: otis.DID.String(), Repo: r.DID.String(), Commit: commitA, Key: "k"})
			require.ErrorAs(t, err, &refused)
			require.Equal(t, rbac.CodeInactive, refused.Code)
			// The knot still tells of the repository's records: that does not make it gone either.
			require.NoError(t, r.UpdateManifest(func(m map[string]any) { m["defaultBranch"] = "trunk" }))
			b.caughtUp()
			require.True(t, b.served(r))
			require.Equal(t, "main", b.binding(r).DefaultBranch, "what is not proven has no effect")
			require.Empty(t, b.events())

			require.NoError(t, otis.SetStatus(""))
			b.becomes(otis, "")
			after := b.binding(r)
			require.Equal(t, before.Owner, after.Owner)
			require.Equal(t, before.DeclarationCID, after.DeclarationCID)
			require.Equal(t, "trunk", after.DefaultBranch, "what was missed is read when the account is back")
			_, err = b.Push(t.Context(), call(r, zeros, commitA))
			require.NoError(t, err)
			require.Equal(t, 1, b.settleAll())
		})
	}
}

// TestT02AccountFramesAreNotBelieved has the stream call an account taken down, and then deleted, that its host
// calls active.
func TestT02AccountFramesAreNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	r := b.repo(b.alice, "hello")
	b.caughtUp()
	did := b.alice.DID.String()
	for _, status := range []string{"takendown", "deleted"} {
		_, err := b.net.Jetstream().Append(jetstream.Event{DID: did, Kind: "account", Account: &jetstream.Account{DID: did, Status: status}})
		require.NoError(t, err)
		b.caughtUp()
	}
	_, known, err := b.store.Account(t.Context(), did)
	require.NoError(t, err)
	require.True(t, known, "the host was asked")
	require.Empty(t, b.inactive(did))
	require.True(t, b.served(r))
	_, err = b.Push(t.Context(), call(r, zeros, commitA))
	require.NoError(t, err)
}

// TestDeletedAccountsRepositoriesAreGone deletes an account at its PDS, and gives up the DID of another.
func TestDeletedAccountsRepositoriesAreGone(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*bench, *devnet.Account) error{
		"at the PDS": func(_ *bench, a *devnet.Account) error { return a.SetStatus("deleted") },
		"in the directory": func(b *bench, a *devnet.Account) error {
			if err := b.net.Directory().Tombstone(a.DID); err != nil {
				return err
			}
			_, err := b.net.Jetstream().Append(jetstream.Event{DID: a.DID.String(), Kind: "identity", Identity: &jetstream.Identity{DID: a.DID.String()}})
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			otis := b.member("otis.test")
			b.run()
			r, other := b.repo(otis, "tidepool"), b.repo(b.alice, "hello")
			b.caughtUp()
			require.True(t, b.served(r))
			require.NoError(t, end(b, otis))
			b.becomes(otis, rbac.Deleted)
			require.False(t, b.served(r))
			require.Equal(t, "the account of its owner was deleted", b.binding(r).GoneReason)
			require.True(t, b.served(other))
			_, err := b.Push(t.Context(), call(r, zeros, commitA))
			require.ErrorIs(t, err, ErrNotServed)
		})
	}
}

// TestSuspensionThatNoStreamToldOf finds it when a binding is proven again, and the return when somebody pushes.
func TestSuspensionThatNoStreamToldOf(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Clock = ahead{} })
	otis := b.member("otis.test")
	r := b.repo(otis, "tidepool")
	_, err := b.Push(t.Context(), call(r, zeros, commitA))
	require.NoError(t, err)
	require.Equal(t, 1, b.settleAll())
	require.NoError(t, otis.SetStatus("suspended"))
	stale := b.binding(r)
	stale.VerifiedAt = time.Now()
	b.c.Clock = later{4 * 24 * time.Hour}
	var refused *Refusal
	_, err = b.Push(t.Context(), call(r, commitA, commitB))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, rbac.CodeInactive, refused.Code)
	require.True(t, b.served(r))

	require.NoError(t, otis.SetStatus(""))
	_, err = b.Push(t.Context(), call(r, commitA, commitB))
	require.ErrorAs(t, err, &refused, "asked a moment ago")
	b.c.Clock = later{4*24*time.Hour + 2*time.Minute}
	_, err = b.Push(t.Context(), call(r, commitA, commitB))
	require.NoError(t, err)
	require.Empty(t, b.inactive(otis.DID.String()))
}

// later is a clock of some time from now.
type later struct{ by time.Duration }

func (l later) Now() time.Time { return time.Now().Add(l.by) }

func (l later) Sleep(ctx context.Context, d time.Duration) error { return ahead{}.Real.Sleep(ctx, d) }

// TestMovedAccountIsProvenAtItsNewHost moves an account to another PDS: the next record is proven there, at once,
// although the former document is still in memory.
func TestMovedAccountIsProvenAtItsNewHost(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{true, false} {
		b := newBench(t)
		otis := b.member("otis.test")
		b.run()
		r := b.repo(otis, "tidepool")
		b.caughtUp()
		if !told {
			b.net.Jetstream().SetFaults(jetstream.Faults{Drop: func(e jetstream.Event) bool { return e.Kind != "commit" }})
		}
		to, err := b.net.StartPDS(t.Context(), "pds2.test")
		require.NoError(t, err)
		from := b.net.PDS()
		require.NoError(t, otis.Move(to))
		b.caughtUp()
		asked := len(to.Server.Gate.Requests("/xrpc/com.atproto.sync.getRecord"))
		formerly := len(from.Server.Gate.Requests("/xrpc/com.atproto.sync.getRecord"))
		require.NoError(t, r.UpdateManifest(func(m map[string]any) { m["defaultBranch"] = "trunk" }))
		b.caughtUp()
		require.True(t, b.served(r))
		require.Equal(t, "trunk", b.binding(r).DefaultBranch)
		require.Greater(t, len(to.Server.Gate.Requests("/xrpc/com.atproto.sync.getRecord")), asked)
		if told {
			require.Equal(t, formerly, len(from.Server.Gate.Requests("/xrpc/com.atproto.sync.getRecord")), "the former host is not asked any more")
		}
	}
}

// TestRepositoryMovesAndLosesItsKnot moves a repository, takes its knot out of its document, and puts one back.
func TestRepositoryMovesAndLosesItsKnot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	r := b.repo(b.alice, "hello")
	b.caughtUp()
	former := b.binding(r).Knot
	to, err := b.net.StartKnot(t.Context(), "knot2.test")
	require.NoError(t, err)
	require.NoError(t, r.Move(to))
	b.caughtUp()
	require.True(t, b.served(r))
	require.Equal(t, to.Server.Addr(), b.binding(r).Knot)
	var refused *Refusal
	c := call(r, zeros, commitA)
	c.Caller = webDID(former)
	_, err = b.Push(t.Context(), c)
	require.ErrorAs(t, err, &refused, "the former knot speaks for it no more")
	c.Caller = webDID(to.Server.Addr())
	_, err = b.Push(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 1, b.settleAll())

	says := func(endpoint string) {
		require.NoError(t, b.net.Directory().SetService(r.DID, plc.Service{ID: plc.KnotService, Type: plc.KnotType, Endpoint: endpoint}))
		_, err := b.net.Jetstream().Append(jetstream.Event{DID: r.DID.String(), Kind: "identity", Identity: &jetstream.Identity{DID: r.DID.String()}})
		require.NoError(t, err)
		b.caughtUp()
	}
	says("")
	require.False(t, b.served(r))
	require.Contains(t, b.binding(r).GoneReason, "names no usable knot")
	_, err = b.Push(t.Context(), call(r, commitA, commitB))
	require.ErrorIs(t, err, ErrNotServed)
	says(to.Server.URL())
	require.True(t, b.served(r), "heard of although it was gone")
	require.Empty(t, b.binding(r).GoneReason)
}

// TestNewHandleIsToldOn renames an account.
func TestNewHandleIsToldOn(t *testing.T) {
	t.Parallel()
	moved := make(chan string, 64)
	b := newBench(t, func(c *Config) { c.Moved = func(did string) { moved <- did } })
	b.run()
	require.NoError(t, b.alice.Rename("alicia.test"))
	until(t, func() bool {
		select {
		case did := <-moved:
			return did == b.alice.DID.String()
		default:
			return false
		}
	}, "told")
	b.caughtUp()
	a, err := b.c.Prover.Account(t.Context(), b.alice.DID.String())
	require.NoError(t, err)
	require.Equal(t, "alicia.test", a.Handle)
}

// TestOnlyThoseWhoMatterAreAskedAfter tells of strangers.
func TestOnlyThoseWhoMatterAreAskedAfter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob, otis := b.account("bob.test"), b.member("otis.test")
	b.run()
	r := b.repo(b.alice, "hello")
	require.NoError(t, r.AddCollaborator(bob))
	b.caughtUp()
	for did, want := range map[string]bool{
		b.alice.DID.String(): true, otis.DID.String(): true, bob.DID.String(): true, r.DID.String(): true, nobody: false, "": false,
	} {
		for _, kind := range []string{"identity", "account", "commit", "sync"} {
			_, ok := b.AccountHint(t.Context(), did, kind)
			require.Equal(t, want && (kind == "identity" || kind == "account"), ok, "%s of %s", kind, did)
		}
	}
	require.NoError(t, bob.SetStatus("suspended"))
	b.becomes(bob, rbac.Suspended)
	require.False(t, b.may(bob, r), "a collaborator who is not active")
	require.True(t, b.may(b.alice, r))
}

// TestHostThatIsDownDecidesNothingAboutAnAccount keeps what was known until the host answers.
func TestHostThatIsDownDecidesNothingAboutAnAccount(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Clock = &quick{} })
	b.run()
	r := b.repo(b.alice, "hello")
	b.caughtUp()
	b.net.PDS().Server.Gate.Set(fault.Rule{Path: "/xrpc/com.atproto.sync.getRepoStatus", Status: 502})
	require.NoError(t, b.alice.SetStatus("suspended"))
	until(t, func() bool { return b.tries.of("record_postponed") > 0 }, "asked")
	require.Empty(t, b.inactive(b.alice.DID.String()))
	require.True(t, b.served(r))
	b.net.PDS().Server.Gate.Clear()
	b.becomes(b.alice, rbac.Suspended)
}

// TestHintsOfOneAccountLeaveRoomForOthers has one account with hundreds of hints in front.
func TestHintsOfOneAccountLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var e store.Effects
	for i := range 300 {
		e.Rechecks = append(e.Rechecks, store.Recheck{DID: nobody, Collection: ticketNSID, Rkey: key(i)})
	}
	_, err := b.store.Accept(t.Context(), e)
	require.NoError(t, err)
	_, err = b.store.Accept(t.Context(), store.Effects{Rechecks: []store.Recheck{
		{DID: b.alice.DID.String(), Collection: ticketNSID, Rkey: "a"}, {DID: b.alice.DID.String(), Collection: ticketNSID, Rkey: "b"},
	}})
	require.NoError(t, err)
	due, err := b.store.DueRechecks(t.Context(), 20)
	require.NoError(t, err)
	require.Len(t, due, 20)
	require.Equal(t, nobody, due[0].DID)
	require.Equal(t, b.alice.DID.String(), due[1].DID, "one of each account comes first")
}

// TestSlowHostTakesSomeWorkersOnly has a PDS that never answers, with more accounts than there are workers, and
// another that does.
func TestSlowHostTakesSomeWorkersOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	slow, err := b.net.StartPDS(t.Context(), "slow.test")
	require.NoError(t, err)
	var stuck []*devnet.Account
	for i := range 16 {
		a := b.account("slow" + string(rune('a'+i)) + ".test")
		require.NoError(t, a.Move(slow))
		stuck = append(stuck, a)
	}
	began := time.Now()
	slow.Server.Gate.Set(fault.Rule{Path: "/xrpc/com.atproto.sync.", Silence: true})
	b.run()
	for _, a := range stuck {
		_, _, err := a.Put(devnet.Ticket, "3mzzzzzzzzz2e", map[string]any{"repo": nobody, "title": "t", "kind": "pull", "createdAt": day}, "")
		require.NoError(t, err)
	}
	b.heard()
	until(t, func() bool { return len(slow.Server.Gate.Requests("/xrpc/com.atproto.sync.")) >= 4 }, "some are at the slow host")
	r := b.repo(b.alice, "hello")
	until(t, func() bool { return b.served(r) }, "others get on")
	// Who was not answered gives up after five seconds, and then others are let in.
	most := 4 * (2 + int(time.Since(began)/(4*time.Second)))
	require.LessOrEqual(t, len(slow.Server.Gate.Requests("/xrpc/com.atproto.sync.")), most, "no more are at it than may be")
}
