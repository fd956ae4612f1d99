package web

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

func fetchPage(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, err)
	return string(b)
}

// TestRepositoryThatIsPausedOrGoneSaysWhy reads its page in every state.
func TestRepositoryThatIsPausedOrGoneSaysWhy(t *testing.T) {
	t.Parallel()
	for words, b := range map[string]store.RepoBinding{
		"Paused: its owner&#39;s account was taken down":      {Paused: rbac.Takendown},
		"Paused: its owner&#39;s account is suspended":        {Paused: rbac.Suspended},
		"Paused: its owner&#39;s account is deactivated":      {Paused: rbac.Deactivated},
		"Paused: its owner&#39;s account was deleted":         {Paused: rbac.Deleted},
		"Paused: its owner&#39;s account is not active at":    {Paused: rbac.Unavailable},
		"no longer serves the repository. The document &lt;i": {Gone: true, GoneReason: "the document <i> names no knot"},
		"no longer serves the repository. What ran before":    {Gone: true},
	} {
		w := newWorld(t)
		b.Repo, b.Owner, b.Name = did("hello"), did("alice"), "hello"
		w.repos = []store.RepoBinding{b}
		w.put(w.build(1, "a", pipeline.Passed))
		_, s := w.serve(t)
		require.Contains(t, fetchPage(t, s.URL+repoURL(did("hello"))), words)
	}
	w := newWorld(t)
	w.repos = []store.RepoBinding{{Repo: did("hello"), Owner: did("alice"), Name: "hello"}}
	_, s := w.serve(t)
	text := fetchPage(t, s.URL+repoURL(did("hello")))
	require.NotContains(t, text, "Paused")
	require.NotContains(t, text, "no longer serves")
}

// renamed answers with a handle that a test changes.
type renamed struct {
	mu sync.Mutex
	to string
}

func (r *renamed) Handle(context.Context, string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to
}

// TestNewHandleIsShownAtOnce changes a handle and says so.
func TestNewHandleIsShownAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(w.build(1, "a", pipeline.Passed))
	r := &renamed{to: "wren.example.com"}
	h, s := w.serve(t, func(c *Config) { c.Names = r })
	shows := func(handle string) func() bool {
		return func() bool { return strings.Contains(fetchPage(t, s.URL+"/"), "@"+handle) }
	}
	require.Eventually(t, shows("wren.example.com"), time.Minute, 20*time.Millisecond)
	r.mu.Lock()
	r.to = "robin.example.com"
	r.mu.Unlock()
	require.True(t, shows("wren.example.com")(), "remembered")
	h.Forget(did("alice"))
	require.Eventually(t, shows("robin.example.com"), time.Minute, 20*time.Millisecond)
}
