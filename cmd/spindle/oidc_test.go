package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/sandbox"
	"spindle/internal/clock"
	"spindle/lexicons/orgtangled"
)

// sandboxed makes a world that runs real sandboxes, or skips where none can run.
func sandboxed(t *testing.T) *world.World {
	t.Helper()
	w, err := world.Start(t.Context(), world.Options{
		Engines: func(state string) ([]engines.Engine, error) {
			e, err := sandbox.New(sandbox.Config{Runsc: binary(t), StateDir: filepath.Join(state, "s"), Clock: clock.Real{}})
			if err != nil {
				return nil, err
			}
			return []engines.Engine{e}, probe(t.Context(), e)
		},
	})
	if err != nil && cannotSandbox(err.Error()) {
		t.Skip("no sandbox can run here: " + err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// output runs one push to its end and returns what its only workflow printed.
func output(t *testing.T, w *world.World, r *devnet.Repo, flow string) (*orgtangled.CiDefs_Pipeline, string) {
	t.Helper()
	p, err := r.Push(t.Context(), devnet.Change{Message: "change", Files: map[string]string{".tangled/workflows/only.yml": flow}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := w.Client(nil).Await(ctx, r.DID.String(), p.SHA, world.Ended)
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, w.Client(nil).Follow(ctx, r.DID.String(), got.Id, func(e world.Entry) {
		if e.Data != nil {
			text.WriteString(e.Data.Content)
		}
	}))
	return got, text.String()
}

// TestOIDCTokenIsAcceptedByOthers lets a run show its ID token in three parts, so that no mask applies, and has an
// independent library check it through discovery, as a cloud would.
func TestOIDCTokenIsAcceptedByOthers(t *testing.T) {
	t.Parallel()
	w := sandboxed(t)
	r, err := w.Hello(t.Context())
	require.NoError(t, err)
	flow := `when:
  - event: push
    branch: main
engine: sandbox
audience: sts.example.com
steps:
  - command: echo "whole $TANGLED_ID_TOKEN"
  - command: echo "$TANGLED_ID_TOKEN" | tr . '\n' | sed 's/^/part /'
`
	p, text := output(t, w, r, flow)
	require.Equal(t, "passed", world.State(p), text)
	require.Contains(t, text, "whole ***", "a token is masked like a secret")
	var parts []string
	for _, l := range strings.Split(text, "\n") {
		if part, ok := strings.CutPrefix(strings.TrimSpace(l), "part "); ok {
			parts = append(parts, part)
		}
	}
	require.Len(t, parts, 3, text)

	provider, err := goidc.NewProvider(t.Context(), w.URL)
	require.NoError(t, err)
	token, err := provider.Verifier(&goidc.Config{ClientID: "sts.example.com"}).Verify(t.Context(), strings.Join(parts, "."))
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, token.Claims(&claims))
	t.Log(claims)
	require.Equal(t, w.URL, token.Issuer)
	require.Contains(t, token.Subject, r.DID.String())
	require.Equal(t, p.Commit, claims["sha"])
	_, err = provider.Verifier(&goidc.Config{ClientID: "another.example.com"}).Verify(t.Context(), strings.Join(parts, "."))
	require.Error(t, err)

	p, text = output(t, w, r, strings.Replace(flow, "audience: sts.example.com\n", "", 1))
	require.Equal(t, "passed", world.State(p), text)
	require.Contains(t, text, "whole \n", "who asks for no token has none")
}
