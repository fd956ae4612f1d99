package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
)

// TestAdmissionIsConfigured has somebody be a stranger, a member, and banned, over three starts of one server.
func TestAdmissionIsConfigured(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	bob, err := b.net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	r, err := b.net.CreateRepo(t.Context(), bob, "bobs", devnet.RepoOptions{Spindle: world.Hostname})
	require.NoError(t, err)
	n := 0
	push := func() devnet.Pushed {
		n++
		p, err := r.Push(t.Context(), devnet.Change{Message: "change", Files: map[string]string{
			"n":                        string(rune('a' + n)),
			".tangled/workflows/a.yml": "when:\n  - event: push\n    branch: main\nengine: dummy\nclone: {skip: true}\nsteps:\n  - command: echo hello\n",
		}})
		require.NoError(t, err)
		return p
	}
	runs := func(p devnet.Pushed) bool {
		ps, err := b.client(nil).Pipelines(t.Context(), r.DID.String(), p.SHA)
		require.NoError(t, err)
		return len(ps) > 0
	}

	s := b.serve()
	p := push()
	require.Contains(t, p.Output, "SPINDLE_SERVER_MEMBERS", "a stranger is told who can let them in")
	require.False(t, runs(p))
	s.kill()

	s = b.serve("SPINDLE_SERVER_MEMBERS=" + bob.DID.String())
	p = push()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := b.client(nil).Await(ctx, r.DID.String(), p.SHA, world.Ended)
	require.NoError(t, err)
	require.Equal(t, "passed", world.State(got))
	s.kill()

	b.serve("SPINDLE_SERVER_ADMISSION=open", "SPINDLE_SERVER_BANNED="+r.DID.String())
	p = push()
	require.Contains(t, p.Output, "banned")
	require.False(t, runs(p))
}
