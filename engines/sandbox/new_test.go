package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/engines/sandbox"
	"spindle/engines/sandbox/sandboxtest"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]sandbox.Config{
		"Runsc":      {Runsc: "runsc", StateDir: t.TempDir()},
		"StateDir":   {Runsc: "/bin/sh", StateDir: "state"},
		"shorter":    {Runsc: "/bin/sh", StateDir: "/" + strings.Repeat("x", 200)},
		"negative":   {Runsc: "/bin/sh", StateDir: sandboxtest.Dir(t), Disk: -1},
		"not a dire": {Runsc: "/bin/sh", StateDir: "/dev/null/x"},
	} {
		_, err := sandbox.New(c)
		require.ErrorContains(t, err, "sandbox: ", name)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	took, err := sandboxtest.New(t).Probe(t.Context())
	require.NoError(t, err)
	require.Positive(t, took)
}

// TestProbeDynamic: an executable that needs a loader is refused with the way to build one that does not.
func TestProbeDynamic(t *testing.T) {
	t.Parallel()
	e, err := sandbox.New(sandbox.Config{Runsc: dynamic(t), StateDir: sandboxtest.Dir(t)})
	require.NoError(t, err)
	_, err = e.Probe(t.Context())
	require.ErrorIs(t, err, engines.ErrUnavailable)
	require.Contains(t, engines.Public(err), "CGO_ENABLED=0 go run ./cmd/spindle demo")
}

// dynamic is a dynamically linked executable of this machine.
func dynamic(t *testing.T) string {
	for _, path := range []string{"/bin/sh", "/bin/ls", "/usr/bin/env"} {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		e, err := sandbox.New(sandbox.Config{Runsc: real, StateDir: sandboxtest.Dir(t)})
		require.NoError(t, err)
		if !sandbox.Static(e) {
			return real
		}
	}
	t.Skip("no dynamically linked program on this machine")
	return ""
}

// TestBrokenRunsc: a runsc that fails, or never gets ready, is a fault that says nothing of the server to users.
func TestBrokenRunsc(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"fails": "#!/bin/sh\necho cannot open /secret/path >&2\nexit 1\n",
		"hangs": "#!/bin/sh\nexec sleep 1000\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sandboxtest.Dir(t)
			runsc := filepath.Join(dir, "runsc")
			require.NoError(t, os.WriteFile(runsc, []byte(script), 0o755))
			e, err := sandbox.New(sandbox.Config{Runsc: runsc, StateDir: filepath.Join(dir, "s"), BootTimeout: 200 * time.Millisecond})
			require.NoError(t, err)
			a, err := e.Open(t.Context(), engines.Spec{ID: "x"})
			require.NoError(t, err)
			_, err = a.Run(t.Context(), engines.Command{Script: "true"})
			require.ErrorIs(t, err, engines.ErrOver)
			require.NotContains(t, engines.Public(err), "/")
			if name == "fails" {
				require.ErrorContains(t, err, "/secret/path", "the operator is told")
			}
			require.NoError(t, a.Close(context.Background()))
			left, err := left(filepath.Join(dir, "s"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestUnknownMountSource(t *testing.T) {
	t.Parallel()
	e, err := sandbox.New(sandbox.Config{Runsc: "/bin/sh", StateDir: sandboxtest.Dir(t)})
	require.NoError(t, err)
	_, err = e.Open(t.Context(), engines.Spec{ID: "x", Mounts: []engines.Mount{{Source: "/no/such/folder", Target: "/srv/x"}}})
	require.ErrorIs(t, err, engines.ErrBadSpec)
	require.NotContains(t, engines.Public(err), "/")
}
