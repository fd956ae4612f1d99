package store

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
	"spindle/rbac"
)

// TestB108PolicyChangesUnderLoad asks two questions without end, whose answers never change, while members come and
// go and a repository's people are read again and again. A reading that fails is an error and never an answer.
func TestB108PolicyChangesUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Admission = rbac.Closed })
	require.NoError(t, b.Allow(b.ctx(), alice, boss))
	b.bind(repoA, alice)
	ctx, stop := context.WithTimeout(b.ctx(), 1500*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	var asked atomic.Int64
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				g, err := b.Gate(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				asked.Add(1)
				q := rbac.Repo{DID: repoA, Owner: alice}
				if d := g.May(alice, rbac.Push, q); !d.Allowed {
					t.Errorf("refused in between: %+v", d)
				}
				if g.May(bob, rbac.Push, q).Allowed {
					t.Error("a stranger was let in")
				}
			}
		})
	}
	for i := range 4 {
		did := "did:plc:" + string(rune('w'+i)) + alice[9:]
		wg.Go(func() {
			for ctx.Err() == nil {
				if b.Allow(b.ctx(), did, boss) != nil || b.Disallow(b.ctx(), did, boss) != nil {
					t.Error("a change failed")
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			_, err := b.Accept(b.ctx(), Effects{ReplaceCollaborators: map[string][]string{repoA: {carol}}})
			if err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	require.Greater(t, asked.Load(), int64(10))
	require.NoError(t, b.Allow(b.ctx(), carol, boss))
	broken, cancel := context.WithCancel(b.ctx())
	cancel()
	g, err := b.Gate(broken)
	require.Error(t, err, "a reading that was broken off")
	require.Nil(t, g)
	g, err = b.Gate(b.ctx())
	require.NoError(t, err, "what failed has left nothing behind")
	require.True(t, g.May(alice, rbac.Push, rbac.Repo{DID: repoA, Owner: alice}).Allowed)
}

// TestB110WhoDoesNotHoldTheLeaseSaysNothing has a second runner report on, and take secrets for, the work of the first;
// and the first say something else after its end.
func TestB110WhoDoesNotHoldTheLeaseSaysNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("one", pipeline.Waiting), flow("two", pipeline.Waiting))
	first := b.mustClaim()
	r := anyWork
	r.Holder = "other/1"
	second := b.claim(r)
	require.NotNil(t, second)
	for name, l := range map[string]pipeline.Lease{
		"its own name":        {Pipeline: p.ID, Workflow: first.Workflow.Name, Attempt: 1, Epoch: first.Lease.Epoch, Holder: "other/1"},
		"no name":             {Pipeline: p.ID, Workflow: first.Workflow.Name, Attempt: 1, Epoch: first.Lease.Epoch},
		"another epoch":       {Pipeline: p.ID, Workflow: first.Workflow.Name, Attempt: 1, Epoch: first.Lease.Epoch + 1, Holder: first.Lease.Holder},
		"another's workflow":  {Pipeline: p.ID, Workflow: second.Workflow.Name, Attempt: 1, Epoch: second.Lease.Epoch, Holder: first.Lease.Holder},
		"no such workflow":    {Pipeline: p.ID, Workflow: "three", Attempt: 1, Epoch: 1, Holder: "other/1"},
		"no such pipeline":    {Pipeline: "3zzzzzzzzzz2a", Workflow: "one", Attempt: 1, Epoch: 1, Holder: "other/1"},
		"another in capitals": {Pipeline: p.ID, Workflow: first.Workflow.Name, Attempt: 1, Epoch: first.Lease.Epoch, Holder: "LOCAL/1"},
	} {
		_, _, err := b.Renew(b.ctx(), l, time.Hour)
		require.Error(t, err, name)
		require.Error(t, b.StartStep(b.ctx(), l, pipeline.Step{Index: 0, Name: "s", Kind: pipeline.UserStep}), name)
		require.Error(t, b.EndStep(b.ctx(), l, pipeline.Step{Index: 0, Kind: pipeline.UserStep, Status: pipeline.Passed}), name)
		require.Error(t, b.MarkReleased(b.ctx(), l), name)
	}
	for _, w := range b.get(p.ID).Workflows {
		require.Equal(t, pipeline.Preparing, w.Status)
		require.Empty(t, w.Steps)
	}
	_, err := b.Apply(b.ctx(), p.ID, first.Workflow.Name, pipeline.Finished{Epoch: first.Lease.Epoch, Status: pipeline.Failed, ExitCode: 1})
	require.NoError(t, err)
	_, err = b.Apply(b.ctx(), p.ID, first.Workflow.Name, pipeline.Finished{Epoch: first.Lease.Epoch, Status: pipeline.Passed})
	require.Error(t, err)
	require.ErrorIs(t, b.MarkReleased(b.ctx(), first.Lease), ErrStale, "an ended job is handed nothing")
	for _, w := range b.get(p.ID).Workflows {
		if w.Name == first.Workflow.Name {
			require.Equal(t, pipeline.Failed, w.Status)
			require.Equal(t, 1, w.ExitCode)
		}
	}
}
