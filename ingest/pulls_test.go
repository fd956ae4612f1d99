package ingest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// actions lists what the pull request events of a repository ask for, in order, and ends them.
func (b *bench) actions(r *devnet.Repo) (out []string) {
	b.t.Helper()
	b.caughtUp()
	for {
		es := b.of(r)
		if len(es) == 0 {
			return out
		}
		for _, e := range es {
			require.Equal(b.t, pipeline.PullRequest, e.Trigger.Kind)
			out = append(out, e.Trigger.Pull.Action+" "+e.Trigger.Pull.Head[:7])
			require.NoError(b.t, b.store.SettleEvent(context.Background(), e.ID, store.EventNoMatch, "a test"))
		}
	}
}

// TestThePullRequestFromItsOpeningToItsEnd follows rounds, a withdrawn one, a close, a reopening and a merge.
func TestThePullRequestFromItsOpeningToItsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	b.net.Knot().SetFaults(silent)
	r := b.repo(b.alice, "hello")
	bob := b.account("bob.test")
	_, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"a": "1"}})
	require.NoError(t, err)
	fork, err := b.net.Fork(t.Context(), bob, r, devnet.RepoOptions{})
	require.NoError(t, err)
	head := func(n string) string {
		p, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "fix", Files: map[string]string{"b": n}})
		require.NoError(t, err)
		return p.SHA[:7]
	}
	b.caughtUp()
	one := head("1")
	pull, err := b.net.OpenPull(t.Context(), bob, r, fork, devnet.PullOptions{Branch: "fix"})
	require.NoError(t, err)
	b.caughtUp()
	es := b.of(r)
	require.Len(t, es, 1)
	require.Equal(t, fork.DID.String(), es[0].Trigger.Pull.SourceRepo, "source and target are apart")
	require.Equal(t, r.DID.String()+" "+fork.DID.String(), es[0].Lane, "a fork waits in a lane of its own")
	require.Equal(t, []string{"opened " + one}, b.actions(r))
	require.NoError(t, pull.SetState("open"))
	require.Empty(t, b.actions(r), "told again, nothing has changed")

	two := head("2")
	_, err = pull.Resubmit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"synchronize " + two}, b.actions(r))
	three := head("3")
	round, err := pull.Resubmit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"synchronize " + three}, b.actions(r))
	_, err = bob.Delete(devnet.Patch, round.Rkey)
	require.NoError(t, err)
	require.Empty(t, b.actions(r))

	require.NoError(t, pull.SetState("closed"))
	require.Equal(t, []string{"closed " + two}, b.actions(r), "the third round was withdrawn")
	four := head("4")
	_, err = pull.Resubmit(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.actions(r), "it is closed")
	require.NoError(t, pull.SetState("open"))
	require.Equal(t, []string{"reopened " + four}, b.actions(r))
	require.NoError(t, pull.SetState("merged"))
	require.Equal(t, []string{"closed " + four}, b.actions(r), "a stranger says merged, and the target does not hold it")
	require.Equal(t, 1, b.tries.of("pull_not_merged"))
}

// TestMergedIsBelievedWhenTheTargetHoldsIt has a collaborator merge and the author say so.
func TestMergedIsBelievedWhenTheTargetHoldsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	b.net.Knot().SetFaults(silent)
	r := b.repo(b.alice, "hello")
	bob := b.account("bob.test")
	_, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"a": "1"}})
	require.NoError(t, err)
	p, err := r.Push(t.Context(), devnet.Change{Branch: "fix", Files: map[string]string{"a": "2"}})
	require.NoError(t, err)
	b.caughtUp()
	pull, err := b.net.OpenPull(t.Context(), bob, r, r, devnet.PullOptions{Branch: "fix"})
	require.NoError(t, err)
	require.Equal(t, []string{"opened " + p.SHA[:7]}, b.actions(r))
	_, err = b.net.KnotOf(r).Git(t.Context(), r.Git.Dir, "update-ref", "refs/heads/main", p.SHA)
	require.NoError(t, err)
	require.NoError(t, pull.SetState("merged"))
	require.Equal(t, []string{"merged " + p.SHA[:7]}, b.actions(r))
}

// TestAPullRequestDoesNotMove edits a thread so that it names another repository.
func TestAPullRequestDoesNotMove(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	b.net.Knot().SetFaults(silent)
	r, other := b.repo(b.alice, "hello"), b.repo(b.alice, "other")
	for _, x := range []*devnet.Repo{r, other} {
		_, err := x.Push(t.Context(), devnet.Change{Files: map[string]string{"a": "1"}})
		require.NoError(t, err)
	}
	b.caughtUp()
	pull, err := b.net.OpenPull(t.Context(), b.alice, r, r, devnet.PullOptions{})
	require.NoError(t, err)
	require.Len(t, b.actions(r), 1)
	_, _, err = b.alice.Put(devnet.Ticket, pull.TicketRkey, map[string]any{
		"repo": other.DID.String(), "title": "t", "kind": "pull", "createdAt": day}, "")
	require.NoError(t, err)
	_, err = pull.Resubmit(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.actions(r))
	require.Empty(t, b.actions(other))
	require.Positive(t, b.tries.of("pull_moved"))
}

// admits tells whether the repositories of an account are served here.
func (b *bench) admits(did string) bool {
	b.t.Helper()
	g, err := b.store.Gate(context.Background())
	require.NoError(b.t, err)
	return g.Admit(rbac.Repo{DID: did, Owner: did}).Allowed
}

// TestB107OnlyRecordsOfTheOwnerForThisSpindleAdmit writes records in one's own account, for other names, and of no DID.
func TestB107OnlyRecordsOfTheOwnerForThisSpindleAdmit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	mal, otis := b.account("mal.test"), b.account("otis.test")
	put := func(by *devnet.Account, rkey, instance, subject string) {
		_, _, err := by.Put(memberNSID, rkey, map[string]any{"instance": instance, "subject": subject, "createdAt": day}, "")
		require.NoError(t, err)
	}
	put(mal, "3mzzzzzzzzz2a", spindle, mal.DID.String())
	for i, instance := range []string{"SPINDLE.test", spindle + ".", spindle + ":443", "evil-" + spindle} {
		put(b.alice, "3mzzzzzzzzz2"+string(rune('b'+i)), instance, mal.DID.String())
	}
	put(b.alice, "3mzzzzzzzzz2g", spindle, "mal.test")
	put(b.alice, "3mzzzzzzzzz2h", spindle, " "+mal.DID.String())
	b.caughtUp()
	require.False(t, b.admits(mal.DID.String()))

	put(b.alice, "3mzzzzzzzzz2i", spindle, otis.DID.String())
	put(b.alice, "3mzzzzzzzzz2j", spindle, otis.DID.String())
	b.caughtUp()
	require.True(t, b.admits(otis.DID.String()))
	_, err := b.alice.Delete(memberNSID, "3mzzzzzzzzz2i")
	require.NoError(t, err)
	b.caughtUp()
	require.True(t, b.admits(otis.DID.String()), "another record still says so")
	put(b.alice, "3mzzzzzzzzz2j", spindle, mal.DID.String())
	b.caughtUp()
	require.False(t, b.admits(otis.DID.String()))
	require.True(t, b.admits(mal.DID.String()), "the record names somebody else now")
	_, err = b.alice.Delete(memberNSID, "3mzzzzzzzzz2j")
	require.NoError(t, err)
	b.caughtUp()
	require.False(t, b.admits(mal.DID.String()))
}

// TestB002AMemberThatNoStreamTellsOf is found at the start.
func TestB002AMemberThatNoStreamTellsOf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	otis := b.account("otis.test")
	_, _, err := b.alice.Put(memberNSID, "3mzzzzzzzzz2a", map[string]any{"instance": spindle, "subject": otis.DID.String(), "createdAt": day}, "")
	require.NoError(t, err)
	b.run()
	until(t, func() bool { return b.admits(otis.DID.String()) }, "admitted")
}

// TestB011ALateHintDoesNotOvertakeADelete tells again of a record that is gone, after it went.
func TestB011ALateHintDoesNotOvertakeADelete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	otis := b.account("otis.test")
	rec := map[string]any{"instance": spindle, "subject": otis.DID.String(), "createdAt": day}
	_, _, err := b.alice.Put(memberNSID, "3mzzzzzzzzz2a", rec, "")
	require.NoError(t, err)
	_, err = b.alice.Delete(memberNSID, "3mzzzzzzzzz2a")
	require.NoError(t, err)
	_, err = b.net.Jetstream().Forge(b.alice.DID.String(), "create", memberNSID, "3mzzzzzzzzz2a", rec)
	require.NoError(t, err)
	var quick []*devnet.Account
	for i, name := range []string{"one.test", "two.test", "three.test"} {
		a := b.account(name)
		quick = append(quick, a)
		_, _, err := b.alice.Put(memberNSID, "3mzzzzzzzzz3"+string(rune('a'+i)), map[string]any{"instance": spindle, "subject": a.DID.String(), "createdAt": day}, "")
		require.NoError(t, err)
	}
	b.caughtUp()
	require.False(t, b.admits(otis.DID.String()))
	for _, a := range quick {
		require.True(t, b.admits(a.DID.String()))
	}
}

// TestCollaboratorsByTheOwnersOlderRecords counts the owner's records and nobody else's.
func TestCollaboratorsByTheOwnersOlderRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	r := b.repo(b.alice, "hello")
	bob, mal := b.account("bob.test"), b.account("mal.test")
	put := func(by *devnet.Account, rkey, repo string, who *devnet.Account) {
		_, _, err := by.Put(olderCollaboratorNSID, rkey, map[string]any{"repo": repo, "subject": who.DID.String(), "createdAt": day}, "")
		require.NoError(t, err)
	}
	put(b.alice, "3mzzzzzzzzz2a", "at://"+b.alice.DID.String()+"/"+olderRepoNSID+"/"+r.Rkey, bob)
	put(mal, "3mzzzzzzzzz2b", r.DID.String(), mal)
	b.caughtUp()
	require.True(t, b.may(bob, r))
	require.False(t, b.may(mal, r))
	_, err := b.alice.Delete(olderCollaboratorNSID, "3mzzzzzzzzz2a")
	require.NoError(t, err)
	b.caughtUp()
	require.False(t, b.may(bob, r))
}
