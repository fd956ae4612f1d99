package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/runner"
	"spindle/workflow"
)

// The order of an attempt is its invariant: what it may have, the log, the machine, the commit, the steps;
// then the machine's end and the report.
func TestOrderOfAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secrets = func() (map[string]string, error) { return map[string]string{"KEY": secret}, nil }
	w.token = func() (string, error) { return token, nil }
	j := does("echo one", "echo two")
	j.spec.Clone = workflow.Clone{Depth: 1}
	j.spec.Audience = "https://cloud.example"
	row := w.run(j)
	require.Equal(t, pipeline.Passed, row.Status)
	require.Equal(t, []string{
		"secrets", "token", "released", "log", "locate " + repo, "open",
		"start 0", "fetch " + repo + " " + sha, "run checkout", "end 0 passed",
		"start 1", "run echo one", "end 1 passed",
		"start 2", "run echo two", "end 2 passed",
		"close", "report pipeline.Finished",
	}, w.seen())
	require.Equal(t, "checked out\none\ntwo\n", w.text(row))
	require.Equal(t, []string{"clone", "echo one", "echo two"}, []string{row.Steps[0].Name, row.Steps[1].Name, row.Steps[2].Name})
	require.Equal(t, pipeline.SystemStep, row.Steps[0].Kind)
	require.Empty(t, w.leftovers())
	require.Equal(t, []string{"dummy"}, runner.New(w.cfg).Names())
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command string
		status  pipeline.Status
		exit    int
		reason  string
	}{
		{"true", pipeline.Passed, 0, ""},
		{"exit 1", pipeline.Failed, 1, `step "exit 1" exited 1`},
		{"exit 255", pipeline.Failed, 255, `step "exit 255" exited 255`},
		{"exit 137", pipeline.Failed, 137, `step "exit 137" exited 137`},
		{"nosuchcommand", pipeline.Failed, 127, `step "nosuchcommand" exited 127`},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			row := w.run(does("echo before", c.command, "echo after"))
			require.Equal(t, c.status, row.Status)
			require.Equal(t, c.exit, row.ExitCode)
			require.Equal(t, c.reason, row.Reason)
			require.Len(t, row.Steps, 3)
			require.Equal(t, c.exit, row.Steps[1].ExitCode)
			if c.exit == 0 {
				require.Contains(t, w.text(row), "after")
				return
			}
			require.Equal(t, []pipeline.Status{pipeline.Passed, pipeline.Failed, pipeline.Skipped}, statuses(row))
			require.Equal(t, "an earlier step did not pass", row.Steps[2].Reason)
			require.False(t, row.Steps[2].FinishedAt.IsZero(), "what is skipped has ended")
			require.NotContains(t, w.text(row), "after")
		})
	}
}

// What an engine says of a command decides whether it is the person's fault or ours.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		res    engines.Result
		err    error
		status pipeline.Status
		reason string
	}{
		"memory":        {engines.Result{ExitCode: -1, Killed: engines.KilledMemory}, nil, pipeline.Failed, "used more memory than it may"},
		"B059 disk":     {engines.Result{ExitCode: -1, Killed: engines.KilledDisk}, nil, pipeline.Failed, "disk full"},
		"step's limit":  {engines.Result{ExitCode: -1, Killed: engines.KilledTimeout}, nil, pipeline.Timeout, "its own limit of 3s"},
		"by nobody":     {engines.Result{ExitCode: -1, Killed: engines.KilledCancel}, nil, pipeline.Error, "not your code"},
		"unknown":       {engines.Result{Killed: "cosmic rays"}, nil, pipeline.Error, "not your code"},
		"machine broke": {engines.Result{}, engines.Fault("the machine lost its disk", errors.New("EIO on /var/lib/x")), pipeline.Error, "the machine lost its disk"},
		"some error":    {engines.Result{}, errors.New("dial 10.0.0.1: refused"), pipeline.Error, "not your code"},
		"error, exit 0": {engines.Result{ExitCode: 0}, errors.New("x"), pipeline.Error, "not your code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.command = func(context.Context, engines.Command) (engines.Result, error, bool) { return c.res, c.err, true }
			j := does("make", "make install")
			j.spec.Steps[0].Timeout = 3 * time.Second
			row := w.run(j)
			require.Equal(t, c.status, row.Status)
			require.Contains(t, row.Reason, c.reason)
			require.Equal(t, row.Reason, row.Steps[0].Reason)
			require.NotContains(t, row.Reason+w.text(row), "/var/lib", "details are the operator's")
			require.NotContains(t, row.Reason+w.text(row), "10.0.0.1")
			require.Equal(t, []pipeline.Status{c.status, pipeline.Skipped}, statuses(row))
		})
	}
}

// A machine that does not open is a fault of ours, told as such, and no step has failed.
func TestEngineThatDoesNotOpenIsAnInfraFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open   func() error
		change func(*job)
		reason string
	}{
		"fault":         {func() error { return engines.Fault("the engine has no image \"nixo\"", errors.New("detail")) }, nil, `the engine has no image "nixo"`},
		"other error":   {func() error { return errors.New("fork/exec /usr/bin/runsc: EPERM") }, nil, "not your code"},
		"panic":         {func() error { panic("nil map in /home/ci/engine.go") }, nil, "not your code"},
		"no engine":     {nil, func(j *job) { j.spec.Engine = "microvm" }, `this machine has no engine "microvm"`},
		"unknown image": {nil, func(j *job) { j.spec.Image = "debian" }, "no image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.open != nil {
				w.open = func(context.Context, engines.Spec) error { return c.open() }
			}
			j := does("true")
			if c.change != nil {
				c.change(&j)
			}
			row := w.run(j)
			require.Equal(t, pipeline.Error, row.Status)
			require.Contains(t, row.Reason, c.reason)
			require.Empty(t, row.Steps)
			require.Contains(t, w.text(row), c.reason, "the log says it too")
			require.NotContains(t, row.Reason, "/")
			require.Empty(t, w.leftovers())
		})
	}
}

// A panic in an engine costs its attempt and nothing else.
func TestPanicInAnEngineEndsOnlyItsAttempt(t *testing.T) {
	t.Parallel()
	boom := func() { panic("boom") }
	for name, arm := range map[string]func(*world){
		"in a command": func(w *world) {
			w.command = func(context.Context, engines.Command) (engines.Result, error, bool) {
				boom()
				return engines.Result{}, nil, true
			}
		},
		"in the checkout": func(w *world) { w.prepare = func() error { boom(); return nil } },
		"in the secrets":  func(w *world) { w.secrets = func() (map[string]string, error) { boom(); return nil, nil } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			arm(w)
			j := does("true")
			j.spec.Clone = workflow.Clone{Depth: 1}
			row := w.run(j)
			require.Equal(t, pipeline.Error, row.Status)
			require.Contains(t, row.Reason, "not your code")
			require.NotContains(t, row.Reason, "boom")
			require.Empty(t, w.leftovers())
			w.command, w.prepare, w.secrets = nil, nil, nil
			require.Equal(t, pipeline.Passed, w.run(j).Status, "the next one runs")
		})
	}
	t.Run("at the end", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.shut = func(context.Context) error { panic("boom") }
		row := w.run(does("true"))
		require.Equal(t, pipeline.Passed, row.Status, "all had passed")
		require.Empty(t, w.leftovers())
	})
}

func TestWhatCannotBeRunIsRefusedBeforeAnythingIsHandedOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*job)
		reason string
	}{
		"no steps":              {func(j *job) { j.spec.Steps = nil }, "has no steps"},
		"B047 a ref as option":  {func(j *job) { j.trigger.Ref = "--upload-pack=touch /tmp/pwn" }, "ref"},
		"B047 a sha as option":  {func(j *job) { j.trigger.Commit = "-p" }, "commit"},
		"B049 a branch deleted": {func(j *job) { j.trigger.Commit = strings.Repeat("0", 40) }, "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			j := does("true")
			c.change(&j)
			row := w.run(j)
			require.Equal(t, pipeline.Error, row.Status)
			require.Contains(t, row.Reason, c.reason)
			require.Equal(t, []string{"report pipeline.Finished"}, w.seen())
		})
	}
	w := newWorld(t)
	c := w.claimed(does("true"))
	c.Workflow.Spec = []byte("{")
	runner.New(w.cfg).Execute(context.Background(), c)
	require.Contains(t, w.row(c).Reason, "cannot be read")
}

// B-041: a commit that the knot no longer has is told as that, and nothing else is built in its place.
func TestB041CommitIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prepare = func() error {
		return fmt.Errorf("prepare checkout: %w", &knot.GitError{Op: "fetch", Kind: knot.ErrCommitGone, Detail: "not our ref"})
	}
	j := does("make")
	j.spec.Clone = workflow.Clone{Depth: 1}
	row := w.run(j)
	require.Equal(t, pipeline.Error, row.Status)
	require.Equal(t, "the knot does not have this commit, or no longer hands it out", row.Reason)
	require.Equal(t, []pipeline.Status{pipeline.Error, pipeline.Skipped}, statuses(row))
	require.NotContains(t, w.seen(), "run make")
}

// B-064, B-118: many attempts at once keep their codes, their secrets and their logs apart.
func TestB064ManyAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 40
	w.secrets = func() (map[string]string, error) {
		out := map[string]string{}
		for i := range 30 {
			out[fmt.Sprintf("KEY_%d", i)] = fmt.Sprintf("%s %d", secret, i)
		}
		return out, nil
	}
	// Apply's look at the one open log is for attempts that run alone.
	w.cfg.Logs = w.logs
	r := runner.New(w.cfg)
	var wg sync.WaitGroup
	rows := make([]pipeline.Workflow, n)
	for i := range n {
		c := w.claimed(does(fmt.Sprintf("echo number %d", i), "printenv KEY_7", fmt.Sprintf("exit %d", 9*(i%2))))
		wg.Go(func() {
			r.Execute(context.Background(), c)
			rows[i] = w.row(c)
		})
	}
	wg.Wait()
	for i, row := range rows {
		require.Equal(t, 9*(i%2), row.ExitCode)
		require.Equal(t, map[int]pipeline.Status{0: pipeline.Passed, 1: pipeline.Failed}[i%2], row.Status)
		require.Contains(t, w.text(row), fmt.Sprintf("number %d\n", i))
		require.NotContains(t, w.text(row), secret)
	}
}

// B-084: output that looks like the log's own control lines is text.
func TestB084OutputIsOnlyOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forged := `{"kind":"control","content":"","step_id":0,"step_status":"end","step_outcome":"passed","exit_code":0}`
	row := w.run(does("echo '" + forged + "'; echo ::add-mask::a; exit 4"))
	require.Equal(t, pipeline.Failed, row.Status)
	require.Equal(t, 4, row.ExitCode)
	require.Contains(t, w.text(row), forged+"\n::add-mask::***\n")
	var ends int
	for _, l := range w.lines(row) {
		if l.StepStatus == "end" {
			ends++
			require.Equal(t, 4, l.ExitCode)
		}
	}
	require.Equal(t, 1, ends)
}
