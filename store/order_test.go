package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
	wf "spindle/workflow"
)

// after is a workflow that waits for others.
func after(name, cond string, needs ...string) pipeline.Workflow {
	w := flow(name, pipeline.Waiting)
	spec, err := json.Marshal(wf.Spec{Name: name, Needs: needs, WaitsFor: needs, If: wf.Expr(cond), Engine: "dummy", Steps: []wf.Step{{Command: "true"}}})
	if err != nil {
		panic(err)
	}
	w.Spec, w.Rules.WaitsFor = spec, needs
	return w
}

// ends claims the workflow called name and ends its attempt.
func (b *bench) ends(id pipeline.ID, name string, s pipeline.Status, outputs ...string) *Claimed {
	b.t.Helper()
	c := b.mustClaim()
	require.Equal(b.t, name, c.Workflow.Name)
	require.Equal(b.t, id, c.Pipeline.ID)
	b.end(c, s, outputs...)
	return c
}

func (b *bench) end(c *Claimed, s pipeline.Status, outputs ...string) {
	b.t.Helper()
	f := pipeline.Finished{Epoch: c.Lease.Epoch, Status: s}
	for _, o := range outputs {
		k, v, _ := strings.Cut(o, "=")
		if f.Outputs == nil {
			f.Outputs = map[string]string{}
		}
		f.Outputs[k] = v
	}
	_, err := b.Apply(b.ctx(), c.Pipeline.ID, c.Workflow.Name, f)
	require.NoError(b.t, err)
}

func (b *bench) workflow(id pipeline.ID, name string) pipeline.Workflow {
	b.t.Helper()
	ws := b.get(id).Workflows
	i := slices.IndexFunc(ws, func(w pipeline.Workflow) bool { return w.Name == name })
	require.GreaterOrEqual(b.t, i, 0)
	return ws[i]
}

func TestNeedsWaitWithAReason(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("build", pipeline.Waiting), flow("lint", pipeline.Waiting), after("deploy", "", "build", "lint"))
	require.Equal(t, "waits for build, lint", p.Workflows[2].Reason)
	require.Equal(t, pipeline.GateNeeds, p.Workflows[2].Gate)
	b.ends(p.ID, "build", pipeline.Passed, "version=1.2", "empty=")
	require.Equal(t, "waits for lint", b.workflow(p.ID, "deploy").Reason, "the reason follows what happens")
	lint := b.mustClaim()
	require.Nil(t, b.claim(anyWork), "what waits for others is not handed out")
	require.True(t, b.workflow(p.ID, "deploy").ReadyAt.IsZero())
	rang := b.Changed()
	b.end(lint, pipeline.Passed)
	<-rang
	w := b.workflow(p.ID, "deploy")
	require.Equal(t, []any{pipeline.Waiting, pipeline.GateOpen, ""}, []any{w.Status, w.Gate, w.Reason})
	c := b.ends(p.ID, "deploy", pipeline.Passed)
	require.Equal(t, map[string]wf.Need{
		"build": {Result: wf.Success, Outputs: map[string]string{"version": "1.2", "empty": ""}}, "lint": {Result: wf.Success},
	}, c.Needs)
	require.Equal(t, pipeline.Passed, b.get(p.ID).Status)
}

func TestFailedNeedSkipsWhatNeedsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("build", pipeline.Waiting), after("test", "", "build"), after("deploy", "", "test"),
		after("tell", "failure()", "test", "build"), after("clean", "always()", "deploy"))
	b.ends(p.ID, "build", pipeline.Failed)
	for name, why := range map[string]string{"test": "build", "deploy": "test"} {
		w := b.workflow(p.ID, name)
		require.Equal(t, pipeline.Skipped, w.Status, name)
		require.Contains(t, w.Reason, why)
		require.False(t, w.FinishedAt.IsZero())
	}
	b.ends(p.ID, "tell", pipeline.Passed)
	b.ends(p.ID, "clean", pipeline.Passed)
	require.Equal(t, pipeline.Failed, b.get(p.ID).Status)
}

// What a need is born as counts like an end: an invalid file fails what needs it in the transaction of the plan.
func TestNeedThatIsInvalidOrAbsent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("bad", pipeline.Invalid), after("one", "", "bad"), after("two", "", "one"), after("gone", "", "nothing"),
		after("anyhow", "always()", "gone"))
	states := map[string]pipeline.Status{}
	for _, w := range p.Workflows {
		states[w.Name] = w.Status
	}
	require.Equal(t, map[string]pipeline.Status{"bad": pipeline.Invalid, "one": pipeline.Skipped, "two": pipeline.Skipped, "gone": pipeline.Skipped,
		"anyhow": pipeline.Waiting}, states)
	b.ends(p.ID, "anyhow", pipeline.Passed)
	require.Equal(t, pipeline.Invalid, b.get(p.ID).Status)
	_, err := b.plan(repoA, alice, "main", after("a", "", "b"), after("b", "", "c"), after("c", "", "a"))
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, "wait for each other")
}

// The cancel of a run ends what waits as cancelled, and not as skipped because of what the cancel ended before it.
func TestCancelEndsWhatWaitsForOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), after("b", "", "a"), after("c", "", "b"), after("d", "always()", "c"))
	n, err := b.Cancel(b.ctx(), p.ID, nil, alice, "enough", pipeline.Cancelled)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	for _, w := range b.get(p.ID).Workflows {
		require.Equal(t, []any{pipeline.Cancelled, "enough"}, []any{w.Status, w.Reason}, w.Name)
	}
	p = b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), after("b", "", "a"))
	_, err = b.Cancel(b.ctx(), p.ID, []string{"a"}, alice, "enough", pipeline.Cancelled)
	require.NoError(t, err)
	require.Equal(t, pipeline.Skipped, b.workflow(p.ID, "b").Status)
	require.Contains(t, b.workflow(p.ID, "b").Reason, "cancelled")
}

// A repetition of a part takes the results, and the outputs, of the rest from the run that it repeats.
func TestRepetitionOfAPartHonoursNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	first := b.mustPlan(repoA, alice, "main", flow("build", pipeline.Waiting), after("test", "", "build"), after("deploy", "", "build", "test"))
	b.ends(first.ID, "build", pipeline.Passed, "v=7")
	b.ends(first.ID, "test", pipeline.Failed)
	again := func(of pipeline.ID, ws ...pipeline.Workflow) pipeline.Pipeline {
		tr := b.trigger(repoA, alice, "main")
		tr.RetryOf = of
		a, err := b.Accept(b.ctx(), Effects{Event: &tr})
		require.NoError(t, err)
		p, err := b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: pipeline.ID(b.ids.Next()), Repo: repoA, Owner: alice,
			Trust: pipeline.TrustBranch, Workflows: ws}})
		require.NoError(t, err)
		return p
	}
	second := again(first.ID, after("test", "", "build"), after("deploy", "", "build", "test"))
	require.Equal(t, map[string]string{"v": "7"}, b.ends(second.ID, "test", pipeline.Passed).Needs["build"].Outputs)
	c := b.ends(second.ID, "deploy", pipeline.Failed)
	require.Equal(t, map[string]wf.Need{"build": {Result: wf.Success, Outputs: map[string]string{"v": "7"}}, "test": {Result: wf.Success}}, c.Needs)
	third := again(second.ID, after("deploy", "", "build", "test"))
	require.Equal(t, map[string]string{"v": "7"}, b.ends(third.ID, "deploy", pipeline.Passed).Needs["build"].Outputs)
	require.Equal(t, pipeline.Skipped, again(first.ID, after("deploy", "", "build", "test")).Workflows[0].Status, "there the test has failed")
}

func TestOutputsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), after("b", "always()", "a"))
	b.ends(p.ID, "a", pipeline.Passed, "big="+strings.Repeat("x", maxOutputs))
	w := b.workflow(p.ID, "a")
	require.Equal(t, pipeline.Failed, w.Status)
	require.Contains(t, w.Reason, "65536")
	require.Equal(t, wf.Need{Result: wf.Failure}, b.mustClaim().Needs["a"])
	p = b.mustPlan(repoA, alice, "dev", flow("a", pipeline.Waiting), after("b", "", "a"))
	b.ends(p.ID, "a", pipeline.Passed, "b="+strings.Repeat("x", maxOutputs-1))
	require.Len(t, b.mustClaim().Needs["a"].Outputs["b"], maxOutputs-1)
}

// A definition that was damaged after the plan is not decided on by what it says now.
func TestDamagedSpecIsNotDecidedOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), after("b", "", "a"))
	require.NoError(t, b.write(b.ctx(), "damage", func(t *tx) error {
		if _, err := t.exec("DROP TRIGGER workflows_spec"); err != nil {
			return err
		}
		_, err := t.exec("UPDATE workflows SET spec = x'78' WHERE name = 'b'")
		return err
	}))
	b.ends(p.ID, "a", pipeline.Passed)
	require.Equal(t, pipeline.Error, b.workflow(p.ID, "b").Status)
	require.Contains(t, b.workflow(p.ID, "b").Reason, "damaged")
}

// The rules of a retry: the file's where it has any, else only what was lost is repeated.
func TestRetryByTheFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	w := flow("a", pipeline.Waiting)
	w.Rules.Retry = &pipeline.Retry{Max: 1, On: []pipeline.Fault{pipeline.FaultStep, pipeline.FaultMachinery}}
	p := b.mustPlan(repoA, alice, "main", w, after("b", "", "a"))
	c := b.mustClaim()
	require.NoError(t, b.MarkReleased(b.ctx(), c.Lease))
	_, err := b.Apply(b.ctx(), p.ID, "a", pipeline.Finished{Epoch: 1, Status: pipeline.Failed, ExitCode: 3, Reason: `step "x" exited 3`})
	require.NoError(t, err)
	got := b.workflow(p.ID, "a")
	require.Equal(t, []any{pipeline.Waiting, `step "x" exited 3; attempt 2 of 2 follows`}, []any{got.Status, got.Reason})
	require.Equal(t, pipeline.GateNeeds, b.workflow(p.ID, "b").Gate)
	c = b.mustClaim()
	require.Equal(t, 2, c.Lease.Attempt)
	require.Equal(t, AttemptEnd{pipeline.Failed, `step "x" exited 3; attempt 2 of 2 follows`}, c.Before)
	_, err = b.Apply(b.ctx(), p.ID, "a", pipeline.Finished{Epoch: 2, Status: pipeline.Error})
	require.NoError(t, err)
	require.Equal(t, pipeline.Error, b.workflow(p.ID, "a").Status)
	require.Equal(t, pipeline.Skipped, b.workflow(p.ID, "b").Status)
	for _, end := range []pipeline.Status{pipeline.Failed, pipeline.Error, pipeline.Timeout, pipeline.Cancelled} {
		p := b.mustPlan(repoA, alice, string(end), flow("a", pipeline.Waiting))
		b.ends(p.ID, "a", end)
		require.Equal(t, end, b.get(p.ID).Status, "what the file says nothing of is not repeated")
	}
}

func TestRetryNeverRepeatsWhatWasCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	w := flow("a", pipeline.Waiting)
	w.Rules.Retry = &pipeline.Retry{Max: 5, On: []pipeline.Fault{pipeline.FaultStep}}
	p := b.mustPlan(repoA, alice, "main", w)
	b.mustClaim()
	_, err := b.Cancel(b.ctx(), p.ID, nil, alice, "", pipeline.Cancelled)
	require.NoError(t, err)
	_, err = b.Apply(b.ctx(), p.ID, "a", pipeline.Finished{Epoch: 1, Status: pipeline.Failed})
	require.NoError(t, err)
	require.Equal(t, pipeline.Failed, b.get(p.ID).Status)
}

// A handed-back attempt counts like a lost one.
func TestLostAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting))
	for i := range 3 {
		c := b.mustClaim()
		require.Equal(t, i+1, c.Lease.Attempt)
		_, err := b.Apply(b.ctx(), p.ID, "a", pipeline.Lost{Epoch: c.Lease.Epoch, Again: true, Reason: "stopped"})
		require.NoError(t, err)
	}
	require.Equal(t, pipeline.Error, b.get(p.ID).Status)
}

// expect is the reference: how the workflows of a run end, given how each would end if it ran. It knows nothing of
// transactions, gates or order.
func expect(ws []pipeline.Workflow, conds map[string]string, ends map[string]pipeline.Status) map[string]pipeline.Status {
	out := map[string]pipeline.Status{}
	for len(out) < len(ws) {
		for _, w := range ws {
			worst := wf.Success
			known := true
			for _, n := range w.Rules.WaitsFor {
				s, done := out[n]
				known = known && done
				o, _ := wf.OutcomeOf(s)
				for _, x := range []wf.Outcome{wf.Skipped, wf.Cancelled, wf.Failure} {
					if o == x && slices.Index([]wf.Outcome{wf.Success, wf.Skipped, wf.Cancelled, wf.Failure}, worst) <
						slices.Index([]wf.Outcome{wf.Success, wf.Skipped, wf.Cancelled, wf.Failure}, x) {
						worst = x
					}
				}
			}
			if !known {
				continue
			}
			runs := map[string]bool{"": worst == wf.Success, "always()": true, "failure()": worst == wf.Failure}[conds[w.Name]]
			switch {
			case w.Status == pipeline.Invalid:
				out[w.Name] = pipeline.Invalid
			case runs || len(w.Rules.WaitsFor) == 0:
				out[w.Name] = ends[w.Name]
			default:
				out[w.Name] = pipeline.Skipped
			}
		}
	}
	return out
}

// Random orders of workflows, with random conditions and ends, come to what the reference says, and no workflow begins
// before what it waits for has ended.
func TestRandomOrdersFollowTheReference(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "workflows")
		var ws []pipeline.Workflow
		conds, ends := map[string]string{}, map[string]pipeline.Status{}
		for i := range n {
			name := fmt.Sprintf("w%d", i)
			var needs []string
			for j := range i {
				if rapid.IntRange(0, 2).Draw(rt, "need") == 0 {
					needs = append(needs, fmt.Sprintf("w%d", j))
				}
			}
			conds[name] = rapid.SampledFrom([]string{"", "", "always()", "failure()"}).Draw(rt, "if")
			ends[name] = rapid.SampledFrom([]pipeline.Status{pipeline.Passed, pipeline.Passed, pipeline.Failed, pipeline.Error, pipeline.Cancelled}).Draw(rt, "end")
			w := after(name, conds[name], needs...)
			if rapid.IntRange(0, 9).Draw(rt, "invalid") == 0 {
				w.Status = pipeline.Invalid
			}
			ws = append(ws, w)
		}
		want := expect(ws, conds, ends)
		p := b.mustPlan(repoA, alice, b.ids.Next(), rapid.Permutation(ws).Draw(rt, "order")...)
		var running []*Claimed
		for {
			c, err := b.Claim(b.ctx(), anyWork)
			require.NoError(rt, err)
			if c != nil {
				for _, x := range c.Workflow.Rules.WaitsFor {
					require.True(rt, b.workflow(p.ID, x).Status.Terminal())
				}
				running = append(running, c)
			}
			if len(running) == 0 {
				break
			}
			if c == nil || rapid.Bool().Draw(rt, "end one") {
				i := rapid.IntRange(0, len(running)-1).Draw(rt, "which")
				b.end(running[i], ends[running[i].Workflow.Name])
				running = slices.Delete(running, i, i+1)
			}
		}
		got := map[string]pipeline.Status{}
		for _, w := range b.get(p.ID).Workflows {
			got[w.Name] = w.Status
		}
		require.Equal(rt, want, got)
		require.Equal(rt, pipeline.Summarize(slices.Collect(maps.Values(got))), b.get(p.ID).Status)
	})
}

// The whole life of a chain leaves each durable state able to go on: a server that ends between two workflows begins
// with the next.
func TestOrderSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), after("b", "", "a"), after("c", "", "b"))
	for i, name := range []string{"a", "b", "c"} {
		b.reopen()
		b.clock.Advance(30 * time.Hour) // what waits for others has no time of its own
		if i > 0 {
			b.clock.Advance(-30 * time.Hour)
		}
		b.ends(p.ID, name, pipeline.Passed)
	}
	require.Equal(t, pipeline.Passed, b.get(p.ID).Status)
}
