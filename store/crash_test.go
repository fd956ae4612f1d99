package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/pipeline"
	"spindle/rbac"
)

const crashEnv = "SPINDLE_STORE_CRASH_TEST"

// crashChild is the process that TestP3KillLosesNothing kills. It tells each durable thing after it was answered.
func crashChild() bool {
	path := os.Getenv(crashEnv)
	if path == "" {
		return false
	}
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: path, Owner: boss, Admission: rbac.Open, AuditKey: []byte("test")})
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	ids := tid.New(clock.Real{})
	var mu sync.Mutex
	say := func(f string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(f+"\n", args...)
	}
	if _, err := s.Accept(ctx, Effects{Repos: []RepoBinding{{Repo: repoA, Owner: alice}}}); err != nil {
		say("error %v", err)
		return true
	}
	pid := os.Getpid()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100000 {
				key := fmt.Sprintf("%d-%d-%d", pid, g, i)
				tr := pipeline.Trigger{Key: key, Kind: pipeline.Manual, Repo: repoA, Actor: alice, Commit: "c"}
				cur := Cursor{Source: "test", Host: fmt.Sprintf("%d-%d", pid, g), Protocol: "v1", Value: int64(i + 1)}
				a, err := s.Accept(ctx, Effects{Event: &tr, Cursor: &cur})
				if err != nil {
					say("error %v", err)
					return
				}
				say("accepted %s", key)
				p, err := s.Enqueue(ctx, Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: pipeline.ID(ids.Next()), Repo: repoA, Owner: alice,
					Workflows: []pipeline.Workflow{flow("a", pipeline.Waiting), flow("b", pipeline.Waiting), flow("c", pipeline.Waiting)}}})
				if err != nil {
					say("error %v", err)
					return
				}
				say("planned %s", p.ID)
				c, err := s.Claim(ctx, ClaimRequest{Holder: "local/1", Engines: []string{"dummy"}, TTL: 1e9})
				if err != nil || c == nil {
					say("error %v", err)
					return
				}
				if _, err := s.Apply(ctx, c.Lease.Pipeline, c.Lease.Workflow, pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Passed}); err != nil {
					say("error %v", err)
					return
				}
				say("passed %s %s", c.Lease.Pipeline, c.Lease.Workflow)
			}
		})
	}
	wg.Wait()
	return true
}

// P2, P3, P9: kill -9 in the middle of a write loop. What was answered is there, nothing is there by half.
func TestP3KillLosesNothing(t *testing.T) {
	t.Parallel()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "spindle.db")
	said := map[string][]string{}
	for round := range rounds {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), crashEnv+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			verb, rest, _ := strings.Cut(lines.Text(), " ")
			require.NotEqual(t, "error", verb, rest)
			said[verb] = append(said[verb], rest)
			if n == 20+round*37 {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait(), "it was killed")

		b := &bench{t: t, path: path, clock: clock.NewManual(clock.Real{}.Now())}
		b.open()
		for _, key := range said["accepted"] {
			v, ok, err := b.EventByKey(b.ctx(), key)
			require.NoError(t, err)
			require.True(t, ok, "accepted %s is gone", key)
			require.Contains(t, []EventState{EventPending, EventDone}, v.State)
			require.Equal(t, v.State == EventDone, v.Pipeline != "")
		}
		for _, id := range said["planned"] {
			require.Len(t, b.get(pipeline.ID(id)).Workflows, 3)
		}
		for _, x := range said["passed"] {
			id, name, _ := strings.Cut(x, " ")
			for _, w := range b.get(pipeline.ID(id)).Workflows {
				require.True(t, w.Name != name || w.Status == pipeline.Passed, x)
			}
		}
		count := func(q string) (n int) {
			_, err := b.r.get(b.ctx(), q, nil, &n)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, count("SELECT count(*) FROM pipelines p WHERE 3 <> (SELECT count(*) FROM workflows w WHERE w.pipeline = p.id)"), "half plans")
		require.Zero(t, count("SELECT count(*) FROM events WHERE state = 'done' AND pipeline NOT IN (SELECT id FROM pipelines)"))
		require.Zero(t, count("SELECT count(*) FROM pipelines WHERE id NOT IN (SELECT pipeline FROM events WHERE state = 'done')"))
		require.Zero(t, count("SELECT count(*) FROM cursors c WHERE c.value <> (SELECT count(*) FROM events e WHERE e.key GLOB c.host || '-*')"), "cursor and events are one transaction")
		require.Zero(t, count("SELECT count(*) FROM workflows w WHERE w.status IN ('preparing', 'running') AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.pipeline = w.pipeline AND a.workflow = w.name AND a.epoch = w.epoch AND a.ended_at = 0)"))
		require.NoError(t, b.AuditVerify(b.ctx()))
		_, failed, err := b.Recover(b.ctx(), "local/")
		require.NoError(t, err)
		require.Empty(t, failed)
		require.NoError(t, b.Close())
	}
	t.Logf("%d kills: %d accepted, %d planned, %d passed, none lost", rounds, len(said["accepted"]), len(said["planned"]), len(said["passed"]))
}
