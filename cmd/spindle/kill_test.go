package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
)

// TestP1KillNineInTheMiddleOfPushes kills the server three times while twelve pushes come in and run. Every push
// was answered or is told again by the knot, so each must have exactly one pipeline, and each must end.
func TestP1KillNineInTheMiddleOfPushes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := b.serve()
	r := b.repo("hello")
	flow := "when:\n  - event: push\n    branch: [\"**\"]\nengine: dummy\nclone: {skip: true}\nsteps:\n  - command: echo begun\n  - command: sleep 0.3\n  - command: echo done\n"
	first, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": flow}})
	require.NoError(t, err)

	pushed := make(chan devnet.Pushed, 16)
	pushed <- first
	failed := make(chan error, 1)
	go func() {
		defer close(pushed)
		for i := range 12 {
			p, err := r.Push(t.Context(), devnet.Change{Message: fmt.Sprintf("change %d", i), Files: map[string]string{"n": fmt.Sprint(i)}})
			if err != nil {
				failed <- err
				return
			}
			pushed <- p
		}
	}()
	var shas []string
	accepted := 0
	kills := 0
	for p := range pushed {
		shas = append(shas, p.SHA)
		if strings.Contains(p.Output, "pipeline ") {
			accepted++
		}
		if len(shas)%4 == 0 {
			s.kill()
			s = b.serve()
			kills++
		}
	}
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	require.Equal(t, 3, kills)
	require.Len(t, shas, 13)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	states := map[string]int{}
	for _, sha := range shas {
		p, err := b.client(nil).Await(ctx, r.DID.String(), sha, world.Ended)
		require.NoError(t, err, "%s", s.said)
		states[world.State(p)]++
		all, err := b.client(nil).Pipelines(ctx, r.DID.String(), sha)
		require.NoError(t, err)
		require.Len(t, all, 1, "push %s", sha)
	}
	t.Logf("%d pushes, %d answered while the server lived, %d kills: ended as %v", len(shas), accepted, kills, states)
	require.Equal(t, 13, states["passed"]+states["error"]+states["superseded"], "%v", states)
}
