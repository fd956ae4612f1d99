package daemon_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
)

// TestSuspendedOwnerIsPausedEverywhere suspends the owner of a repository: the push says why nothing runs, the
// page says it, and what was there runs again when the account is back.
func TestSuspendedOwnerIsPausedEverywhere(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	first := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	await(t, w, r, first.SHA, world.Ended)
	page := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/r/"+r.DID.String(), nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return string(b)
	}
	require.NotContains(t, page(), "Paused")
	require.NoError(t, w.Owner.SetStatus("suspended"))
	require.Eventually(t, func() bool { return strings.Contains(page(), "Paused: its owner&#39;s account is suspended") }, time.Minute, 50*time.Millisecond)
	refused := push(t, r, devnet.Change{Files: map[string]string{"x": "y"}})
	require.Contains(t, refused.Output, "suspended by its host", "the pusher is told why")

	require.NoError(t, w.Owner.SetStatus(""))
	require.Eventually(t, func() bool { return !strings.Contains(page(), "Paused") }, time.Minute, 50*time.Millisecond)
	again := push(t, r, devnet.Change{Files: map[string]string{"x": "z"}})
	await(t, w, r, again.SHA, world.Ended)
}
