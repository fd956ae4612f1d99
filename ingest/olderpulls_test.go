package ingest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/fault"
	"spindle/devnet/pds"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

const olderRkey = "3mzzzzzzzzz2p"

// olderPut writes a pull request of the older generation.
func (b *bench) olderPut(by *devnet.Account, rkey, target string, fields map[string]any) {
	b.t.Helper()
	rec := map[string]any{"title": "t", "target": map[string]any{"repo": target, "branch": "main"}, "createdAt": day}
	for k, v := range fields {
		rec[k] = v
	}
	_, _, err := by.Put(olderPullNSID, rkey, rec, "")
	require.NoError(b.t, err)
}

func source(repo, branch, sha string) map[string]any {
	m := map[string]any{"branch": branch}
	if repo != "" {
		m["repo"] = repo
	}
	if sha != "" {
		m["sha"] = sha
	}
	return map[string]any{"source": m}
}

// older is a target with a commit, an author who is a stranger, and a fork of theirs.
func older(t *testing.T) (b *bench, r *devnet.Repo, bob *devnet.Account, fork *devnet.Repo, head func(n string) string) {
	t.Helper()
	b = newBench(t)
	b.run()
	b.net.Knot().SetFaults(silent)
	r = b.repo(b.alice, "hello")
	bob = b.account("bob.test")
	_, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"a": "1"}})
	require.NoError(t, err)
	fork, err = b.net.Fork(t.Context(), bob, r, devnet.RepoOptions{Older: true})
	require.NoError(t, err)
	b.caughtUp()
	return b, r, bob, fork, func(n string) string {
		p, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "fix", Files: map[string]string{"b": n}})
		require.NoError(t, err)
		return p.SHA
	}
}

// TestTheOlderPullRequestFromItsOpeningToItsEnd follows edits, which are rounds, and the record's end.
func TestTheOlderPullRequestFromItsOpeningToItsEnd(t *testing.T) {
	t.Parallel()
	b, r, bob, fork, head := older(t)
	target := "at://" + b.alice.DID.String() + "/" + olderRepoNSID + "/" + r.Rkey
	from := "at://" + bob.DID.String() + "/" + olderRepoNSID + "/" + fork.Rkey
	one := head("1")
	b.olderPut(bob, olderRkey, target, source(from, "fix", one))
	b.caughtUp()
	es := b.of(r)
	require.Len(t, es, 1)
	pull := es[0].Trigger.Pull
	require.Equal(t, fork.DID.String(), pull.SourceRepo, "source and target are apart")
	require.Equal(t, []string{"fix", "main", one}, []string{pull.SourceBranch, pull.TargetBranch, es[0].Trigger.Commit})
	require.Equal(t, bob.DID.String(), es[0].Trigger.Actor)
	require.Equal(t, pipeline.FromRecord, es[0].Trigger.ActorSource)
	require.Contains(t, es[0].Trigger.Key, pull.RoundCID, "one key for each state of the record")
	require.Equal(t, r.DID.String()+" "+fork.DID.String(), es[0].Lane, "a fork waits in a lane of its own")
	require.Equal(t, []string{"opened " + one[:7]}, b.actions(r))

	fields := source(from, "fix", one)
	fields["title"] = "better words"
	b.olderPut(bob, olderRkey, target, fields)
	require.Empty(t, b.actions(r), "what it proposes is the same")

	two := head("2")
	b.olderPut(bob, olderRkey, target, source(fork.DID.String(), "fix", two))
	b.caughtUp()
	require.NotEqual(t, pull.RoundCID, b.of(r)[0].Trigger.Pull.RoundCID)
	require.Equal(t, []string{"synchronize " + two[:7]}, b.actions(r))

	three := head("3")
	b.olderPut(bob, olderRkey, target, source(from, "fix", three))
	b.caughtUp()
	es = b.of(r)
	require.Len(t, es, 1)
	_, err := bob.Delete(olderPullNSID, olderRkey)
	require.NoError(t, err)
	b.caughtUp()
	require.Empty(t, b.of(r), "what waited is withdrawn")
	v, ok, err := b.store.EventByKey(t.Context(), es[0].Trigger.Key)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, store.EventSkipped, v.State)
	require.Contains(t, v.Reason, "withdrawn")

	b.olderPut(bob, "3mzzzzzzzzz2q", target, source(from, "fix", three))
	b.caughtUp()
	require.Len(t, b.of(r), 1)
	b.olderPut(bob, "3mzzzzzzzzz2q", fork.DID.String(), source(from, "fix", three))
	b.caughtUp()
	require.Empty(t, b.of(fork), "it does not move, and the fork is not served")
}

// TestAnOlderRecordWithoutACommitIsResolvedOrRefused asks the source's own knot, and refuses what no repository holds.
func TestAnOlderRecordWithoutACommitIsResolvedOrRefused(t *testing.T) {
	t.Parallel()
	b, r, bob, fork, head := older(t)
	one := head("1")
	patch := map[string]any{"patch": "diff --git a/a b/a\n"}
	b.olderPut(bob, olderRkey, r.DID.String(), patch)
	require.Empty(t, b.actions(r))
	require.Equal(t, 1, b.tries.of("pull_without_commit"), "a patch alone")
	b.olderPut(bob, olderRkey, r.DID.String(), source(fork.DID.String(), "gone", ""))
	require.Empty(t, b.actions(r))
	require.Equal(t, 2, b.tries.of("pull_without_commit"), "no such branch")
	for name, fields := range map[string]map[string]any{
		"zeros":        source(fork.DID.String(), "fix", strings.Repeat("0", 40)),
		"short":        source(fork.DID.String(), "fix", one[:12]),
		"option":       source(fork.DID.String(), "--upload-pack=x", one),
		"handle":       source("at://bob.test/"+olderRepoNSID+"/"+fork.Rkey, "fix", one),
		"other record": source("at://"+bob.DID.String()+"/a.b.c/"+fork.Rkey, "fix", one),
		"no record":    source("at://"+bob.DID.String()+"/"+olderRepoNSID+"/none", "fix", one),
	} {
		before := b.tries.of("record_refused")
		b.olderPut(bob, olderRkey, r.DID.String(), fields)
		require.Empty(t, b.actions(r), name)
		require.Greater(t, b.tries.of("record_refused"), before, name)
	}

	fields := source(fork.DID.String(), "fix", "")
	fields["patch"] = patch["patch"]
	b.olderPut(bob, olderRkey, r.DID.String(), fields)
	require.Equal(t, []string{"opened " + one[:7]}, b.actions(r))
	two := head("2")
	fields["title"] = "again"
	b.olderPut(bob, olderRkey, r.DID.String(), fields)
	require.Equal(t, []string{"synchronize " + two[:7]}, b.actions(r), "the branch is elsewhere by now")
}

// TestB119AnOlderPullRequestOfAStranger proposes from a fork, from a branch of the target, and from what it says is the
// target: whose right it is that counts is the author's, who has none.
func TestB119AnOlderPullRequestOfAStranger(t *testing.T) {
	t.Parallel()
	b, r, mal, fork, head := older(t)
	evil := head("env | base64")
	wren, err := r.Push(t.Context(), devnet.Change{Branch: "wren", Files: map[string]string{"a": "2"}})
	require.NoError(t, err)
	b.caughtUp()
	for i, fields := range []map[string]any{
		source(fork.DID.String(), "fix", evil), source("", "wren", wren.SHA), source("", "wren", ""), source(r.DID.String(), "wren", wren.SHA),
	} {
		b.olderPut(mal, "3mzzzzzzzzz2"+string(rune('a'+i)), r.DID.String(), fields)
	}
	b.caughtUp()
	g, err := b.store.Gate(t.Context())
	require.NoError(t, err)
	var es []store.Event
	for { // one of each lane at a time
		next := b.of(r)
		if len(next) == 0 {
			break
		}
		es = append(es, next...)
		for _, e := range next {
			require.NoError(t, b.store.SettleEvent(t.Context(), e.ID, store.EventNoMatch, "a test"))
		}
	}
	require.Len(t, es, 4)
	for _, e := range es {
		require.Equal(t, mal.DID.String(), e.Trigger.Actor, "never the owner of what it names")
		require.False(t, g.May(e.Trigger.Actor, rbac.Push, rbac.Repo{DID: r.DID.String(), Owner: b.alice.DID.String()}).Allowed)
		require.Empty(t, e.Trigger.Ref, "no branch of the target is what runs")
	}
}

// TestAForgedOlderPullRequestStartsNothing tells of records that nobody signed.
func TestAForgedOlderPullRequestStartsNothing(t *testing.T) {
	t.Parallel()
	b, r, bob, fork, head := older(t)
	rec := map[string]any{"title": "t", "target": map[string]any{"repo": r.DID.String(), "branch": "main"}, "createdAt": day}
	rec["source"] = source(fork.DID.String(), "fix", head("1"))["source"]
	for i := range 20 {
		_, err := b.net.Jetstream().Forge(bob.DID.String(), pds.Create, olderPullNSID, "3mzzzzzzzzz2"+string(rune('a'+i)), rec)
		require.NoError(t, err)
	}
	require.Empty(t, b.actions(r))
}

// TestASlowForkDoesNotHoldPushesOfTheTarget has many pull requests from a knot that does not answer.
func TestASlowForkDoesNotHoldPushesOfTheTarget(t *testing.T) {
	t.Parallel()
	b, r, _, _, _ := older(t)
	far, err := b.net.StartKnot(t.Context(), "far.test")
	require.NoError(t, err)
	mal := b.account("mal.test")
	fork, err := b.net.Fork(t.Context(), mal, r, devnet.RepoOptions{Knot: far})
	require.NoError(t, err)
	far.Server.Gate.Set(fault.Rule{Silence: true})
	for i := range 12 {
		by := b.account("m" + string(rune('a'+i)) + ".test")
		b.olderPut(by, olderRkey, r.DID.String(), source(fork.DID.String(), "main", ""))
	}
	b.heard()
	bob := b.account("friend.test")
	require.NoError(t, r.AddCollaborator(bob))
	until(t, func() bool {
		g, err := b.store.Gate(context.Background())
		return err == nil && g.May(bob.DID.String(), rbac.Push, rbac.Repo{DID: r.DID.String(), Owner: b.alice.DID.String()}).Allowed
	}, "a record of the target is proven meanwhile")
	far.Server.Gate.Clear()
}
