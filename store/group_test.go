package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
)

func grouped(name, group string, cancel bool) pipeline.Workflow {
	w := flow(name, pipeline.Waiting)
	w.Rules.Group, w.Rules.GroupCancel = group, cancel
	return w
}

func TestGroupRunsOneAtATime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	b.bind(repoB, bob)
	one := b.mustPlan(repoA, alice, "a", grouped("deploy", "prod", false))
	c := b.mustClaim()
	two := b.mustPlan(repoA, alice, "b", grouped("deploy", "prod", false))
	require.Nil(t, b.claim(anyWork))
	w := b.workflow(two.ID, "deploy")
	require.Equal(t, []any{pipeline.Waiting, pipeline.GateGroup}, []any{w.Status, w.Gate})
	require.Equal(t, fmt.Sprintf("waits for the group prod: held by deploy of pipeline %s", one.ID), w.Reason)

	other := b.mustPlan(repoB, bob, "b", grouped("deploy", "prod", false))
	b.ends(other.ID, "deploy", pipeline.Passed) // a group is one repository's
	three := b.mustPlan(repoA, alice, "c", grouped("deploy", "prod", false))
	w = b.workflow(two.ID, "deploy")
	require.Equal(t, pipeline.Superseded, w.Status, "the newest waits")
	require.Contains(t, w.Reason, string(three.ID))
	require.Nil(t, b.claim(anyWork))

	// The lease that was lost frees the group as an end does; the older one would wait again and gives way to the newer.
	b.clock.Advance(25 * time.Hour)
	_, err := b.Expired(b.ctx())
	require.NoError(t, err)
	require.Equal(t, pipeline.Superseded, b.workflow(one.ID, "deploy").Status)
	_, err = b.Apply(b.ctx(), one.ID, "deploy", pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Passed})
	require.ErrorIs(t, err, pipeline.ErrEnded)
	b.ends(three.ID, "deploy", pipeline.Passed)
	require.Nil(t, b.claim(anyWork))
}

func TestGroupCancelEndsTheOlder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	one := b.mustPlan(repoA, alice, "a", grouped("deploy", "prod", true))
	c := b.mustClaim()
	two := b.mustPlan(repoA, alice, "b", grouped("deploy", "prod", true))
	by, _, err := b.Renew(b.ctx(), c.Lease, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "spindle", by)
	require.Nil(t, b.claim(anyWork), "it holds the group until it has ended")
	_, err = b.Apply(b.ctx(), one.ID, "deploy", pipeline.Finished{Epoch: 1, Status: pipeline.Cancelled})
	require.NoError(t, err)
	require.Contains(t, b.workflow(one.ID, "deploy").Reason, string(two.ID))
	b.ends(two.ID, "deploy", pipeline.Passed)
}

// B-095: a group touches nothing outside of it, and an older run that comes late neither ends a newer one nor runs
// after one that waits.
func TestB095GroupLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	late := grouped("deploy", "prod", true)
	late.Rules.WaitsFor = []string{"build"}
	late.Spec = after("deploy", "", "build").Spec
	old := b.mustPlan(repoA, alice, "a", flow("build", pipeline.Waiting), late, grouped("docs", "docs", true))
	build := b.mustClaim()
	docs := b.mustClaim()
	newer := b.mustPlan(repoA, alice, "b", grouped("deploy", "prod", true), grouped("again", "prod", true))
	running := b.mustClaim()
	require.Equal(t, newer.ID, running.Pipeline.ID)
	b.end(build, pipeline.Passed)
	require.Equal(t, pipeline.Superseded, b.workflow(old.ID, "deploy").Status, "a newer one waits")
	for _, c := range []*Claimed{running, docs} {
		by, _, err := b.Renew(b.ctx(), c.Lease, time.Minute)
		require.NoError(t, err)
		require.Empty(t, by)
	}
	require.Nil(t, b.claim(anyWork), "those of one run take turns")
	b.end(running, pipeline.Passed)
	b.ends(newer.ID, "again", pipeline.Passed)
}

// Whatever is planned, claimed, ended and lost: of one group one runs, the newest that waits stays, and everything ends.
func TestRandomGroups(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	rapid.Check(t, func(rt *rapid.T) {
		var ids []pipeline.ID
		var live []*Claimed
		round := b.ids.Next()
		for range rapid.IntRange(1, 14).Draw(rt, "steps") {
			b.clock.Advance(time.Second)
			switch rapid.IntRange(0, 3).Draw(rt, "verb") {
			case 0:
				g := rapid.SampledFrom([]string{"", round + "x", round + "y"}).Draw(rt, "group")
				p := b.mustPlan(repoA, alice, b.ids.Next(), grouped("w", g, rapid.Bool().Draw(rt, "cancel")))
				ids = append(ids, p.ID)
			case 1:
				c, err := b.Claim(b.ctx(), anyWork)
				require.NoError(rt, err)
				if c != nil {
					live = append(live, c)
				}
			case 2, 3:
				if len(live) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				var f pipeline.Fact = pipeline.Finished{Epoch: live[i].Lease.Epoch, Status: pipeline.Passed}
				if rapid.Bool().Draw(rt, "lost") {
					f = pipeline.Lost{Epoch: live[i].Lease.Epoch, Again: true, Reason: "gone"}
				}
				_, err := b.Apply(b.ctx(), live[i].Pipeline.ID, "w", f)
				require.NoError(rt, err)
				live = append(live[:i], live[i+1:]...)
			}
			running, waiting := map[string]int{}, map[string]int{}
			for _, id := range ids {
				w := b.workflow(id, "w")
				switch {
				case w.Rules.Group == "":
				case w.Status.Active():
					running[w.Rules.Group]++
				case w.Status == pipeline.Waiting:
					waiting[w.Rules.Group]++
				}
			}
			for g, n := range running {
				require.LessOrEqual(rt, n, 1, g)
			}
			for g, n := range waiting {
				require.LessOrEqual(rt, n, 1, g)
			}
		}
		for {
			for _, c := range live {
				b.end(c, pipeline.Passed)
			}
			c, err := b.Claim(b.ctx(), anyWork)
			require.NoError(rt, err)
			if c == nil {
				break
			}
			live = []*Claimed{c}
		}
		for _, id := range ids {
			require.True(rt, b.get(id).Status.Terminal(), b.get(id).Workflows[0].Reason)
		}
	})
}
