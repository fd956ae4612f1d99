package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
	"spindle/rbac"
)

// Random verbs against the store and against pipeline.Apply alone: both end in the same place, no two leases of
// one workflow live at a time, and everything ends.
func TestRandomVerbsFollowTheStateMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	branch := 0
	rapid.Check(t, func(rt *rapid.T) {
		branch++
		born := rapid.SampledFrom([]pipeline.Status{pipeline.Waiting, pipeline.Held})
		p := b.mustPlan(repoA, alice, "b"+string(rune('a'+branch%26))+b.ids.Next(), flow("a", born.Draw(rt, "a")), flow("b", born.Draw(rt, "b")))
		model := map[string]pipeline.Workflow{}
		for _, w := range p.Workflows {
			model[w.Name] = w
		}
		leases := map[string][]pipeline.Lease{}
		apply := func(name string, f pipeline.Fact) error {
			w, err := pipeline.Apply(model[name], f, b.clock.Now())
			if err == nil {
				model[name] = w
			}
			return err
		}
		same := func(want, got error) {
			if (want == nil) != (got == nil) {
				rt.Fatalf("the model says %v, the store says %v", want, got)
			}
			for _, e := range []error{pipeline.ErrStale, pipeline.ErrEnded, pipeline.ErrMove} {
				if errors.Is(want, e) != errors.Is(got, e) {
					rt.Fatalf("the model says %v, the store says %v", want, got)
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			b.clock.Advance(time.Second)
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "workflow")
			var epoch int64
			if ls := leases[name]; len(ls) > 0 {
				epoch = rapid.SampledFrom(ls).Draw(rt, "lease").Epoch
			}
			switch rapid.IntRange(0, 5).Draw(rt, "verb") {
			case 0:
				c, err := b.Claim(b.ctx(), anyWork)
				require.NoError(rt, err)
				if c == nil {
					require.False(rt, model["a"].Status == pipeline.Waiting || model["b"].Status == pipeline.Waiting)
					continue
				}
				require.Equal(rt, p.ID, c.Pipeline.ID)
				same(apply(c.Workflow.Name, pipeline.Leased{Holder: anyWork.Holder, Until: c.Lease.Until}), nil)
				leases[c.Workflow.Name] = append(leases[c.Workflow.Name], c.Lease)
			case 1:
				f := pipeline.Began{Epoch: epoch}
				_, err := b.Apply(b.ctx(), p.ID, name, f)
				same(apply(name, f), err)
			case 2:
				f := pipeline.Finished{Epoch: epoch, Status: rapid.SampledFrom(pipeline.Statuses()).Draw(rt, "end"), Reason: "r"}
				_, err := b.Apply(b.ctx(), p.ID, name, f)
				same(apply(name, f), err)
			case 3:
				f := pipeline.Lost{Epoch: epoch, Again: rapid.Bool().Draw(rt, "again"), Reason: "l"}
				_, err := b.Apply(b.ctx(), p.ID, name, f)
				if most := 3; f.Again && model[name].Attempt >= most {
					f.Again = false // attempts are counted
				} else if f.Again {
					f.Reason = fmt.Sprintf("l; attempt %d of %d follows", model[name].Attempt+1, most)
				}
				same(apply(name, f), err)
			case 4:
				f := pipeline.CancelAsked{By: alice, As: pipeline.Cancelled, Reason: "c"}
				w := model[name]
				n, err := b.Cancel(b.ctx(), p.ID, []string{name}, alice, "c", pipeline.Cancelled)
				require.NoError(rt, err)
				if w.Status.Terminal() || w.CancelBy != "" {
					require.Zero(rt, n)
				} else {
					require.Equal(rt, 1, n)
					same(apply(name, f), nil)
				}
			case 5:
				held := model["a"].Status == pipeline.Held || model["b"].Status == pipeline.Held
				err := b.Approve(b.ctx(), p.ID, boss, nil, func(*rbac.Gate, pipeline.Pipeline) rbac.Decision { return rbac.Decision{Allowed: true} })
				require.Equal(rt, held, err == nil, "%v", err)
				for n, w := range model {
					if w.Status == pipeline.Held {
						same(apply(n, pipeline.Approved{By: boss}), nil)
					}
				}
			}
			got := b.get(p.ID)
			var ss []pipeline.Status
			for _, w := range got.Workflows {
				m := model[w.Name]
				require.Equal(rt, []any{m.Status, m.Attempt, m.Epoch, m.CancelBy, m.FinishedAt, m.StartedAt, m.ReadyAt, m.LeaseUntil},
					[]any{w.Status, w.Attempt, w.Epoch, w.CancelBy, w.FinishedAt, w.StartedAt, w.ReadyAt, w.LeaseUntil})
				if w.Status.Terminal() {
					require.Equal(rt, m.Reason, w.Reason)
				}
				ss = append(ss, w.Status)
			}
			require.Equal(rt, pipeline.Summarize(ss), got.Status)
			require.Equal(rt, got.Status.Terminal(), !got.FinishedAt.IsZero())
		}
		// P5: time alone ends everything.
		for range 5 {
			b.clock.Advance(80 * time.Hour)
			_, err := b.Expired(b.ctx())
			require.NoError(rt, err)
		}
		require.True(rt, b.get(p.ID).Status.Terminal())
	})
}
