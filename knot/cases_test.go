package knot

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkout fetches sha for a job and runs the script; it gives the job's directory.
func checkout(t testing.TB, c *Client, src Source, sha string, depth int) string {
	t.Helper()
	req := request(t, src, sha)
	req.Depth = depth
	co, err := c.PrepareCheckout(t.Context(), req)
	require.NoError(t, err)
	return job(t, co)
}

// TestB038SHA256Repository reads, checks out and compares a repository whose object names have 64 digits, and asks
// it for one with 40.
func TestB038SHA256Repository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID, "--object-format=sha256")
	one := o.commit("refs/heads/main", "one", workflows(map[string]node{"base.yml": text("engine: x\n")}))
	two := o.commit("refs/heads/main", "two", workflows(map[string]node{"base.yml": text("engine: y\n")}))
	require.Len(t, two, 64)
	for name, change := range map[string]func(*Config){"in one request": nil, "by git": func(cfg *Config) { cfg.HTTP = nil }} {
		c := newClient(t, change)
		f, err := c.Workflows(t.Context(), h.source(repoDID), two)
		require.NoError(t, err, name)
		require.Len(t, f.Files, 1)
		require.Equal(t, two, inJob(t, checkout(t, c, h.source(repoDID), two, 1), "rev-parse", "HEAD"), name)
		names, whole, err := c.ChangedFiles(t.Context(), h.source(repoDID), one, two, 100)
		require.NoError(t, err, name)
		require.True(t, whole)
		require.Equal(t, []string{".tangled/workflows/base.yml"}, names)
		inside, err := c.RefContains(t.Context(), h.source(repoDID), "refs/heads/main", one)
		require.NoError(t, err, name)
		require.True(t, inside)
		_, err = c.Workflows(t.Context(), h.source(repoDID), someSHA)
		require.ErrorIs(t, err, ErrCommitGone, name)
		require.False(t, Temporary(err), "no try again will find it")
	}
}

// TestB039TagAndBranchOfOneName has a tag and a branch v2 at commits that do not know each other, and a branch that
// is called like a commit.
func TestB039TagAndBranchOfOneName(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	a := o.commit("refs/heads/v2", "A", map[string]node{"f": text("A")})
	b := o.commit("refs/heads/other", "B", map[string]node{"f": text("B")})
	o.git("", "update-ref", "refs/tags/v2", b)
	o.git("", "update-ref", "refs/heads/"+a, b)
	o.git("", "update-ref", "refs/heads/refs/heads/v2", b)
	c, src := newClient(t, nil), h.source(repoDID)
	for ref, want := range map[string]string{"refs/heads/v2": a, "refs/tags/v2": b, "refs/heads/" + a: b, "refs/heads/refs/heads/v2": b} {
		got, err := c.ResolveRef(t.Context(), src, ref)
		require.NoError(t, err)
		require.Equal(t, want, got, ref)
	}
	for ref, sha := range map[string]string{"refs/heads/v2": b, "refs/tags/v2": a} {
		inside, err := c.RefContains(t.Context(), src, ref, sha)
		require.NoError(t, err)
		require.False(t, inside, "%s is not in %s", sha, ref)
	}
	for _, sha := range []string{a, b} {
		d := checkout(t, c, src, sha, 1)
		require.Equal(t, sha, inJob(t, d, "rev-parse", "HEAD"))
	}
}

// TestB042ForcedBackToAnOlderCommit runs B, and then A after the branch went back to it, from one cache.
func TestB042ForcedBackToAnOlderCommit(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"in one request": nil, "by git": func(cfg *Config) { cfg.HTTP = nil }} {
		h := newHost(t)
		o := h.repo(repoDID)
		a := o.commit("refs/heads/main", "A", workflows(map[string]node{"a.yml": text("A")}))
		b := o.commit("refs/heads/main", "B", workflows(map[string]node{"a.yml": text("B")}))
		c, src := newClient(t, change), h.source(repoDID)
		for _, step := range []struct{ sha, text string }{{b, "B"}, {a, "A"}, {b, "B"}} {
			o.git("", "update-ref", "refs/heads/main", step.sha)
			f, err := c.Workflows(t.Context(), src, step.sha)
			require.NoError(t, err, name)
			require.Equal(t, step.text, string(f.Files[0].Data), name)
			d := checkout(t, c, src, step.sha, 1)
			require.Equal(t, step.sha, inJob(t, d, "rev-parse", "HEAD"), name)
			got, err := os.ReadFile(filepath.Join(d, ".tangled/workflows/a.yml"))
			require.NoError(t, err)
			require.Equal(t, step.text, string(got), name)
			inJob(t, d, "fsck", "--strict")
		}
	}
}

// TestB043GitWorksInTheWorkspace runs git as the account that the checkout was made by, in the workspace and below.
// That the account of the steps is the one that owns the workspace is the engines' part.
func TestB043GitWorksInTheWorkspace(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	sha := o.commit("refs/heads/main", "x", map[string]node{"f": text("x"), "sub": dir(map[string]node{"g": text("y")})})
	d := checkout(t, newClient(t, nil), h.source(repoDID), sha, 1)
	require.Empty(t, inJob(t, d, "status", "--short"))
	require.Equal(t, sha[:7], inJob(t, d, "describe", "--always", "--abbrev=7"))
	require.Equal(t, "sub/", inJob(t, filepath.Join(d, "sub"), "rev-parse", "--show-prefix"))
	require.Empty(t, inJob(t, d, "submodule", "status"))
}

// TestB048DescribeFindsTheTags has an annotated tag on HEAD and a lightweight one three commits before.
func TestB048DescribeFindsTheTags(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	var commits []string
	for _, n := range []string{"1", "2", "3", "4"} {
		commits = append(commits, o.commit("refs/heads/main", n, map[string]node{"f": text(n)}))
	}
	o.git("", "tag", "v1.3", commits[0])
	o.git("note", "tag", "-a", "-F", "-", "v1.4", commits[3])
	c, src := newClient(t, nil), h.source(repoDID)
	deep := checkout(t, c, src, commits[3], 10)
	require.Equal(t, "v1.4", inJob(t, deep, "describe", "--tags"))
	require.Equal(t, "v1.3\nv1.4", inJob(t, deep, "tag", "-l"))
	require.Equal(t, "v1.3-2-g"+commits[2][:7], inJob(t, checkout(t, c, src, commits[2], 10), "describe", "--tags", "--abbrev=7"))
	require.Equal(t, "v1.4", inJob(t, checkout(t, c, src, commits[3], 1), "tag", "-l"), "with depth 1, the tags of that commit")
	at, err := c.ResolveRef(t.Context(), src, "refs/tags/v1.4")
	require.NoError(t, err)
	require.Equal(t, commits[3], at, "a push of the tag runs the commit that it names")
}

// TestB050TextThatIsNotUTF8 reads messages, authors and names of bytes that are no UTF-8, and very long ones.
func TestB050TextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	long := strings.Repeat("x", 255)
	tree := o.tree(map[string]node{
		".tangled": dir(map[string]node{"workflows": dir(map[string]node{"a.yml": text("caf\xe9: \x1b[31m\n"), "b\xff.yml": text("b")})}),
		"a\xffb":   text("x"), "new\nline.txt": text("x"), long: text("x"), "Case": text("x"), "case": text("x"),
	})
	for name, msg := range map[string]string{
		"latin1": "caf\xe9 \x1b[31m\n\nmore \xff", "huge": strings.Repeat("\xe9é", 150<<10), "nul-free binary": "\x01\x02\x7f\xfe", "empty": "",
	} {
		raw := "tree " + tree + "\nauthor Zo\xeb <z\xeb@a.test> 1790000000 +0000\ncommitter Zo\xeb <z@a.test> 1790000000 +0000\nencoding latin1\n\n" + msg
		sha := o.git(raw, "hash-object", "-t", "commit", "-w", "--stdin", "--literally")
		o.git("", "update-ref", "refs/heads/"+strings.ReplaceAll(name, " ", "-"), sha)
		c := newClient(t, nil)
		f, err := c.Workflows(t.Context(), h.source(repoDID), sha)
		require.NoError(t, err, name)
		require.Equal(t, strings.ToValidUTF8(f.Message, "?"), f.Message, name)
		require.Equal(t, strings.ToValidUTF8(f.Title(), "?"), f.Title(), name)
		require.NotContains(t, f.Title(), "\x1b", name)
		require.LessOrEqual(t, len(f.Title()), 1<<10, name)
		require.NotEmpty(t, f.Files)
		for _, s := range f.Skipped {
			require.Equal(t, strings.ToValidUTF8(s.Name, "?"), s.Name)
		}
		names, _, err := c.ChangedFiles(t.Context(), h.source(repoDID), sha, sha, 100)
		require.NoError(t, err, name)
		require.Empty(t, names)
		d := checkout(t, c, h.source(repoDID), sha, 1)
		require.FileExists(t, filepath.Join(d, "new\nline.txt"))
		require.FileExists(t, filepath.Join(d, long))
	}
}

// TestB051EmptyRepository asks a repository without commits, and one whose HEAD names a branch that is not there.
func TestB051EmptyRepository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	c, src := newClient(t, nil), h.source(repoDID)
	heads, err := c.Heads(t.Context(), src)
	require.NoError(t, err, "a repository without commits is none that is broken")
	require.Empty(t, heads.Refs)
	_, err = c.ResolveRef(t.Context(), src, "refs/heads/main")
	require.ErrorIs(t, err, ErrRefGone)
	_, err = c.ResolveRef(t.Context(), src, "HEAD")
	require.ErrorIs(t, err, ErrRefGone)
	require.False(t, Temporary(err))
	_, err = c.Workflows(t.Context(), src, someSHA)
	require.ErrorIs(t, err, ErrCommitGone)

	sha := o.commit("refs/heads/dev", "first", workflows(map[string]node{"a.yml": text("a")}))
	f, err := c.Workflows(t.Context(), src, sha)
	require.NoError(t, err, "the first push, to another branch than HEAD names")
	require.Len(t, f.Files, 1)
	heads, err = c.Heads(t.Context(), src)
	require.NoError(t, err)
	require.Equal(t, []Ref{{"refs/heads/dev", sha}}, heads.Refs)
}

// TestB124GitFollowsNoRedirect answers each request of a fetch with a redirect, to our own machine and elsewhere.
func TestB124GitFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	trap := newHost(t)
	trap.repo(repoDID).commit("refs/heads/main", "x", map[string]node{"f": text("x")})
	for _, to := range []string{trap.url + "/", "http://127.0.0.1:1/", "http://169.254.169.254/", "file:///etc/passwd", "gopher://127.0.0.1/"} {
		for name, change := range map[string]func(*Config){"in one request": nil, "by git": func(cfg *Config) { cfg.HTTP = nil }} {
			for _, at := range []string{"/info/refs", "/git-upload-pack"} {
				h := newHost(t)
				sha := h.repo(repoDID).commit("refs/heads/main", "x", map[string]node{"f": text("x")})
				h.put(func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if strings.HasSuffix(r.URL.Path, at) {
							http.Redirect(w, r, strings.TrimSuffix(to, "/")+r.URL.Path, http.StatusFound)
							return
						}
						next.ServeHTTP(w, r)
					})
				})
				_, err := newClient(t, change).Workflows(t.Context(), h.source(repoDID), sha)
				if err != nil { // a fetch in one request may not need info/refs at all
					require.ErrorIs(t, err, ErrRedirected, "%s %s %s", to, name, at)
				}
			}
		}
	}
	require.Zero(t, trap.requests.Load())
}

// TestB126KnotsAreHosts gives addresses of knots that mean one host to one reader and another to the next.
func TestB126KnotsAreHosts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.repo(repoDID)
	at := strings.TrimPrefix(h.url, "http://")
	c := newClient(t, nil)
	for _, knot := range []string{
		"http://127.0.0.1:80@" + at, "http://knot.fernhill.example@" + at, h.url + "/../..", h.url + "?x", h.url + "#", h.url + "#x",
		"http://knot。fernhill。example", "http://knot.fernhill.example:99999", "http://:22", "http://", h.url + "\n", h.url + "\t", "http://\t" + at,
		"http://" + at + "\r\nX: y", at, "//" + at, "ext::sh -c x", "ssh://" + at, "git://" + at, "file:///etc", "-oProxyCommand=x",
		"http://[::1%25lo]:80", "http://%31%32%37.0.0.1", "http:/" + at, "http:\\\\" + at, "http://" + at + "\\@x", "http://KNOT example",
	} {
		_, err := c.Workflows(t.Context(), Source{Repo: repoDID, KnotURL: knot}, someSHA)
		require.Error(t, err, "%q", knot)
		require.NotErrorIs(t, err, ErrCommitGone, "%q was asked", knot)
		require.ErrorIs(t, err, ErrInvalid, "%q", knot)
		require.False(t, Temporary(err), "%q", knot)
	}
	require.Zero(t, h.requests.Load())
}
