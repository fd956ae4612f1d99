package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
	"spindle/lexicons/orgtangled"
)

// keyed is a workflow with further keys.
func keyed(keys string, script ...string) string { return keys + "\n" + file(script...) }

// states are the states of a pipeline's workflows by name.
func states(p *orgtangled.CiDefs_Pipeline) map[string]string {
	out := map[string]string{}
	for _, w := range p.Workflows {
		out[w.Id] = *w.State
	}
	return out
}

func one(t *testing.T, p *orgtangled.CiDefs_Pipeline, id string) *orgtangled.CiDefs_Workflow {
	t.Helper()
	i := slices.IndexFunc(p.Workflows, func(w *orgtangled.CiDefs_Workflow) bool { return w.Id == id })
	require.GreaterOrEqual(t, i, 0, id)
	return p.Workflows[i]
}

// The keys that order workflows, in one push: a chain, a failed need, cells of a matrix, a cell that fails, a retry.
func TestOrderOfAPush(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{
		".tangled/workflows/build.yml":  keyed("matrix: {go: [\"1.25\", \"1.26\"]}", "printenv SPINDLE_MATRIX_GO"),
		".tangled/workflows/test.yml":   keyed("needs: [build]", "echo tested"),
		".tangled/workflows/red.yml":    keyed("retry: {max: 1, on: [failure]}", "exit 7"),
		".tangled/workflows/deploy.yml": keyed("needs: [test, red]", "echo deployed"),
		".tangled/workflows/tell.yml":   keyed("needs: [red]\nif: failure()", "echo told"),
		".tangled/workflows/tag.yml":    file("put SPINDLE_OUTPUT version=7"),
		".tangled/workflows/use.yml":    keyed("needs: [tag]\nif: needs.tag.outputs.version == '7'", "printenv SPINDLE_NEEDS_TAG_VERSION"),
		".tangled/workflows/never.yml":  keyed("if: trigger.branch == 'other'", "echo never"),
	}})
	got := await(t, w, r, p.SHA, world.Ended)
	require.Equal(t, map[string]string{
		"build[go=1.25]": "passed", "build[go=1.26]": "passed", "test": "passed", "red": "failed", "deploy": "skipped", "tell": "passed", "never": "skipped",
		"tag": "passed", "use": "passed",
	}, states(got))
	require.Contains(t, *one(t, got, "deploy").Reason, "red")
	require.ElementsMatch(t, []string{"build[go=1.25]", "build[go=1.26]"}, one(t, got, "test").WaitsFor)
	red := one(t, got, "red")
	require.EqualValues(t, 2, *red.Attempt)
	require.EqualValues(t, 7, *red.ExitCode)
	require.Equal(t, "failed", red.Status)
	require.Equal(t, "success", one(t, got, "deploy").Status, "what is skipped stands in nobody's way")
	var log strings.Builder
	require.NoError(t, w.Client(nil).Follow(t.Context(), r.DID.String(), got.Id, func(e world.Entry) {
		if e.Data != nil && e.Data.Workflow == "red" {
			log.WriteString(e.Data.Content)
		}
	}))
	require.Contains(t, log.String(), "attempt 2 of 2 follows", "the log shows the seam")
}

// TestApprovalOfAWorkflow holds one workflow for a person, after what it needs, and once for each run.
func TestApprovalOfAWorkflow(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{
		".tangled/workflows/build.yml":  file("echo built"),
		".tangled/workflows/deploy.yml": keyed("needs: [build]\ndeploys_to: production\napproval: {by: owner, expires: 2h}", "echo deployed"),
	}})
	got := await(t, w, r, p.SHA, func(p *orgtangled.CiDefs_Pipeline) bool { return states(p)["deploy"] == "held" })
	d := one(t, got, "deploy")
	require.Equal(t, "passed", states(got)["build"])
	require.Equal(t, []string{"approval", "production"}, []string{*d.Gate, *d.DeploysTo})
	require.NotNil(t, d.ExpiresAt)
	require.Contains(t, *d.Reason, "owner")
	stranger, err := w.Net.CreateAccount(t.Context(), "carol.test")
	require.NoError(t, err)
	call := func(c *world.Client, names ...string) error {
		return c.Call(t.Context(), "org.tangled.ci.approvePipeline", orgtangled.CiApprovePipeline_Input{Repo: r.DID.String(), Pipeline: got.Id, Workflows: names}, nil)
	}
	require.ErrorContains(t, call(w.Client(stranger)), "Forbidden")
	require.ErrorContains(t, call(w.Client(w.Owner), "nothing"), "WorkflowNotFound")
	require.ErrorContains(t, call(w.Client(w.Owner), "build"), "PipelineNotBlocked")
	require.NoError(t, call(w.Client(w.Owner), "deploy"))
	require.Equal(t, "passed", world.State(await(t, w, r, p.SHA, world.Ended)))
	require.ErrorContains(t, call(w.Client(w.Owner), "deploy"), "PipelineNotBlocked", "once")
}

// TestInputsAreChecked refuses inputs that are not as the file declares them, by name, and starts nothing.
func TestInputsAreChecked(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{
		".tangled/workflows/a.yml": keyed("inputs:\n  level: {type: choice, options: [low, high], required: true}\n  count: {type: number, default: \"3\"}",
			"printenv TANGLED_INPUT_LEVEL", "printenv TANGLED_INPUT_COUNT"),
	}})
	await(t, w, r, p.SHA, world.Ended)
	ask := func(in ...*orgtangled.CiTriggerManual_Input) error {
		return w.Client(w.Owner).Call(t.Context(), "org.tangled.event.notifyEvent", orgtangled.EventNotifyEvent_Input{
			Repo:  r.DID.String(),
			Event: &orgtangled.EventNotifyEvent_Input_Event{CiTriggerManual: &orgtangled.CiTriggerManual{Repo: r.DID.String(), Commit: p.SHA, Inputs: in}},
		}, nil)
	}
	for _, c := range []struct {
		in   []*orgtangled.CiTriggerManual_Input
		says []string
	}{
		{nil, []string{"level", "required"}},
		{[]*orgtangled.CiTriggerManual_Input{{Key: "level", Value: "middle"}}, []string{"level", "low", "high"}},
		{[]*orgtangled.CiTriggerManual_Input{{Key: "level", Value: "low"}, {Key: "count", Value: "many"}}, []string{"count", "number"}},
		{[]*orgtangled.CiTriggerManual_Input{{Key: "level", Value: "low"}, {Key: "lvl", Value: "1"}}, []string{"lvl"}},
	} {
		err := ask(c.in...)
		require.ErrorContains(t, err, "InvalidRequest")
		for _, word := range c.says {
			require.ErrorContains(t, err, word)
		}
	}
	require.NoError(t, ask(&orgtangled.CiTriggerManual_Input{Key: "level", Value: "high"}))
	got := await(t, w, r, p.SHA, func(p *orgtangled.CiDefs_Pipeline) bool { return p.Trigger.CiTriggerManual != nil && world.Ended(p) })
	require.Equal(t, "passed", world.State(got))
}
