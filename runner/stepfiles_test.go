package runner_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
	"spindle/runner"
	"spindle/store"
	"spindle/workflow"
)

// kept is where results go.
type kept struct{ results []runner.Result }

func (k *kept) Keep(_ context.Context, _ pipeline.Lease, r runner.Result) error {
	k.results = append(k.results, r)
	return nil
}

// What a step writes to its files reaches the steps after it, and the result.
func TestStepFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := &kept{}
	w.cfg.Results = k
	row := w.run(does(
		"put SPINDLE_ENV GREETING=hello there\nput SPINDLE_OUTPUT version=1.2\nput SPINDLE_SUMMARY # Title\nput SPINDLE_PATH /opt/tool/bin",
		"printenv GREETING", "put SPINDLE_OUTPUT version=1.3\nput SPINDLE_OUTPUT other=x", "printenv GREETING",
	))
	require.Equal(t, pipeline.Passed, row.Status, row.Reason)
	require.Equal(t, "hello there\nhello there\n", w.text(row))
	require.Equal(t, []runner.Result{{Outputs: []workflow.Env{{Key: "version", Value: "1.3"}, {Key: "other", Value: "x"}}, Summary: "# Title\n"}}, k.results)
}

// B-121: a value cannot make another variable, and names that later programs obey are refused. The step fails with the
// name and the fix.
func TestB121StepFilesRefuse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SPINDLE_ENV LD_PRELOAD=/tmp/e.so": "may not set LD_PRELOAD",
		"SPINDLE_ENV PATH=/tmp":            "write folders to $SPINDLE_PATH",
		"SPINDLE_ENV TANGLED_SHA=0":        "the server sets it",
		"SPINDLE_ENV SPINDLE_X=0":          "the server sets it",
		"SPINDLE_ENV BASH_ENV=/tmp/e":      "BASH_ENV",
		"SPINDLE_ENV 1A=x":                 "cannot name a variable",
		"SPINDLE_ENV a-b=x":                "cannot name a variable",
		"SPINDLE_ENV =x":                   "cannot name a variable",
		"SPINDLE_ENV words":                "line 1: this is no assignment",
		"SPINDLE_ENV A<<EOF":               `"EOF" that ends the value is missing`,
		"SPINDLE_ENV A<<":                  "no word after <<",
		"SPINDLE_OUTPUT A B=1":             "cannot name a variable",
		"SPINDLE_PATH relative/bin":        "from / on",
		"SPINDLE_PATH /a:/b":               "without a colon",
		"SPINDLE_PATH /../":                "is not the path of a folder",
	} {
		t.Run(text[:min(len(text), 40)], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			row := w.run(does("put "+text, "printenv A"))
			require.Equal(t, pipeline.Failed, row.Status)
			require.Contains(t, row.Reason, want)
			require.Equal(t, row.Reason, row.Steps[0].Reason)
			require.Equal(t, pipeline.Skipped, row.Steps[1].Status)
			require.Contains(t, w.text(row), want, "the log says it too")
		})
	}
}

// B-121: a line break inside a value stays inside it.
func TestB121LineBreaksInStepFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := &kept{}
	w.cfg.Results = k
	row := w.run(does("put SPINDLE_OUTPUT A<<EOF\nput SPINDLE_OUTPUT 1\nput SPINDLE_OUTPUT LD_PRELOAD=/tmp/e.so\nput SPINDLE_OUTPUT EOF\nput SPINDLE_OUTPUT B=x=<<y\r"))
	require.Equal(t, pipeline.Passed, row.Status, row.Reason)
	require.Equal(t, []workflow.Env{{Key: "A", Value: "1\nLD_PRELOAD=/tmp/e.so"}, {Key: "B", Value: "x=<<y"}}, k.results[0].Outputs)
}

// B-120: a secret is handed on neither as an output nor in the summary.
func TestB120SecretsStayOutOfResults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := &kept{}
	w.cfg.Results = k
	w.secrets = func() (map[string]string, error) { return map[string]string{"KEY": secret}, nil }
	row := w.run(does("put SPINDLE_OUTPUT key=" + secret + "\nput SPINDLE_OUTPUT ok=1\nput SPINDLE_SUMMARY it is " + secret))
	require.Equal(t, pipeline.Passed, row.Status, row.Reason)
	require.Equal(t, runner.Result{Outputs: []workflow.Env{{Key: "ok", Value: "1"}}, Summary: "it is ***\n"}, k.results[0])
	require.Contains(t, w.text(row), "the output key holds a secret, so it is not handed on")
}

// Steps run, are left out and go on as the file says.
func TestStepConditions(t *testing.T) {
	t.Parallel()
	j := does("exit 3", "echo never", "echo always", "echo on-failure", "exit 4")
	j.spec.Steps[2].If, j.spec.Steps[3].If = "always()", "failure()"
	j.spec.Steps[4].If = "always()"
	w := newWorld(t)
	row := w.run(j)
	require.Equal(t, pipeline.Failed, row.Status)
	require.Equal(t, 3, row.ExitCode, "the first failure decides")
	require.Equal(t, `step "exit 3" exited 3`, row.Reason)
	require.Equal(t, []pipeline.Status{pipeline.Failed, pipeline.Skipped, pipeline.Passed, pipeline.Passed, pipeline.Failed}, statuses(row))
	require.Equal(t, "an earlier step did not pass", row.Steps[1].Reason)

	j = does("exit 3", "echo goes on")
	j.spec.Steps[0].ContinueOnError = true
	row = newWorld(t).run(j)
	require.Equal(t, pipeline.Passed, row.Status)
	require.Equal(t, []pipeline.Status{pipeline.Failed, pipeline.Passed}, statuses(row))

	j = does("echo no")
	j.spec.Steps[0].If = `trigger.branch == "other"`
	row = newWorld(t).run(j)
	require.Equal(t, pipeline.Passed, row.Status)
	require.Equal(t, []pipeline.Status{pipeline.Skipped}, statuses(row))
}

// A step sees the secrets that it or its workflow names, and no other; all of them are masked everywhere.
func TestStepSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secrets = func() (map[string]string, error) {
		return map[string]string{"ONE": "value-of-one", "TWO": "value-of-two"}, nil
	}
	j := does("printenv ONE", "printenv TWO")
	j.spec.Secrets = workflow.Secrets{Only: true, Names: []string{"ONE"}}
	row := w.run(j)
	require.Equal(t, []pipeline.Status{pipeline.Passed, pipeline.Failed}, statuses(row))
	j.spec.Steps[1].Secrets = workflow.Secrets{Only: true, Names: []string{"TWO"}}
	row = w.run(j)
	require.Equal(t, []pipeline.Status{pipeline.Passed, pipeline.Passed}, statuses(row))
	require.Equal(t, "***\n***\n", w.text(row))
}

// What waits for others sees their outputs; the cell and the inputs are variables.
func TestNeedsCellsAndInputsReachSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Needs = needs{"build": {Result: workflow.Success, Outputs: map[string]string{"version": "2"}}}
	j := does("printenv SPINDLE_MATRIX_GO", "printenv TANGLED_INPUT_LEVEL", "echo two")
	j.spec.Needs, j.spec.WaitsFor = []string{"build"}, []string{"build"}
	j.spec.Cell, j.spec.Given = []workflow.Env{{Key: "go", Value: "1.26"}}, []workflow.Env{{Key: "level", Value: "high"}}
	j.spec.Steps[2].If = `needs.build.outputs.version == "2"`
	row := w.run(j)
	require.Equal(t, pipeline.Passed, row.Status, row.Reason)
	require.Equal(t, "1.26\nhigh\ntwo\n", w.text(row))
}

type needs map[string]workflow.Need

func (n needs) Needs(context.Context, *store.Claimed) (map[string]workflow.Need, error) {
	return n, nil
}
