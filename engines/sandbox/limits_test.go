package sandbox_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/engines/sandbox"
	"spindle/engines/sandbox/sandboxtest"
)

// TestT36Memory: memory of processes is bounded, and the attempt ends with the reason.
func TestT36Memory(t *testing.T) {
	t.Parallel()
	a := open(t, sandboxtest.New(t), engines.Spec{Limits: engines.Limits{Memory: 128 << 20}})
	res, err := a.Run(t.Context(), engines.Command{Timeout: time.Minute, Script: `x=$(head -c 100000000 /dev/zero | tr '\0' x); y=$x$x$x$x; sleep 60`})
	require.NoError(t, err)
	require.Equal(t, engines.KilledMemory, res.Killed)
	_, err = a.Run(t.Context(), engines.Command{Script: "true"})
	require.ErrorIs(t, err, engines.ErrOver)
}

// TestT36Disk: what an attempt writes is bounded, wherever it writes it.
func TestT36Disk(t *testing.T) {
	t.Parallel()
	e := sandboxtest.New(t, func(c *sandbox.Config) { c.Disk = 64 << 20 })
	for _, file := range []string{"big", "/tmp/big", "$HOME/big"} {
		a := open(t, e, engines.Spec{})
		res, err := a.Run(t.Context(), engines.Command{Timeout: time.Minute, Script: "head -c 300000000 /dev/zero > " + file + "; sleep 60"})
		require.NoError(t, err)
		require.Equal(t, engines.KilledDisk, res.Killed, file)
	}
}

// TestT36ForkBomb: the number of processes is bounded, the bomb's command can be stopped, and a neighbour works on.
func TestT36ForkBomb(t *testing.T) {
	t.Parallel()
	e := sandboxtest.New(t)
	neighbour := open(t, e, engines.Spec{})
	limits := engines.Limits{Pids: 40}
	// More than once, because a count that is right only now and then passes now and then.
	for range 4 {
		var out, errs bytes.Buffer
		res, err := open(t, e, engines.Spec{Limits: limits}).Run(t.Context(), engines.Command{
			Script: `for i in $(seq 60); do echo $i; sleep 1000 & done`, Shell: "sh", Stdout: &out, Stderr: &errs, Timeout: time.Minute,
		})
		require.NoError(t, err)
		require.NotZero(t, res.ExitCode, errs.String())
		require.Contains(t, errs.String(), "fork")
		require.LessOrEqual(t, strings.Count(out.String(), "\n"), int(limits.Pids), "not one more than the bound")
	}
	// The shell itself waits without a fork: the bomb would take the last process from it.
	res, err := open(t, e, engines.Spec{Limits: limits}).Run(t.Context(), engines.Command{Script: `bomb() { bomb | bomb & }; (bomb) & while :; do :; done`, Timeout: 3 * time.Second})
	require.NoError(t, err)
	require.Equal(t, engines.KilledTimeout, res.Killed)
	res, err = neighbour.Run(t.Context(), engines.Command{Script: "true"})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
}
