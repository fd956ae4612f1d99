package knot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// job runs the checkout script as a job would: in an empty directory, with next to no environment. It
// returns the directory.
func job(t testing.TB, co Checkout) string {
	t.Helper()
	dir := t.TempDir()
	before := listing(t, co.Dir)
	cmd := exec.Command("sh", "-c", CheckoutScript(co, co.Dir))
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_ALLOW_PROTOCOL=none"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out), "the script is silent")
	require.Equal(t, before, listing(t, co.Dir), "the mount is read-only")
	return dir
}

func listing(t testing.TB, dir string) []string {
	var out []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		out = append(out, p)
		return err
	}))
	return out
}

// inJob runs git as a later step of the job would.
func inJob(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%v: %s", args, errs.String())
	return strings.TrimSpace(string(out))
}

func request(t testing.TB, src Source, sha string) CheckoutRequest {
	return CheckoutRequest{Source: src, SHA: sha, Depth: 1, Tags: true, Submodules: true, Dir: filepath.Join(t.TempDir(), "git")}
}

func TestCheckout(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for name, tc := range map[string]struct {
		did  string
		init []string
	}{"sha1": {repoDID, nil}, "sha256": {otherDID, []string{"--object-format=sha256"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := h.repo(tc.did, tc.init...)
			one := o.commit("refs/heads/main", "one", map[string]node{"a": text("1")})
			two := o.commit("refs/heads/main", "two", map[string]node{"a": text("2"), "run": {mode: "100755", text: "#!/bin/sh\n"}, "l": link("a"), "d": dir(map[string]node{"it's": text("x")})})
			three := o.commit("refs/heads/main", "three", map[string]node{"a": text("3")})
			o.git("note", "tag", "-a", "-F", "-", "v1", one)
			o.git("note", "tag", "-a", "-F", "-", "v2", two)
			o.git("", "tag", "light", two)
			src := h.source(tc.did)
			c := newClient(t, nil)
			_, err := c.Workflows(t.Context(), src, two)
			require.NoError(t, err)

			co, err := c.PrepareCheckout(t.Context(), request(t, src, two))
			require.NoError(t, err)
			d := job(t, co)
			require.Equal(t, two, inJob(t, d, "rev-parse", "HEAD"))
			require.Empty(t, inJob(t, d, "status", "--porcelain"))
			require.Equal(t, "1", inJob(t, d, "rev-list", "--count", "HEAD"))
			require.Equal(t, "light\nv2", inJob(t, d, "tag"))
			require.Equal(t, "v2", inJob(t, d, "describe"))
			require.Equal(t, h.url+"/"+tc.did, inJob(t, d, "remote", "get-url", "origin"))
			require.FileExists(t, filepath.Join(d, "d", "it's"))
			to, err := os.Readlink(filepath.Join(d, "l"))
			require.NoError(t, err)
			require.Equal(t, "a", to)
			inJob(t, d, "fsck", "--strict")
			// A job may go on from there.
			inJob(t, d, "-c", "user.name=a", "-c", "user.email=a@a.test", "commit", "-q", "--allow-empty", "-m", "x")
			inJob(t, d, "fetch", "-q", "--unshallow", "origin", three)

			// Deeper, and all of it, with the tags inside.
			for depth, want := range map[int]string{2: "v1", 0: "v1"} {
				req := request(t, src, two)
				req.Depth = depth
				co, err := c.PrepareCheckout(t.Context(), req)
				require.NoError(t, err)
				d := job(t, co)
				require.Equal(t, "2", inJob(t, d, "rev-list", "--count", "HEAD"))
				require.Contains(t, inJob(t, d, "tag"), want)
				inJob(t, d, "fsck", "--strict")
			}
			req := request(t, src, two)
			req.Tags = false
			co, err = c.PrepareCheckout(t.Context(), req)
			require.NoError(t, err)
			require.Empty(t, inJob(t, job(t, co), "tag"))
			noWorkTree(t, c)
		})
	}
}

func TestCheckoutNeedsNoNetworkAfterWorkflows(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	sha := o.commit("refs/heads/main", "x", workflows(map[string]node{"a.yml": text("x")}))
	c := newClient(t, nil)
	_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	before := h.requests.Load()
	req := request(t, h.source(repoDID), sha)
	req.Tags = false
	co, err := c.PrepareCheckout(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, before, h.requests.Load())
	// The store needs nothing else: the cache may go.
	require.NoError(t, c.forget(h.source(repoDID), sha))
	require.FileExists(t, filepath.Join(job(t, co), "README"))
}

func TestCheckoutOfLargeRepository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	m := workflows(map[string]node{"a.yml": text("x")})
	m["big"] = text(noise(3 << 20))
	sha := o.commit("refs/heads/main", "x", m)
	c := newClient(t, func(cfg *Config) { cfg.Limits.SmallFetch = 1 << 20 })
	_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
	require.NoError(t, err)
	co, err := c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(job(t, co), "big"))

	c = newClient(t, func(cfg *Config) { cfg.Limits.CheckoutFetch = 1 << 20 })
	_, err = c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.ErrorIs(t, err, ErrTooLarge)
	require.False(t, Temporary(err))
}

func TestCheckoutIntoADirectoryThatIsThere(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	sha := o.commit("refs/heads/main", "x", workflows(nil2()))
	c := newClient(t, nil)
	req := request(t, h.source(repoDID), sha)
	require.NoError(t, os.MkdirAll(req.Dir, 0o755))
	mounted, err := os.Stat(req.Dir)
	require.NoError(t, err)
	_, err = c.PrepareCheckout(t.Context(), req)
	require.NoError(t, err)
	now, err := os.Stat(req.Dir)
	require.NoError(t, err)
	require.True(t, os.SameFile(mounted, now), "a mount of the directory must stay good")
	_, err = c.PrepareCheckout(t.Context(), req)
	require.ErrorIs(t, err, ErrInvalid, "not into a full one")
}

func nil2() map[string]node { return map[string]node{"a.yml": text("x")} }

const (
	libDID  = "did:plc:libaaaaaaaaaaaaaaaaaaaaa"
	deepDID = "did:plc:deepaaaaaaaaaaaaaaaaaaaa"
)

func TestSubmodules(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	deep := h.repo(deepDID).commit("refs/heads/main", "deep", map[string]node{"deep.txt": text("deep")})
	lib := h.repo(libDID)
	old := lib.commit("refs/heads/main", "old", map[string]node{
		".gitmodules": text("[submodule \"deep\"]\n\tpath = in/deep\n\turl = ../" + deepDID + "\n"),
		"in":          dir(map[string]node{"deep": gitlink(deep)}), "lib.txt": text("old"),
	})
	lib.commit("refs/heads/main", "new", map[string]node{"lib.txt": text("new")})
	odd := "it's $(touch pwned) `x` \"q\" ; & é"
	sha := h.repo(repoDID).commit("refs/heads/main", "top", map[string]node{
		".gitmodules": text("[submodule \"li\\\"b\"]\n\tpath = vendor/lib\n\turl = ../" + libDID + "\n" +
			"[submodule \"odd\"]\n\tpath = \"" + strings.ReplaceAll(odd, `"`, `\"`) + "\"\n\turl = " + h.url + "/" + deepDID + "\n" +
			"[submodule \"unused\"]\n\tpath = nowhere\n\turl = ssh://x/y\n" +
			"[submodule \"file\"]\n\tpath = README\n\turl = ../x\n" +
			"[submodule \"../../evil\"]\n\tpath = evil\n\turl = ../x\n" +
			"[submodule \"esc\"]\n\tpath = ../esc\n\turl = ../x\n[include]\n\tpath = /etc/passwd\n"),
		"vendor": dir(map[string]node{"lib": gitlink(old)}), odd: gitlink(deep), "README": text("x"),
	})
	c := newClient(t, nil)
	co, err := c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.NoError(t, err)
	var paths []string
	for _, s := range co.Submodules {
		paths = append(paths, s.Path)
	}
	require.Equal(t, []string{"vendor/lib", odd, "vendor/lib/in/deep"}, paths)
	d := job(t, co)
	for file, want := range map[string]string{"vendor/lib/lib.txt": "old", "vendor/lib/in/deep/deep.txt": "deep", odd + "/deep.txt": "deep"} {
		b, err := os.ReadFile(filepath.Join(d, file))
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	require.NoFileExists(t, filepath.Join(d, "pwned"))
	require.Empty(t, inJob(t, d, "status", "--porcelain"))
	require.Equal(t, old, inJob(t, filepath.Join(d, "vendor/lib"), "rev-parse", "HEAD"))
	require.Contains(t, inJob(t, d, "submodule", "status", "--recursive"), old+" vendor/lib")

	req := request(t, h.source(repoDID), sha)
	req.Submodules = false
	co, err = c.PrepareCheckout(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, co.Submodules)
	job(t, co)
	noWorkTree(t, c)
}

func TestT29SubmoduleRefusals(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	deep := h.repo(deepDID).commit("refs/heads/main", "deep", map[string]node{"deep.txt": text("deep")})
	o := h.repo(repoDID)
	c := newClient(t, nil)
	for name, tc := range map[string]struct{ url, sha, says string }{
		"ssh":       {"ssh://git@host/x", deep, "https"},
		"scp":       {"git@github.com:a/b.git", deep, "https"},
		"ext":       {"ext::sh -c touch% /tmp/x", deep, "https"},
		"file":      {"file:///etc", deep, "https"},
		"path":      {"/etc", deep, "https"},
		"option":    {"--upload-pack=touch /tmp/x", deep, "https"},
		"password":  {"https://user:hunter2@host.test/x", deep, "user name"},
		"query":     {"https://host.test/x?y", deep, "valid"},
		"climbs":    {"../../../../x", deep, "leads out"},
		"nowhere":   {"../did:plc:nobodyaaaaaaaaaaaaaaaaaa", deep, "does not serve"},
		"no commit": {"../" + deepDID, strings.Repeat("a", 40), "does not have this commit"},
	} {
		sha := o.commit("refs/heads/main", name, map[string]node{
			".gitmodules": text("[submodule \"m\"]\n\tpath = m\n\turl = \"" + tc.url + "\"\n"), "m": gitlink(tc.sha),
		})
		_, err := c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
		var se *SubmoduleError
		require.ErrorAs(t, err, &se, name)
		require.ErrorIs(t, err, ErrSubmodule, name)
		require.Contains(t, se.Sentence, tc.says, name)
		require.NotContains(t, err.Error(), "hunter2")
		require.False(t, Temporary(err), name)
		s, ok := Sentence(err)
		require.True(t, ok)
		require.Equal(t, se.Sentence, s)
	}
	sha := o.commit("refs/heads/main", "broken", map[string]node{".gitmodules": text("[submodule \"m\n\tpath"), "m": gitlink(deep)})
	_, err := c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.ErrorIs(t, err, ErrSubmodule)
	sha = o.commit("refs/heads/main", "large", map[string]node{".gitmodules": text(strings.Repeat("#", maxModules+1))})
	_, err = c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.ErrorIs(t, err, ErrSubmodule)
}

func TestSubmoduleBounds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	// A chain: each commit has the one before as its submodule, in the same repository.
	sha := o.commit("refs/heads/main", "0", map[string]node{"f": text("x")})
	for range 3 {
		sha = o.commit("refs/heads/main", "n", map[string]node{
			".gitmodules": text("[submodule \"m\"]\n\tpath = m\n\turl = ../" + repoDID + "\n"), "m": gitlink(sha),
		})
	}
	c := newClient(t, func(cfg *Config) { cfg.Limits.SubmoduleDepth = 3 })
	co, err := c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(job(t, co), "m/m/m/f"))
	c = newClient(t, func(cfg *Config) { cfg.Limits.SubmoduleDepth = 2 })
	_, err = c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.ErrorIs(t, err, ErrSubmodule)
	c = newClient(t, func(cfg *Config) { cfg.Limits.Submodules = 2 })
	_, err = c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.ErrorIs(t, err, ErrSubmodule)
}
