package ingest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/fault"
	"spindle/pipeline"
	"spindle/store"
)

var (
	commitA = strings.Repeat("a", 40)
	commitB = strings.Repeat("b", 40)
	zeros   = strings.Repeat("0", 40)
)

func call(r *devnet.Repo, old, now string) PushCall {
	return PushCall{Caller: r.DID.String(), Repo: r.DID.String(), Ref: "refs/heads/main", Old: old, New: now}
}

// settleAll ends what waits, as a planner would, and returns how many events there were.
func (b *bench) settleAll() (n int) {
	b.t.Helper()
	for {
		es := b.events()
		if len(es) == 0 {
			return n
		}
		for _, e := range es {
			require.NoError(b.t, b.store.SettleEvent(context.Background(), e.ID, store.EventNoMatch, "a test"))
			n++
		}
	}
}

// TestMovesAreToldApart follows one branch through moves that repeat, and notices that repeat.
func TestMovesAreToldApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "hello")
	for i, s := range []struct {
		old, now string
		fresh    bool
	}{
		{zeros, commitA, true},
		{commitA, commitB, true},
		{commitA, commitB, false}, // the same delivery again
		{commitB, commitA, true},
		{commitA, commitB, true}, // the branch moves so once more
		{commitA, commitB, false},
		{commitA, commitB, false},
		{zeros, commitA, false}, // an old delivery, late: the branch did not come from there
		{commitB, commitA, true},
		{commitA, commitB, true},
		{commitB, zeros, true}, // deleted
		{commitB, zeros, false},
		{zeros, commitA, true}, // and made again
		{zeros, commitA, false},
	} {
		a, err := b.Push(t.Context(), call(r, s.old, s.now))
		require.NoError(t, err)
		require.Equal(t, !s.fresh, a.Duplicate, "step %d", i)
		want := 0
		if s.fresh {
			want = 1
		}
		require.Equal(t, want, b.settleAll(), "step %d", i)
	}
	other := call(r, commitA, commitB)
	other.Ref = "refs/heads/other"
	a, err := b.Push(t.Context(), other)
	require.NoError(t, err)
	require.False(t, a.Duplicate, "another branch has moves of its own")
}

// TestSameNoticeWithOtherContentIsAConflict repeats a notice with another option and another actor.
func TestSameNoticeWithOtherContentIsAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "hello")
	_, err := b.Push(t.Context(), call(r, commitA, commitB))
	require.NoError(t, err)
	for _, change := range []func(*PushCall){
		func(c *PushCall) { c.Options = []string{"skip-ci"} },
		func(c *PushCall) { c.Actor = nobody },
	} {
		c := call(r, commitA, commitB)
		change(&c)
		_, err = b.Push(t.Context(), c)
		require.ErrorIs(t, err, store.ErrConflict)
	}
	m := ManualCall{Caller: b.alice.DID.String(), Repo: r.DID.String(), Commit: commitA, Key: "k"}
	_, err = b.Manual(t.Context(), m)
	require.NoError(t, err)
	a, err := b.Manual(t.Context(), m)
	require.NoError(t, err)
	require.True(t, a.Duplicate)
	m.Commit = commitB
	_, err = b.Manual(t.Context(), m)
	require.ErrorIs(t, err, store.ErrConflict)
}

// TestT07WhoMayTellOfAPush has the repository, its knot, its owner and others call.
func TestT07WhoMayTellOfAPush(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob := b.account("bob.test")
	r, others := b.repo(b.alice, "hello"), b.repo(b.alice, "others")
	_, err := b.Push(t.Context(), call(r, zeros, commitA))
	require.NoError(t, err)
	knotDID := "did:web:" + strings.ReplaceAll(b.binding(r).Knot, ":", "%3A")
	for caller, ok := range map[string]bool{
		knotDID: true, r.DID.String(): true, b.alice.DID.String(): false, bob.DID.String(): false, others.DID.String(): false,
		"did:web:" + spindle: false, "did:web:other.test": false, "": false,
	} {
		c := call(r, commitA, commitB)
		c.Caller = caller
		_, err := b.Push(t.Context(), c)
		var refused *Refusal
		if ok {
			require.NoError(t, err, caller)
		} else {
			require.ErrorAs(t, err, &refused, caller)
		}
	}
	require.Equal(t, 6, b.tries.of("push_wrong_caller"))
}

// TestB106RightsAreThoseInTheRepository has people who own repositories elsewhere ask for runs here.
func TestB106RightsAreThoseInTheRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	otis, mal := b.account("otis.test"), b.account("mal.test")
	wrens := b.repo(b.alice, "tidepool")
	mals := b.repo(mal, "tidepool")
	require.NoError(t, wrens.AddCollaborator(otis))
	for i, c := range []struct {
		who  *devnet.Account
		repo *devnet.Repo
		ok   bool
	}{{b.alice, wrens, true}, {otis, wrens, true}, {mal, wrens, false}, {otis, mals, false}, {mal, mals, false}} {
		_, err := b.Manual(t.Context(), ManualCall{Caller: c.who.DID.String(), Repo: c.repo.DID.String(), Commit: commitA, Key: "k"})
		if c.ok {
			require.NoError(t, err, "case %d", i)
			continue
		}
		var refused *Refusal
		require.ErrorAs(t, err, &refused, "case %d", i)
	}
}

// TestB047RefsThatAreRefused is the table of git-check-ref-format and what a command could misread.
func TestB047RefsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{
		"refs/heads/main", "refs/heads/feat/x", "refs/tags/v1.0", "refs/heads/ünïcode/ß", "refs/heads/a{b}", "refs/heads/@",
		"refs/heads/refs/heads/main", "refs/heads/" + strings.Repeat("a", 40), "refs/heads/a@b", "refs/notes/commits",
	} {
		require.NoError(t, checkRef(ref), ref)
	}
	for _, ref := range []string{
		"", "main", "heads/main", "refs", "refs/", "refs//x", "refs/heads/", "/refs/heads/x", "refs/heads/x/", "refs/heads//x",
		"--upload-pack=touch /tmp/pwn", "-q", "refs/heads/-x", "refs/heads/a/-b", "refs/heads/.x", "refs/heads/a/.b", "refs/heads/a..b",
		"refs/heads/x.lock", "refs/heads/a.lock/b", "refs/heads/x.", "refs/heads/a@{1}", "refs/heads/a b", "refs/heads/a\tb", "refs/heads/a\nb",
		"refs/heads/a\x00b", "refs/heads/a\x7fb", "refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b", "refs/heads/a?", "refs/heads/a*",
		"refs/heads/[a", `refs/heads/a\b`, "refs/heads/\xff", "refs/heads/a\u00a0b", "refs/heads/a\u0085b", "refs/heads/" + strings.Repeat("x", 600),
	} {
		require.ErrorIs(t, checkRef(ref), ErrInput, "%q", ref)
	}
}

// TestB049ZeroIDs takes the creation and the deletion of a branch, and refuses what is neither.
func TestB049ZeroIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "hello")
	z64 := strings.Repeat("0", 64)
	for i, c := range []struct {
		old, now string
		ok       bool
	}{
		{zeros, commitA, true}, {commitA, zeros, true}, {"", commitB, true}, {z64, strings.Repeat("c", 64), true},
		{zeros, zeros, false}, {"", zeros, false}, {z64, z64, false}, {commitA, "", false}, {"", "", false},
		{commitA, commitB[:39], false}, {"-p", commitA, false}, {commitA, strings.ToUpper(commitB), false},
	} {
		call := call(r, c.old, c.now)
		call.Ref = fmt.Sprintf("refs/heads/b%d", i)
		_, err := b.Push(t.Context(), call)
		if c.ok {
			require.NoError(t, err, "case %d", i)
		} else {
			require.ErrorIs(t, err, ErrInput, "case %d", i)
		}
	}
}

// TestHugeAndOddInputsAreRefused goes beyond every bound of a call.
func TestHugeAndOddInputsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "hello")
	c := call(r, zeros, commitA)
	for _, options := range [][]string{make([]string, 51), {strings.Repeat("x", 2000)}, {"a\nb"}, {"a\x00b"}} {
		c.Options = options
		_, err := b.Push(t.Context(), c)
		require.ErrorIs(t, err, ErrInput)
	}
	c.Options = []string{strings.Repeat("x", 1024), ""}
	c.Ref = "refs/heads/" + strings.Repeat("x", 501)
	_, err := b.Push(t.Context(), c)
	require.NoError(t, err, "what is within the bounds is accepted")

	good := ManualCall{Caller: b.alice.DID.String(), Repo: r.DID.String(), Commit: commitA, Key: "k"}
	for i, change := range []func(*ManualCall){
		func(m *ManualCall) { m.Commit = "main" },
		func(m *ManualCall) { m.Commit = zeros },
		func(m *ManualCall) { m.Key = "" },
		func(m *ManualCall) { m.Key = strings.Repeat("k", 257) },
		func(m *ManualCall) { m.Inputs = make([]pipeline.Input, 51) },
		func(m *ManualCall) { m.Inputs = []pipeline.Input{{Key: "A=B"}} },
		func(m *ManualCall) { m.Inputs = []pipeline.Input{{Key: "1A"}} },
		func(m *ManualCall) { m.Inputs = []pipeline.Input{{Key: "A", Value: strings.Repeat("v", 5000)}} },
		func(m *ManualCall) { m.Inputs = []pipeline.Input{{Key: "A", Value: "a\x00b"}} },
		func(m *ManualCall) { m.Only = make([]string, 101) },
		func(m *ManualCall) { m.Only = []string{strings.Repeat("w", 300)} },
		func(m *ManualCall) { m.Ref = "main" },
	} {
		m := good
		change(&m)
		_, err := b.Manual(t.Context(), m)
		require.ErrorIs(t, err, ErrInput, "case %d", i)
	}
	_, err = b.Retry(t.Context(), RetryCall{Caller: b.alice.DID.String(), Repo: r.DID.String(), Pipeline: "3mzzzzzzzzz2a"})
	require.ErrorIs(t, err, ErrInput, "a retry without a key")
	_, err = b.Retry(t.Context(), RetryCall{Caller: b.alice.DID.String(), Repo: r.DID.String(), Pipeline: "3mzzzzzzzzz2a", Key: "k"})
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestServersThatDoNotAnswer turns off the knot, the PDS and the directory: the caller may come again.
func TestServersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var r *devnet.Repo
	down := func(name string, s *fault.Server) {
		r = b.repo(b.alice, name) // one that nobody has asked about yet
		s.Gate.Set(fault.Rule{Status: 503})
		_, err := b.Push(t.Context(), call(r, zeros, commitA))
		require.ErrorIs(t, err, ErrUnreachable, name)
		s.Gate.Clear()
	}
	down("knot", b.net.Knot().Server)
	down("pds", b.net.PDS().Server)
	_, err := b.Push(t.Context(), call(r, zeros, commitA))
	require.NoError(t, err, "all answer again")
	b.net.Knot().Server.Gate.Set(fault.Rule{Status: 503})
	_, err = b.Manual(t.Context(), ManualCall{Caller: b.alice.DID.String(), Repo: r.DID.String(), Commit: commitA, Ref: "refs/heads/main", Key: "k"})
	require.ErrorIs(t, err, ErrUnreachable)
	b.net.Knot().Server.Gate.Clear()
	down("plc", b.net.PLCServer())
}

// TestManualRefMustHoldTheCommit proves the ref that a run would claim.
func TestManualRefMustHoldTheCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "hello")
	on := func(branch string) string {
		p, err := r.Push(t.Context(), devnet.Change{Branch: branch, Files: map[string]string{branch: "x"}})
		require.NoError(t, err)
		return p.SHA
	}
	main, side := on("main"), on("side")
	ask := func(ref, commit string) error {
		_, err := b.Manual(t.Context(), ManualCall{Caller: b.alice.DID.String(), Repo: r.DID.String(), Commit: commit, Ref: ref, Key: ref + commit})
		return err
	}
	require.NoError(t, ask("refs/heads/main", main))
	require.NoError(t, ask("refs/heads/side", main), "the side branch began at main")
	var refused *Refusal
	require.ErrorAs(t, ask("refs/heads/main", side), &refused)
	require.Equal(t, "RefNotFound", refused.Code)
	require.ErrorAs(t, ask("refs/heads/none", main), &refused)
	require.Equal(t, "RefNotFound", refused.Code)
}

// TestRepositoryThatLeftUnheardIsFoundOut pushes a day after the last proof, when the stream told nothing.
func TestRepositoryThatLeftUnheardIsFoundOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "hello")
	_, err := b.Push(t.Context(), call(r, zeros, commitA))
	require.NoError(t, err)
	require.NoError(t, r.SetSpindle("other.test"))
	old := b.binding(r)
	_, err = b.Push(t.Context(), call(r, commitA, commitB))
	require.NoError(t, err, "today's proof is believed")
	later := b.c
	later.Clock = ahead{}
	_, err = New(later).Push(t.Context(), call(r, commitB, commitA))
	require.ErrorIs(t, err, ErrNotServed)
	require.False(t, b.served(r))
	require.True(t, old.VerifiedAt.Before(b.binding(r).VerifiedAt))
	_, err = b.Push(t.Context(), call(r, commitB, commitA))
	require.ErrorIs(t, err, ErrNotServed)
}
