package knot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorkflowsReadsTheCommit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	first := o.commit("refs/heads/main", "one\n\nbody", workflows(map[string]node{"a.yml": text("engine: x\n")}))
	second := o.commit("refs/heads/main", "two\x1b[31m", workflows(map[string]node{"a.yml": text("engine: y\n"), "b.yaml": text("b")}))
	c := newClient(t, nil)

	got, err := c.Workflows(t.Context(), h.source(repoDID), first)
	require.NoError(t, err)
	require.Equal(t, Files{Message: "one\n\nbody", Files: []File{{"a.yml", ".tangled/workflows/a.yml", []byte("engine: x\n")}}}, got)

	got, err = c.Workflows(t.Context(), h.source(repoDID), second)
	require.NoError(t, err)
	require.Equal(t, "two[31m", got.Title())
	require.Len(t, got.Files, 2)
	require.Equal(t, "engine: y\n", string(got.Files[0].Data))

	// A commit that was read needs no network.
	before := h.requests.Load()
	_, err = c.Workflows(t.Context(), h.source(repoDID), first)
	require.NoError(t, err)
	require.Equal(t, before, h.requests.Load())
	noWorkTree(t, c)
}

func TestWorkflowsSHA256(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID, "--object-format=sha256")
	sha := o.commit("refs/heads/main", "x", workflows(map[string]node{"a.yml": text("a")}))
	require.Len(t, sha, 64)
	for _, small := range []int64{0, 1} { // whole, and commits and trees alone
		c := newClient(t, func(cfg *Config) { cfg.Limits.SmallFetch = small })
		if small == 1 {
			c = largeClient(t, h, sha)
		}
		got, err := c.Workflows(t.Context(), h.source(repoDID), sha)
		require.NoError(t, err)
		require.Len(t, got.Files, 1)
	}
}

// largeClient takes the repository for a large one.
func largeClient(t testing.TB, h *host, sha string) *Client {
	c := newClient(t, nil)
	require.NoError(t, c.repo(h.source(repoDID), trees, sha).ensure(sha))
	return c
}

func TestWorkflowsOfLargeRepository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	m := workflows(map[string]node{"a.yml": text("aa"), "b.yml": text("bb")})
	m["big"] = text(noise(3 << 20))
	sha := o.commit("refs/heads/main", "x", m)
	c := newClient(t, func(cfg *Config) { cfg.Limits.SmallFetch = 1 << 20 })
	got, err := c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	require.Equal(t, []string{"a.yml", "b.yml"}, names(got))
	require.NoDirExists(t, c.repo(h.source(repoDID), whole, sha).dir)
	require.Less(t, dirSize(c.cfg.RepoDir), int64(1<<20), "the large file must not be here")

	before := h.requests.Load()
	_, err = c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	require.Equal(t, before, h.requests.Load())
	noWorkTree(t, c)
}

func TestT30OnlyRegularFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	files := map[string]node{
		"ok.yml": text("ok"), "exec.yaml": {mode: "100755", text: "x"}, "link.yml": link("/etc/passwd"),
		"sub.yml": gitlink(strings.Repeat("a", 40)), "dir.yml": dir(map[string]node{"x.yml": text("x")}),
		"bad name.yml": text("x"), "\u202eevil.yml": text("x"), "-x.yml": text("x"), "notes.txt": text("x"),
		"new\nline.yml": text("x"), "huge.yml": text(strings.Repeat("x", MaxWorkflowFile+1)),
		strings.Repeat("a", 65) + ".yml": text("x"), "..yml": text("x"),
	}
	sha := o.commit("refs/heads/main", "x", workflows(files))
	for name, c := range map[string]*Client{"whole": newClient(t, nil), "trees": largeClient(t, h, sha)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.Workflows(t.Context(), h.source(repoDID), sha)
			require.NoError(t, err)
			require.Equal(t, []string{"-x.yml", "..yml", "exec.yaml", "ok.yml"}, names(got))
			require.Len(t, got.Skipped, len(files)-4)
			for _, s := range got.Skipped {
				require.NotContains(t, s.Name, "\n")
				require.NotContains(t, s.Name, "\u202e")
				require.NotEmpty(t, s.Why)
			}
		})
	}
}

func TestT30WorkflowDirectoryIsALink(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	inner := dir(map[string]node{"a.yml": text("x")})
	for name, m := range map[string]map[string]node{
		"link":         {".tangled": dir(map[string]node{"workflows": link("../real")}), "real": inner},
		"file":         {".tangled": dir(map[string]node{"workflows": text("x")})},
		"parent link":  {".tangled": link("real"), "real": dir(map[string]node{"workflows": inner})},
		"submodule":    {".tangled": dir(map[string]node{"workflows": gitlink(strings.Repeat("b", 40))})},
		"none":         {"README": text("x")},
		"nested alike": {"x": dir(map[string]node{".tangled": dir(map[string]node{"workflows": inner})})},
	} {
		sha := o.commit("refs/heads/main", name, m)
		got, err := newClient(t, nil).Workflows(t.Context(), h.source(repoDID), sha)
		require.NoError(t, err, name)
		require.Empty(t, got.Files, name)
	}
}

func TestWorkflowsBounds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	files := map[string]node{}
	for i := range MaxWorkflowFiles + 3 {
		files[string(rune('a'+i/26))+string(rune('a'+i%26))+".yml"] = text("x")
	}
	sha := o.commit("refs/heads/main", "x", workflows(files))
	c := newClient(t, nil)
	got, err := c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	require.Len(t, got.Files, MaxWorkflowFiles)
	require.Len(t, got.Skipped, 3)

	files = map[string]node{}
	for i := range 6 {
		files[string(rune('a'+i))+".yml"] = text(strings.Repeat(string(rune('a'+i)), MaxWorkflowFile))
	}
	sha = o.commit("refs/heads/main", "x", workflows(files))
	got, err = c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	require.Len(t, got.Files, 4)
	require.Len(t, got.Skipped, 2)
}

func TestWorkflowsFetchesOnceForManyCallers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	sha := o.commit("refs/heads/main", "x", workflows(map[string]node{"a.yml": text("x")}))
	c := newClient(t, nil)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			got, err := c.Workflows(t.Context(), h.source(repoDID), sha)
			if err != nil || len(got.Files) != 1 {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, h.requests.Load(), int64(3), "one fetch")
	require.Empty(t, c.locks)
}

func TestBrokenCacheIsFetchedAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	sha := o.commit("refs/heads/main", "x", workflows(map[string]node{"a.yml": text("x")}))
	c := newClient(t, nil)
	_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	packs, err := filepath.Glob(filepath.Join(c.repo(h.source(repoDID), whole, sha).dir, "objects/pack/*.pack"))
	require.NoError(t, err)
	require.Len(t, packs, 1)
	require.NoError(t, os.Chmod(packs[0], 0o600))
	require.NoError(t, os.Truncate(packs[0], 10)) // as a power cut may leave it
	got, err := c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	require.Len(t, got.Files, 1)
}

func TestWornRepositoryStartsAnew(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	c := newClient(t, func(cfg *Config) { cfg.Limits.Packs = 2 })
	for i := range 4 {
		sha := o.commit("refs/heads/main", "x", workflows(map[string]node{"a.yml": text(strings.Repeat("x", i+1))}))
		_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
		require.NoError(t, err)
		packs, err := filepath.Glob(filepath.Join(c.repo(h.source(repoDID), whole, sha).dir, "objects/pack/*.pack"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(packs), 2)
	}
}

func names(f Files) []string {
	var out []string
	for _, x := range f.Files {
		out = append(out, x.Name)
	}
	slices.Sort(out)
	return out
}

// noise is n bytes that do not compress.
func noise(n int) string {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}
