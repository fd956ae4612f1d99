package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/daemon"
	"spindle/devnet"
	"spindle/devnet/knot"
	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/dummy"
	"spindle/internal/clock"
	"spindle/lexicons/orgtangled"
)

// shifted is the machine's clock, some hours ahead of it.
type shifted struct {
	clock.Real
	by *atomic.Int64
}

func (s shifted) Now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

// later makes a world whose hours pass as the test says.
func later(t *testing.T) (w *world.World, pass func(time.Duration)) {
	t.Helper()
	var by atomic.Int64
	w, err := world.Start(t.Context(), world.Options{
		Dir: t.TempDir(), Seats: 4, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: shifted{by: &by}, LookGrace: -1,
		Engines: func(string) ([]engines.Engine, error) {
			return []engines.Engine{dummy.New(dummy.Config{Clock: clock.Real{}})}, nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w, func(d time.Duration) { by.Add(int64(d)) }
}

// status is what the server says of itself.
func status(t *testing.T, w *world.World) (s daemon.Status) {
	t.Helper()
	body, err := w.Client(nil).Get(t.Context(), "/_status")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	return s
}

// sighted waits until the spindle has looked at the repository for the first time: a branch that appears after that
// is noticed.
func sighted(t *testing.T, w *world.World, r *devnet.Repo) {
	t.Helper()
	require.Eventually(t, func() bool { return status(t, w).Repos.Unseen == 0 }, time.Minute, 100*time.Millisecond)
}

// runs counts the pipelines of each commit.
func runs(t *testing.T, w *world.World, r *devnet.Repo) map[string]int {
	t.Helper()
	ps, err := w.Client(nil).Pipelines(t.Context(), r.DID.String(), "")
	require.NoError(t, err)
	out := map[string]int{}
	for _, p := range ps {
		out[p.Commit]++
	}
	return out
}

// TestThreeDaysOff has a spindle that is off for three days. The stream keeps a day of history, and the knot's notices
// are lost, or held and told in the end. Every push made meanwhile has its pipeline, each exactly once.
func TestThreeDaysOff(t *testing.T) {
	t.Parallel()
	w, pass := later(t)
	r := hello(t, w)
	before := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	await(t, w, r, before.SHA, world.Ended)
	bob, err := w.Net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	fork, err := w.Net.Fork(t.Context(), bob, r, devnet.RepoOptions{})
	require.NoError(t, err)
	round := func(text string) string {
		p, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "b", Files: map[string]string{"z": text}})
		require.NoError(t, err)
		return strings.TrimSpace(p.SHA)
	}
	first := round("first")
	pr, err := w.Net.OpenPull(t.Context(), bob, r, fork, devnet.PullOptions{Branch: "b"})
	require.NoError(t, err)
	await(t, w, r, first, func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) != "" })
	sighted(t, w, r)
	require.NoError(t, w.Halt())

	want := map[string]int{strings.TrimSpace(before.SHA): 1, first: 1}
	made := func(c devnet.Change) string {
		p, err := r.Push(t.Context(), c)
		require.NoError(t, err)
		sha := strings.TrimSpace(p.SHA)
		want[sha] = 1
		return sha
	}
	k := w.Net.Knot()
	for day := range 3 {
		// Of these nobody ever tells.
		k.SetFaults(knot.Faults{Drop: func(knot.Push) bool { return true }})
		made(devnet.Change{Branch: fmt.Sprintf("lost-%d", day), Files: map[string]string{"x": fmt.Sprint("lost", day)}})
		pass(12 * time.Hour)
		// Of these the knot tells when it can: the last of main is found by looking before that.
		k.SetFaults(knot.Faults{Hold: true})
		made(devnet.Change{Files: map[string]string{"x": fmt.Sprint("held", day)}})
		made(devnet.Change{Branch: fmt.Sprintf("held-%d", day), Files: map[string]string{"y": fmt.Sprint(day)}})
		pass(12 * time.Hour)
	}
	head := round("second")
	_, err = pr.Resubmit(t.Context())
	require.NoError(t, err)
	want[head] = 1
	w.Net.Jetstream().Forget(time.Now().Add(240 * time.Hour).UnixMicro())
	require.NoError(t, w.Resume(t.Context()))
	k.SetFaults(knot.Faults{})
	tip, err := r.Head(t.Context(), "main")
	require.NoError(t, err)
	for what, sha := range map[string]string{"round": head, "main": tip} {
		t.Log(what, sha)
		p := await(t, w, r, strings.TrimSpace(sha), func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) != "" })
		require.Contains(t, *p.Reason, "late")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pass(-72 * time.Hour) // the tokens of the knot have the machine's time
	told, err := k.Release(ctx, false)
	require.NoError(t, err)
	require.Len(t, told, 6)
	for _, a := range told {
		require.Equal(t, 200, a.Status, "%+v", a)
	}
	for sha := range want {
		await(t, w, r, sha, func(p *orgtangled.CiDefs_Pipeline) bool { return true })
	}
	require.Equal(t, want, runs(t, w, r))
	require.Eventually(t, func() bool { return status(t, w).Backfill.Done > 0 }, time.Minute, 100*time.Millisecond)
	require.Empty(t, status(t, w).NotReady)
}
