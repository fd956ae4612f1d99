package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
	"spindle/rbac"
)

// An account that stops being active pauses what it owns, and loses nothing: what waits is refused when its turn
// comes, what runs is handed no secrets, and the binding is the same when it is active again.
func TestAccountsPauseAndComeBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	run := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	c := b.mustClaim()
	wait := b.mustPlan(repoA, alice, "dev", flow("test", pipeline.Waiting))
	before, _, err := b.Repo(b.ctx(), repoA)
	require.NoError(t, err)
	b.account(alice, rbac.Takendown)

	var r *Refusal
	require.ErrorAs(t, b.MarkReleased(b.ctx(), c.Lease), &r)
	require.Equal(t, rbac.CodeInactive, r.Decision.Code)
	_, err = b.Apply(b.ctx(), run.ID, "test", pipeline.Finished{Epoch: 1, Status: pipeline.Passed})
	require.NoError(t, err)
	require.Nil(t, b.claim(anyWork))
	w := b.get(wait.ID).Workflows[0]
	require.Equal(t, pipeline.Refused, w.Status)
	require.Contains(t, w.Reason, "taken down by its host")
	paused, _, err := b.Repo(b.ctx(), repoA)
	require.NoError(t, err)
	require.Equal(t, rbac.Takendown, paused.Paused)
	list, err := b.Paused(b.ctx())
	require.NoError(t, err)
	require.Len(t, list, 1)

	b.reopen()
	_, err = b.plan(repoA, alice, "main", flow("test", pipeline.Waiting))
	require.ErrorAs(t, err, &r, "a restart forgets nothing")

	b.account(alice, "")
	after, _, err := b.Repo(b.ctx(), repoA)
	require.NoError(t, err)
	require.Equal(t, before, after)
	b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	require.NotNil(t, b.claim(anyWork))
	require.NoError(t, b.AuditVerify(b.ctx()))
}

// Of two answers of a host the later counts, whichever is written last.
func TestOlderAnswerAboutAnAccountLoses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	early := b.clock.Now()
	b.account(alice, rbac.Suspended)
	_, err := b.Accept(b.ctx(), Effects{Accounts: []Account{{DID: alice, CheckedAt: early}}})
	require.NoError(t, err)
	a, known, err := b.Account(b.ctx(), alice)
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, rbac.Suspended, a.Inactive)
	b.clock.Advance(-2 * time.Hour)
	_, err = b.Accept(b.ctx(), Effects{Accounts: []Account{{DID: alice, CheckedAt: b.clock.Now()}}})
	require.NoError(t, err)
	a, _, err = b.Account(b.ctx(), alice)
	require.NoError(t, err)
	require.Empty(t, a.Inactive, "a clock that was set back does not keep an answer for ever")
	_, err = b.Accept(b.ctx(), Effects{Accounts: []Account{{DID: alice, Inactive: "owner", CheckedAt: b.clock.Now()}}})
	require.Error(t, err, "no status is a role")
}

// Why a repository is gone is told to whoever asks for a run.
func TestGoneRepositorySaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	b.clock.Advance(time.Second)
	_, err := b.Accept(b.ctx(), Effects{Repos: []RepoBinding{{Repo: repoA, Owner: alice, VerifiedAt: b.clock.Now(), Gone: true, GoneReason: "its document names no knot"}}})
	require.NoError(t, err)
	_, err = b.plan(repoA, alice, "main", flow("test", pipeline.Waiting))
	var r *Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, CodeGone, r.Decision.Code)
	require.Contains(t, r.Decision.Sentence, "its document names no knot")
}
