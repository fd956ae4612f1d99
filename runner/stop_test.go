package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/runner"
	"spindle/store"
)

// started lets a command run and tells when the one with that script does.
func (w *world) started(script string) <-chan struct{} {
	c := make(chan struct{})
	w.command = func(_ context.Context, cmd engines.Command) (engines.Result, error, bool) {
		if cmd.Script == script {
			close(c)
		}
		return engines.Result{}, nil, false
	}
	return c
}

// stoppedBy runs "sleep 600" between two other commands and ends it with stop.
func (w *world) stoppedBy(j job, stop error) pipeline.Workflow {
	w.t.Helper()
	c := w.claimed(j)
	running := w.started("sleep 600")
	ctx, end := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runner.New(w.cfg).Execute(ctx, c)
	}()
	receive(w.t, "the second step", running)
	end(stop)
	receive(w.t, "the end", done)
	return w.row(c)
}

func TestCancelInTheMiddleOfAStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	row := w.stoppedBy(does("echo before", "sleep 600", "echo after"), &pipeline.Stop{Kind: pipeline.StopCancel, By: alice})
	require.Equal(t, pipeline.Cancelled, row.Status)
	require.Equal(t, "cancelled by "+alice, row.Reason)
	require.Equal(t, []pipeline.Status{pipeline.Passed, pipeline.Cancelled}, statuses(row))
	require.Equal(t, "before\ncancelled by "+alice+"\n", w.text(row), "the log up to the cancel, and why it ends")
	require.Contains(t, w.seen(), "close")
	require.Empty(t, w.leftovers())
}

// B-061: a cancel at the very moment of the end leaves one ending, whichever of the two it is.
func TestB061CancelAtTheMomentOfTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := runner.New(w.cfg)
	for range 60 {
		c := w.claimed(does("true"))
		ctx, end := context.WithCancelCause(context.Background())
		w.command = func(context.Context, engines.Command) (engines.Result, error, bool) {
			go end(&pipeline.Stop{Kind: pipeline.StopCancel, By: alice})
			return engines.Result{}, nil, false
		}
		w.facts = nil
		r.Execute(ctx, c)
		end(nil)
		require.Len(t, w.facts, 1)
		row := w.row(c)
		require.Contains(t, []pipeline.Status{pipeline.Passed, pipeline.Cancelled}, row.Status)
		require.Equal(t, row.Status, row.Steps[0].Status)
	}
}

// B-062: a time that is up is its own ending and says which limit it was, in a step or before the first.
func TestB062TimeIsUp(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	t.Run("in a step", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		j := does("echo before", "sleep 600", "echo after")
		j.spec.Timeout = 2 * time.Second // the first step must be done by then, on a busy machine too
		row := w.run(j)
		require.Equal(t, pipeline.Timeout, row.Status)
		require.Equal(t, "stopped at the workflow's limit of 2s; a longer one is set with `timeout:`", row.Reason)
		require.Equal(t, pipeline.Timeout, row.Steps[len(row.Steps)-2].Status)
		require.Equal(t, pipeline.Skipped, row.Steps[len(row.Steps)-1].Status)
		require.Contains(t, w.text(row), row.Reason)
	})
	t.Run("in the setup", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cfg.Timeout = limit
		w.open = func(ctx context.Context, _ engines.Spec) error { <-ctx.Done(); return ctx.Err() }
		row := w.run(does("true"))
		require.Equal(t, pipeline.Timeout, row.Status)
		require.Contains(t, row.Reason, "limit of 50ms")
	})
	t.Run("at the most that is allowed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cfg.MaxTimeout = limit
		j := does("sleep 600")
		j.spec.Timeout = time.Hour
		row := w.run(j)
		require.Equal(t, pipeline.Timeout, row.Status)
		require.Equal(t, "stopped at the limit of 50ms, the longest that this spindle allows", row.Reason)
	})
	t.Run("of one step", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		j := does("sleep 600", "echo after")
		j.spec.Steps[0].Timeout = limit
		row := w.run(j)
		require.Equal(t, pipeline.Timeout, row.Status)
		require.Equal(t, `step "sleep 600" was stopped at its own limit of 50ms`, row.Reason)
	})
	t.Run("the wait in the queue does not count", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		j := does("true")
		j.spec.Timeout = 10 * time.Second
		c := w.claimed(j)
		c.Workflow.ReadyAt = time.Now().Add(-time.Hour)
		runner.New(w.cfg).Execute(context.Background(), c)
		require.Equal(t, pipeline.Passed, w.row(c).Status)
	})
}

// A server that stops hands the attempt back, unless it had been given secrets.
func TestDrain(t *testing.T) {
	t.Parallel()
	stop := &pipeline.Stop{Kind: pipeline.StopDrain, By: "spindle"}
	t.Run("handed back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		row := w.stoppedBy(does("echo before", "sleep 600", "echo after"), stop)
		require.Equal(t, pipeline.Waiting, row.Status)
		require.Equal(t, "interrupted: the spindle was stopped (not your code); attempt 2 of 3 follows", row.Reason)
		require.Empty(t, w.leftovers())
		w.command = func(context.Context, engines.Command) (engines.Result, error, bool) {
			return engines.Result{}, nil, true
		}
		c := w.claim()
		runner.New(w.cfg).Execute(context.Background(), c)
		require.Equal(t, pipeline.Passed, w.row(c).Status)
		require.Equal(t, 2, w.row(c).Attempt)
	})
	t.Run("not with secrets", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.secrets = func() (map[string]string, error) { return map[string]string{"KEY": secret}, nil }
		row := w.stoppedBy(does("sleep 600"), stop)
		require.Equal(t, pipeline.Error, row.Status)
		require.Contains(t, row.Reason, "it had been given secrets")
	})
	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.secrets = func() (map[string]string, error) { return map[string]string{"KEY": secret}, nil }
		c := w.claimed(does("true"))
		ctx, end := context.WithCancelCause(context.Background())
		end(stop)
		runner.New(w.cfg).Execute(ctx, c)
		require.Equal(t, pipeline.Waiting, w.row(c).Status, "nothing was handed out yet")
		require.Equal(t, []string{"report pipeline.Lost"}, w.seen())
	})
}

// P4: an attempt whose lease is lost tells nothing more, and is gone from its machine.
func TestP4StaleAttemptIsSilent(t *testing.T) {
	t.Parallel()
	t.Run("told by the queue", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		row := w.stoppedBy(does("sleep 600", "echo after"), &pipeline.Stop{Kind: pipeline.StopStale})
		require.Equal(t, pipeline.Running, row.Status, "as the other attempt left it")
		require.Empty(t, w.facts)
		require.NotContains(t, w.seen(), "run echo after")
		require.Contains(t, w.seen(), "close")
		require.Empty(t, w.leftovers())
	})
	t.Run("told by the store", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		c := w.claimed(does("echo one", "echo two"))
		w.command = func(_ context.Context, cmd engines.Command) (engines.Result, error, bool) {
			_, _, err := w.Recover(context.Background(), "local")
			require.NoError(t, err)
			return engines.Result{}, nil, false
		}
		runner.New(w.cfg).Execute(context.Background(), c)
		row := w.row(c)
		require.Equal(t, pipeline.Waiting, row.Status)
		require.Empty(t, w.facts)
		require.NotContains(t, w.seen(), "run echo two")
		require.Contains(t, w.seen(), "close")
	})
	t.Run("before the secrets", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.secrets = func() (map[string]string, error) {
			_, _, err := w.Recover(context.Background(), "local")
			return map[string]string{"KEY": secret}, err
		}
		c := w.claimed(does("echo one"))
		runner.New(w.cfg).Execute(context.Background(), c)
		require.Equal(t, pipeline.Waiting, w.row(c).Status)
		require.Equal(t, []string{"secrets", "released"}, w.seen())
	})
}

// facts is a store in memory, for tests in which time is not real.
type facts struct {
	apply func(try int) error
	tries int
	last  pipeline.Fact
	at    time.Time
}

func (f *facts) Apply(ctx context.Context, _ pipeline.ID, _ string, x pipeline.Fact) (pipeline.Workflow, error) {
	f.tries++
	f.last, f.at = x, time.Now()
	if err := ctx.Err(); err != nil {
		return pipeline.Workflow{}, err
	}
	if f.apply != nil {
		return pipeline.Workflow{}, f.apply(f.tries)
	}
	return pipeline.Workflow{}, nil
}
func (f *facts) StartStep(context.Context, pipeline.Lease, pipeline.Step) error { return nil }
func (f *facts) EndStep(context.Context, pipeline.Lease, pipeline.Step) error   { return nil }
func (f *facts) MarkReleased(context.Context, pipeline.Lease) error             { return nil }

// A machine that never ends costs a minute and not the result.
func TestMachineThatDoesNotEndDoesNotCostTheResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(does("true"))
	synctest.Test(t, func(t *testing.T) {
		f := &facts{}
		w.cfg.Facts = f
		w.shut = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		runner.New(w.cfg).Execute(context.Background(), c)
		require.Equal(t, pipeline.Finished{Epoch: 1, Status: pipeline.Passed}, f.last)
		require.Equal(t, time.Minute, f.at.Sub(began))
	})
}

// B-091: a report that does not get through is sent again until it does.
func TestB091ReportIsRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apply func(try int) error
		tries int
		took  time.Duration
	}{
		"comes back": {func(try int) error {
			if try < 5 {
				return errors.New("database is locked")
			}
			return nil
		}, 5, 1500 * time.Millisecond},
		"stale":   {func(int) error { return store.ErrStale }, 1, 0},
		"ended":   {func(int) error { return pipeline.ErrEnded }, 1, 0},
		"closed":  {func(int) error { return store.ErrClosed }, 1, 0},
		"refused": {func(int) error { return pipeline.ErrMove }, 1, 0},
		"never":   {func(int) error { return errors.New("disk I/O error") }, 17, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			claimed := w.claimed(does("exit 3"))
			synctest.Test(t, func(t *testing.T) {
				f := &facts{apply: c.apply}
				w.cfg.Facts, w.cfg.Clock = f, clock.Real{}
				began := time.Now()
				runner.New(w.cfg).Execute(context.Background(), claimed)
				require.Equal(t, c.tries, f.tries)
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, 3, f.last.(pipeline.Finished).ExitCode)
			})
		})
	}
}
