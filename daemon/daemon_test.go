package daemon_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/pds"
	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/dummy"
	"spindle/internal/clock"
	"spindle/lexicons/orgtangled"
)

// start makes a world whose only engine runs nothing real.
func start(t *testing.T) *world.World {
	t.Helper()
	w, err := world.Start(t.Context(), world.Options{
		Dir: t.TempDir(), Seats: 4, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Engines: func(string) ([]engines.Engine, error) {
			return []engines.Engine{dummy.New(dummy.Config{Clock: clock.Real{}})}, nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// file is a workflow that runs script on every push and pull request, without a checkout.
func file(script ...string) string {
	var b strings.Builder
	b.WriteString("when:\n  - event: [push, pull_request, manual]\n    branch: [\"**\"]\nengine: dummy\nclone: {skip: true}\nsteps:\n")
	for _, s := range script {
		b.WriteString("  - command: " + s + "\n")
	}
	return b.String()
}

func hello(t *testing.T, w *world.World) *devnet.Repo {
	t.Helper()
	r, err := w.Hello(t.Context())
	require.NoError(t, err)
	return r
}

func push(t *testing.T, r *devnet.Repo, c devnet.Change) devnet.Pushed {
	t.Helper()
	p, err := r.Push(t.Context(), c)
	require.NoError(t, err)
	return p
}

func await(t *testing.T, w *world.World, repo *devnet.Repo, sha string, ok func(*orgtangled.CiDefs_Pipeline) bool) *orgtangled.CiDefs_Pipeline {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := w.Client(nil).Await(ctx, repo.DID.String(), sha, ok)
	require.NoError(t, err)
	return p
}

func TestPushBecomesAPipelineThatEnds(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{
		".tangled/workflows/a.yml": file("echo one", "echo two"),
		".tangled/workflows/b.yml": file("echo fine", "exit 3", "echo never"),
		".tangled/workflows/c.yml": "engine: dummy\nsteps:\n  - comand: echo\n",
	}})
	got := await(t, w, r, p.SHA, world.Ended)
	require.Contains(t, p.Output, got.Id, "the pusher is told the pipeline")
	require.Len(t, got.Workflows, 3)
	state := map[string]string{}
	for _, wf := range got.Workflows {
		state[wf.Id] = *wf.State
	}
	require.Equal(t, map[string]string{"a": "passed", "b": "failed", "c": "invalid"}, state)
	require.Contains(t, p.Output, "comand", "the pusher is told what is wrong with the file")
	b := got.Workflows[1]
	require.EqualValues(t, 3, *b.ExitCode)
	require.Equal(t, "skipped", *b.Steps[2].State)

	var log strings.Builder
	require.NoError(t, w.Client(nil).Follow(t.Context(), r.DID.String(), got.Id, func(e world.Entry) {
		if e.Data != nil && e.Data.Workflow == "a" {
			log.WriteString(e.Data.Content)
		}
	}))
	require.Equal(t, "one\ntwo\n", log.String())
}

func TestPushThatStartsNothingIsToldWhy(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{"readme": "x"}})
	require.Contains(t, p.Output, "no workflow file")
	p = push(t, r, devnet.Change{Files: map[string]string{
		".tangled/workflows/a.yml": "when: [{event: push, branch: release}]\n" + strings.TrimPrefix(file("echo x"), "when:\n  - event: [push, pull_request, manual]\n    branch: [\"**\"]\n"),
	}})
	require.Contains(t, p.Output, "release")
	p = push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}, Options: []string{"skip-ci"}})
	require.Contains(t, p.Output, "skip-ci")
	ps, err := w.Client(nil).Pipelines(t.Context(), r.DID.String(), "")
	require.NoError(t, err)
	require.Empty(t, ps)
}

// pull opens a pull request of bob's from a fork and returns it with its head commit.
func pull(t *testing.T, w *world.World, r *devnet.Repo) (*devnet.Account, *devnet.Pull, string) {
	t.Helper()
	bob, err := w.Net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	fork, err := w.Net.Fork(t.Context(), bob, r, devnet.RepoOptions{})
	require.NoError(t, err)
	p, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "b", Files: map[string]string{"x": "y"}})
	require.NoError(t, err)
	pr, err := w.Net.OpenPull(t.Context(), bob, r, fork, devnet.PullOptions{Branch: "b"})
	require.NoError(t, err)
	return bob, pr, p.SHA
}

// TestT12ForkGetsNoSecrets shows that a fork's code waits, that its author cannot let it start, and that it has
// no secret even after the approval.
func TestT12ForkGetsNoSecrets(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	alice := w.Client(w.Owner)
	require.NoError(t, alice.PutSecret(t.Context(), r.DID.String(), world.Secret, world.SecretValue))
	own := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("printenv " + world.Secret)}})
	require.Equal(t, "passed", world.State(await(t, w, r, own.SHA, world.Ended)))

	bob, _, sha := pull(t, w, r)
	held := await(t, w, r, sha, func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) != "" })
	require.Equal(t, "held", world.State(held))
	require.Error(t, w.Client(bob).Approve(t.Context(), r.DID.String(), held.Id))
	require.Error(t, w.Client(nil).Approve(t.Context(), r.DID.String(), held.Id))
	require.NoError(t, alice.Approve(t.Context(), r.DID.String(), held.Id))
	got := await(t, w, r, sha, world.Ended)
	require.Equal(t, "failed", world.State(got), "printenv finds no secret")
	require.Equal(t, "approved", *got.Trust)

	var all strings.Builder
	for _, id := range []string{got.Id, await(t, w, r, own.SHA, world.Ended).Id} {
		require.NoError(t, w.Client(nil).Follow(t.Context(), r.DID.String(), id, func(e world.Entry) {
			if e.Data != nil {
				all.WriteString(e.Data.Content)
			}
		}))
	}
	require.Contains(t, all.String(), "***")
	require.NotContains(t, all.String(), world.SecretValue)
}

// TestT02ForgedRecordsHaveNoEffect sends what a lying stream could, and what an account with a broken signature
// would: nothing comes of any of it, and the real record after them still works.
func TestT02ForgedRecordsHaveNoEffect(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	first := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	await(t, w, r, first.SHA, world.Ended)
	bob, err := w.Net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	fork, err := w.Net.Fork(t.Context(), bob, r, devnet.RepoOptions{})
	require.NoError(t, err)
	p, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "b", Files: map[string]string{"x": "y"}})
	require.NoError(t, err)

	js := w.Net.Jetstream()
	ticket := map[string]any{
		"$type": devnet.Ticket, "repo": r.DID.String(), "title": "t", "kind": "pull", "createdAt": "2026-01-01T00:00:00Z",
	}
	patch := map[string]any{
		"$type": devnet.Patch, "ticket": "3mzzzzzzzzy2a", "base": first.SHA, "head": p.SHA,
		"source": map[string]any{"repo": fork.DID.String(), "branch": "b"}, "createdAt": "2026-01-01T00:00:00Z",
	}
	_, err = js.Forge(bob.DID.String(), pds.Create, devnet.Ticket, "3mzzzzzzzzy2a", ticket)
	require.NoError(t, err)
	_, err = js.Forge(bob.DID.String(), pds.Create, devnet.Patch, "3mzzzzzzzzy2b", patch)
	require.NoError(t, err)
	_, err = js.Forge(r.DID.String(), pds.Create, devnet.Collaborator, bob.DID.String(), map[string]any{
		"$type": devnet.Collaborator, "createdAt": "2026-01-01T00:00:00Z",
	})
	require.NoError(t, err)
	for _, how := range []pds.Tamper{pds.BadSignature, pds.HighS, pds.OtherDID, pds.CorruptBlock, pds.Truncated, pds.ForgedTree, pds.FutureRev} {
		bob.Tamper(how)
		_, err := w.Net.OpenPull(t.Context(), bob, r, fork, devnet.PullOptions{Branch: "b"})
		require.NoError(t, err)
		require.Never(t, func() bool {
			ps, err := w.Client(nil).Pipelines(t.Context(), r.DID.String(), p.SHA)
			return err != nil || len(ps) > 0
		}, 150*time.Millisecond, 30*time.Millisecond, "tampered with: %v", how)
	}
	require.Error(t, w.Client(bob).PutSecret(t.Context(), r.DID.String(), "FORGED_RIGHT", "12345678"), "a forged collaborator gains no right")

	bob.Tamper(pds.Honest)
	_, err = w.Net.OpenPull(t.Context(), bob, r, fork, devnet.PullOptions{Branch: "b"})
	require.NoError(t, err)
	got := await(t, w, r, p.SHA, func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) != "" })
	require.Equal(t, "held", world.State(got))
}

// TestCollaboratorsComeAndGo follows a proven collaborator record to the right to set a secret, and its removal
// to the end of that right.
func TestCollaboratorsComeAndGo(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	carol, err := w.Net.CreateAccount(t.Context(), "carol.test")
	require.NoError(t, err)
	may := func() bool {
		return w.Client(carol).PutSecret(t.Context(), r.DID.String(), "KEY", "a value of some length") == nil
	}
	require.False(t, may())
	require.NoError(t, r.AddCollaborator(carol))
	require.Eventually(t, may, time.Minute, 100*time.Millisecond)
	require.NoError(t, r.RemoveCollaborator(carol))
	require.Eventually(t, func() bool { return !may() }, time.Minute, 100*time.Millisecond)
}

// TestT07KnotSpeaksForItsOwnRepositoriesOnly has another account, and another repository, tell of a push.
func TestT07KnotSpeaksForItsOwnRepositoriesOnly(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	first := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	mallory, err := w.Net.CreateAccount(t.Context(), "mallory.test")
	require.NoError(t, err)
	in := map[string]any{"repo": r.DID.String(), "event": map[string]any{
		"$type": "org.tangled.event.push", "repo": r.DID.String(), "ref": "refs/heads/evil",
		"oldSha": strings.Repeat("0", 40), "newSha": first.SHA,
	}}
	err = w.Client(mallory).Call(t.Context(), "org.tangled.event.notifyEvent", in, nil)
	var refused *world.CallError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 403, refused.Status)
	require.Error(t, w.Client(nil).Call(t.Context(), "org.tangled.event.notifyEvent", in, nil), "no token at all")
}

// TestDuplicatedNoticesMakeOnePipeline sends every notice five times, each with a token of its own.
func TestDuplicatedNoticesMakeOnePipeline(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	f := w.Net.Knot().Knot
	f.SetFaults(devnetFaults(4))
	p := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	await(t, w, r, p.SHA, world.Ended)
	require.Eventually(t, func() bool { return f.Pending() == 0 }, time.Minute, 20*time.Millisecond)
	ps, err := w.Client(nil).Pipelines(t.Context(), r.DID.String(), p.SHA)
	require.NoError(t, err)
	require.Len(t, ps, 1)
}

// TestCancelEndsWhatRuns cancels a step that would sleep for an hour.
func TestCancelEndsWhatRuns(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("sleep 3600")}})
	running := await(t, w, r, p.SHA, func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) == "running" })
	in := orgtangled.CiCancelPipeline_Input{Repo: r.DID.String(), Pipeline: running.Id}
	require.Error(t, w.Client(nil).Call(t.Context(), "org.tangled.ci.cancelPipeline", in, nil))
	require.NoError(t, w.Client(w.Owner).Call(t.Context(), "org.tangled.ci.cancelPipeline", in, nil))
	require.Equal(t, "cancelled", world.State(await(t, w, r, p.SHA, world.Ended)))
}

// TestRetryRunsTheStoredSpec repeats an ended pipeline after its file has changed.
func TestRetryRunsTheStoredSpec(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	p := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("exit 4")}})
	first := await(t, w, r, p.SHA, world.Ended)
	push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo fine")}})
	var out orgtangled.CiRetryPipeline_Output
	require.NoError(t, w.Client(w.Owner).Call(t.Context(), "org.tangled.ci.retryPipeline",
		orgtangled.CiRetryPipeline_Input{Repo: r.DID.String(), Pipeline: first.Id}, &out))
	require.NotEqual(t, first.Id, out.Pipeline)
	again := await(t, w, r, p.SHA, func(q *orgtangled.CiDefs_Pipeline) bool { return q.Id == out.Pipeline && world.Ended(q) })
	require.Equal(t, "failed", world.State(again))
	require.Equal(t, first.Id, *again.RetryOf)
}
