package store

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/pipeline"
	"spindle/rbac"
)

const (
	boss  = "did:plc:bossbossbossbossbossboss"
	alice = "did:plc:alicealicealicealiceali2"
	bob   = "did:plc:bobbobbobbobbobbobbobbo2"
	carol = "did:plc:carolcarolcarolcarolcar2"
	repoA = "did:plc:repoarepoarepoarepoarep2"
	repoB = "did:plc:repobrepobrepobrepobrep2"
)

func TestMain(m *testing.M) {
	if crashChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// bench is an open store with a clock that only the test moves.
type bench struct {
	*Store
	t     testing.TB
	clock *clock.Manual
	ids   *tid.Source
	path  string
	keys  int
}

func newBench(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "spindle.db"), clock: clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))}
	b.ids = tid.New(b.clock)
	b.open(change...)
	t.Cleanup(func() {
		if b.Store != nil {
			require.NoError(t, b.Close())
		}
	})
	return b
}

func (b *bench) config(change ...func(*Config)) Config {
	c := Config{Path: b.path, Clock: b.clock, Admission: rbac.Open, Owner: boss, AuditKey: []byte("test")}
	for _, f := range change {
		f(&c)
	}
	return c
}

func (b *bench) open(change ...func(*Config)) {
	b.t.Helper()
	s, err := Open(b.ctx(), b.config(change...))
	require.NoError(b.t, err)
	b.Store = s
}

func (b *bench) reopen(change ...func(*Config)) {
	b.t.Helper()
	require.NoError(b.t, b.Close())
	b.Store = nil
	b.open(change...)
}

func (b *bench) ctx() context.Context {
	return context.Background() // outlives the test's own context, for the cleanup
}

func (b *bench) bind(repo, owner string) {
	b.t.Helper()
	_, err := b.Accept(b.ctx(), Effects{Repos: []RepoBinding{{Repo: repo, Owner: owner, Rkey: "self", Name: "hello", Knot: "knot.example",
		VerifiedAt: b.clock.Now()}}})
	require.NoError(b.t, err)
}

func (b *bench) trigger(repo, actor, branch string) pipeline.Trigger {
	b.keys++
	return pipeline.Trigger{Key: fmt.Sprintf("key-%d", b.keys), Kind: pipeline.Push, Repo: repo, Actor: actor, Ref: "refs/heads/" + branch,
		Commit: fmt.Sprintf("%040x", b.keys), At: b.clock.Now()}
}

// plan accepts a trigger and enqueues a pipeline with the given workflows for it.
func (b *bench) plan(repo, owner, branch string, ws ...pipeline.Workflow) (pipeline.Pipeline, error) {
	b.t.Helper()
	tr := b.trigger(repo, owner, branch)
	a, err := b.Accept(b.ctx(), Effects{Event: &tr})
	require.NoError(b.t, err)
	return b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: pipeline.ID(b.ids.Next()), Repo: repo, Owner: owner,
		Trust: pipeline.TrustBranch, Workflows: ws}})
}

func (b *bench) mustPlan(repo, owner, branch string, ws ...pipeline.Workflow) pipeline.Pipeline {
	b.t.Helper()
	p, err := b.plan(repo, owner, branch, ws...)
	require.NoError(b.t, err)
	return p
}

func flow(name string, s pipeline.Status, labels ...string) pipeline.Workflow {
	return pipeline.Workflow{Name: name, File: ".tangled/workflows/" + name + ".yml", Engine: "dummy", Status: s, Labels: labels,
		Spec: []byte(`{"name":"` + name + `"}`), Digest: "d-" + name}
}

var anyWork = ClaimRequest{Holder: "local/1", Engines: []string{"dummy"}, TTL: time.Minute}

func (b *bench) claim(r ClaimRequest) *Claimed {
	b.t.Helper()
	c, err := b.Claim(b.ctx(), r)
	require.NoError(b.t, err)
	return c
}

func (b *bench) mustClaim() *Claimed {
	b.t.Helper()
	c := b.claim(anyWork)
	require.NotNil(b.t, c)
	return c
}

func (b *bench) get(id pipeline.ID) pipeline.Pipeline {
	b.t.Helper()
	p, ok, err := b.Pipeline(b.ctx(), id)
	require.NoError(b.t, err)
	require.True(b.t, ok)
	return p
}

// The life of one push, from the trigger to the last step.
func TestLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := b.ctx()
	b.bind(repoA, alice)
	rang := b.Changed()
	p := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting), flow("bad", pipeline.Invalid))
	<-rang
	require.Equal(t, pipeline.Waiting, p.Status)

	again, err := b.Enqueue(ctx, Plan{Event: 1, Pipeline: pipeline.Pipeline{ID: "other", Repo: repoA, Owner: alice}})
	require.NoError(t, err)
	require.Equal(t, p.ID, again.ID, "an event has one pipeline")

	c := b.mustClaim()
	require.Equal(t, p.ID, c.Pipeline.ID)
	require.Equal(t, `{"name":"test"}`, string(c.Workflow.Spec))
	require.Equal(t, pipeline.Preparing, c.Workflow.Status)
	require.Equal(t, int64(1), c.Lease.Epoch)
	require.Nil(t, b.claim(anyWork))

	require.NoError(t, b.StartStep(ctx, c.Lease, pipeline.Step{Index: 0, Name: "build", Kind: pipeline.UserStep}))
	require.Equal(t, pipeline.Running, b.get(p.ID).Status)
	b.clock.Advance(time.Second)
	require.NoError(t, b.EndStep(ctx, c.Lease, pipeline.Step{Index: 0, Name: "build", Kind: pipeline.UserStep, Status: pipeline.Passed}))
	w, err := b.Apply(ctx, p.ID, "test", pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Passed})
	require.NoError(t, err)
	require.Equal(t, pipeline.Passed, w.Status)

	got := b.get(p.ID)
	require.Equal(t, pipeline.Invalid, got.Status, "the worst end sums up")
	require.False(t, got.FinishedAt.IsZero())
	require.Len(t, got.Workflows, 2)
	require.Len(t, got.Workflows[0].Steps, 1)
	require.Equal(t, pipeline.Passed, got.Workflows[0].Steps[0].Status)
	require.Equal(t, time.Second, got.Workflows[0].Steps[0].FinishedAt.Sub(got.Workflows[0].Steps[0].StartedAt))

	_, err = b.Apply(ctx, p.ID, "test", pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Failed})
	require.ErrorIs(t, err, pipeline.ErrEnded)

	cs, err := b.Changes(ctx, 0, 100)
	require.NoError(t, err)
	last, err := b.LastChange(ctx)
	require.NoError(t, err)
	require.Equal(t, last, cs[len(cs)-1].Number)
	for i := 1; i < len(cs); i++ {
		require.Greater(t, cs[i].Number, cs[i-1].Number)
	}
	st, err := b.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, Stats{Passed24h: 1, Finished24h: 2}, st)

	list, total, err := b.Pipelines(ctx, Query{Repo: repoA, Commits: []string{got.Trigger.Commit}, Kinds: []pipeline.Kind{pipeline.Push},
		Statuses: []pipeline.Status{pipeline.Invalid}})
	require.NoError(t, err)
	require.Equal(t, 1, total)
	require.Len(t, list, 1)
	require.Len(t, list[0].Workflows, 2)
	require.NoError(t, b.Ping(ctx))
}
