package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
)

func testOrder(t *testing.T, s Suite) {
	a := open(t, s)
	var out bytes.Buffer
	for i := range 4 {
		res, err := a.Run(t.Context(), engines.Command{Script: fmt.Sprintf("echo %d.1\necho %d.2", i, i), Stdout: &out})
		require.NoError(t, err)
		require.Zero(t, res.ExitCode)
	}
	require.Equal(t, "0.1\n0.2\n1.1\n1.2\n2.1\n2.2\n3.1\n3.2\n", out.String())
}

func testExitCodes(t *testing.T, s Suite) {
	a := open(t, s)
	for script, want := range map[string]int{
		"true": 0, "false": 1, "exit 7": 7, "exit 128": 128, "exit 255": 255, "false\ntrue": 0, "true && false": 1,
		"surely-no-such-command": 127,
	} {
		r := run(t, a, script)
		require.Equal(t, want, r.ExitCode, script)
		require.Empty(t, r.Killed, script)
	}
}

func testStreams(t *testing.T, s Suite) {
	r := run(t, open(t, s), "echo one && echo two >&2\necho three")
	require.Equal(t, "one\nthree\n", r.out)
	require.Equal(t, "two\n", r.err)
}

func testEnv(t *testing.T, s Suite) {
	a := open(t, s, func(s *engines.Spec) { s.Env = []string{"BOTH=spec", "SPEC=a b=c"} })
	with := func(c *engines.Command) { c.Env = []string{"BOTH=command", "TWICE=1", "TWICE=2", "LINES=x\ny"} }
	require.Equal(t, "command\n", run(t, a, "printenv BOTH", with).out)
	require.Equal(t, "a b=c\n", run(t, a, "printenv SPEC", with).out)
	require.Equal(t, "2\n", run(t, a, "printenv TWICE", with).out)
	require.Equal(t, "x\ny\n", run(t, a, "printenv LINES", with).out)
	require.Equal(t, "spec\n", run(t, a, "printenv BOTH").out, "a command's variables are its own")
	require.Equal(t, a.Home()+"\n", run(t, a, "printenv HOME").out)
	require.NoError(t, os.Setenv("SPINDLE_CANARY_OF_THE_SERVER", "must not be seen")) // t.Setenv is not for parallel tests
	require.Equal(t, 1, run(t, a, "printenv SPINDLE_CANARY_OF_THE_SERVER").ExitCode)
}

func testTimeout(t *testing.T, s Suite) {
	a := open(t, s)
	var out bytes.Buffer
	run(t, a, "true") // the machine is up: what follows measures the timeout alone
	began := time.Now()
	res, err := a.Run(t.Context(), engines.Command{Script: "echo before\nsleep 100\necho after", Stdout: &out, Timeout: time.Second})
	within(t, began)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	stopped(t, a, res, err, engines.KilledTimeout)
	require.Equal(t, "before\n", out.String())
}

func testCancel(t *testing.T, s Suite) {
	a := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up := newSignal("up\n")
	var began time.Time
	var killer sync.WaitGroup
	killer.Go(func() {
		<-up.seen
		began = time.Now()
		cancel()
	})
	res, err := a.Run(ctx, engines.Command{Script: "echo up\nsleep 100\necho after", Stdout: up})
	killer.Wait()
	within(t, began)
	stopped(t, a, res, err, engines.KilledCancel)
	require.Equal(t, "up\n", up.buf.String())
}

// A cancel that comes before the machine is up ends the attempt as well.
func testCancelEarly(t *testing.T, s Suite) {
	a := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	res, err := a.Run(ctx, engines.Command{Script: "sleep 100"})
	within(t, began)
	stopped(t, a, res, err, engines.KilledCancel)
}

func testCloseStops(t *testing.T, s Suite) {
	a := open(t, s)
	up := newSignal("up\n")
	var closer sync.WaitGroup
	closer.Go(func() {
		<-up.seen
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	res, err := a.Run(t.Context(), engines.Command{Script: "echo up\nsleep 100", Stdout: up})
	closer.Wait()
	stopped(t, a, res, err, engines.KilledCancel)
}

func testCloseTwice(t *testing.T, s Suite) {
	a := open(t, s)
	run(t, a, "true")
	require.NoError(t, a.Close(t.Context()))
	require.NoError(t, a.Close(t.Context()))
	_, err := a.Run(t.Context(), engines.Command{Script: "true"})
	require.ErrorIs(t, err, engines.ErrOver)
	again, err := s.Engine.Open(t.Context(), engines.Spec{ID: id(t)})
	require.NoError(t, err, "a closed attempt's ID is free again")
	require.NoError(t, again.Close(t.Context()))
}

func testUnknownImage(t *testing.T, s Suite) {
	_, err := s.Engine.Open(t.Context(), engines.Spec{ID: id(t), Image: "no-such-image"})
	require.ErrorIs(t, err, engines.ErrUnknownImage)
	publicOnly(t, err)
	require.Contains(t, engines.Public(err), "no-such-image", "the sentence names what was asked for")
	require.Contains(t, engines.Public(err), "leave the image out", "the sentence names the fix")
}

func testBadSpec(t *testing.T, s Suite) {
	for name, spec := range map[string]engines.Spec{
		"no id":           {},
		"id with a path":  {ID: "../x"},
		"workspace":       {ID: "x", Workspace: "relative"},
		"workspace dots":  {ID: "x", Workspace: "/a/../etc"},
		"mount relative":  {ID: "x", Mounts: []engines.Mount{{Source: "a", Target: "/b"}}},
		"mount dots":      {ID: "x", Mounts: []engines.Mount{{Source: "/a", Target: "/b/../c"}}},
		"env":             {ID: "x", Env: []string{"NOVALUE"}},
		"env zero":        {ID: "x", Env: []string{"A=\x00"}},
		"negative memory": {ID: "x", Limits: engines.Limits{Memory: -1}},
	} {
		_, err := s.Engine.Open(t.Context(), spec)
		require.ErrorIs(t, err, engines.ErrBadSpec, name)
		publicOnly(t, err)
	}
	a := open(t, s)
	for name, c := range map[string]engines.Command{
		"shell":   {Script: "true", Shell: "sh -x"},
		"script":  {Script: "a\x00b"},
		"dir":     {Script: "true", Dir: "x"},
		"env":     {Script: "true", Env: []string{"=x"}},
		"timeout": {Script: "true", Timeout: -1},
		"long":    {Script: string(bytes.Repeat([]byte("x"), 1<<20))},
	} {
		_, err := a.Run(t.Context(), c)
		require.ErrorIs(t, err, engines.ErrBadSpec, name)
	}
	run(t, a, "true") // and the attempt is none the worse for it
}

func testDuplicateID(t *testing.T, s Suite) {
	open(t, s)
	_, err := s.Engine.Open(t.Context(), engines.Spec{ID: id(t)})
	require.ErrorIs(t, err, engines.ErrBadSpec)
	publicOnly(t, err)
}

func testConcurrent(t *testing.T, s Suite) {
	var all sync.WaitGroup
	for i := range 4 {
		a := open(t, s, func(s *engines.Spec) { s.ID = fmt.Sprintf("%s-%d", s.ID, i); s.Env = []string{fmt.Sprintf("N=%d", i)} })
		all.Go(func() {
			var out bytes.Buffer
			for range 3 {
				if res, err := a.Run(t.Context(), engines.Command{Script: "printenv N", Stdout: &out}); err != nil || res.ExitCode != 0 {
					t.Errorf("attempt %d: %v %v", i, res, err)
				}
			}
			if want := fmt.Sprintf("%d\n%d\n%d\n", i, i, i); out.String() != want {
				t.Errorf("attempt %d printed %q", i, out.String())
			}
		})
	}
	all.Wait()
}

type failing struct{}

var errFull = errors.New("disk full at /secret/place")

func (failing) Write([]byte) (int, error) { return 0, errFull }

// A writer's error is the machinery's fault; the command still runs to its end.
func testWriterFails(t *testing.T, s Suite) {
	a := open(t, s)
	_, err := a.Run(t.Context(), engines.Command{Script: "echo x", Stdout: failing{}})
	require.ErrorIs(t, err, errFull)
	publicOnly(t, err)
	require.Equal(t, "y\n", run(t, a, "echo y").out)
}

// Output arrives while the command runs, not after it.
func testOutputIsLive(t *testing.T, s Suite) {
	a := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := newSignal("first\n")
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = a.Run(ctx, engines.Command{Script: "echo first\nsleep 100", Stdout: first}) // its end is not what is tested
	})
	wait(t, first.seen, "the first line of a running command")
	cancel()
	running.Wait()
}

func testTimes(t *testing.T, s Suite) {
	a := open(t, s)
	before := time.Now()
	r := run(t, a, "sleep 0.1")
	require.False(t, r.Started.Before(before))
	require.GreaterOrEqual(t, r.Ended.Sub(r.Started), 100*time.Millisecond)
	require.False(t, r.Ended.After(time.Now()))
}
