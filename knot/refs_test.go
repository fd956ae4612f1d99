package knot

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeadsAndResolveRef(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	one := o.commit("refs/heads/main", "one", workflows(nil))
	two := o.commit("refs/heads/feature/x", "two", workflows(map[string]node{"a.yml": text("x")}))
	o.git("tag of one", "tag", "-a", "-F", "-", "v1", one)
	o.git("", "update-ref", "refs/heads/refs/heads/main", two) // looks like main to a pattern
	c := newClient(t, nil)

	heads, err := c.Heads(t.Context(), h.source(repoDID))
	require.NoError(t, err)
	require.Equal(t, "refs/heads/main", heads.Default)
	require.ElementsMatch(t, []Ref{{"refs/heads/main", one}, {"refs/heads/feature/x", two}, {"refs/heads/refs/heads/main", two}}, heads.Refs)

	for ref, want := range map[string]string{"HEAD": one, "refs/heads/main": one, "refs/heads/feature/x": two, "refs/tags/v1": one} {
		got, err := c.ResolveRef(t.Context(), h.source(repoDID), ref)
		require.NoError(t, err, ref)
		require.Equal(t, want, got, ref)
	}
	_, err = c.ResolveRef(t.Context(), h.source(repoDID), "refs/heads/none")
	require.ErrorIs(t, err, ErrRefGone)
	require.False(t, Temporary(err))
	_, err = c.ResolveRef(t.Context(), h.source("did:plc:nobodyaaaaaaaaaaaaaaaaaa"), "HEAD")
	require.ErrorIs(t, err, ErrRepoNotFound)
	require.False(t, Temporary(err))
}

// hostileRefs are names that some program would read as an option, a refspec, a pattern or a second line.
var hostileRefs = []string{
	"", "-x", "--upload-pack=touch /tmp/x", "ext::sh -c x", "main", "refs/heads/", "refs/heads/-x", "refs/-x/y",
	"refs/heads/a\nb", "refs/heads/a b", "refs/heads/a..b", "refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b",
	"refs/heads/a?", "refs/heads/*", "refs/heads/[a]", "refs/heads/a\\b", "refs/heads/a@{1}", "refs/heads/a.lock",
	"refs/heads/.a", "refs/heads/a.", "refs/heads//a", "/refs/heads/a", "refs/heads/a/", "refs/heads/a\x00b",
	"refs/heads/a\x7f", "+refs/heads/a", "refs/heads/" + strings.Repeat("a", 1100), "refs/heads/\xff",
}

func TestT27HostileRefsAreRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.repo(repoDID)
	c := newClient(t, nil)
	for _, ref := range hostileRefs {
		_, err := c.ResolveRef(t.Context(), h.source(repoDID), ref)
		require.ErrorIs(t, err, ErrInvalid, "%q", ref)
		_, err = c.RefContains(t.Context(), h.source(repoDID), ref, strings.Repeat("a", 40))
		require.ErrorIs(t, err, ErrInvalid, "%q", ref)
	}
	require.Zero(t, h.requests.Load())
}

func TestCheckRefAgreesWithGit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git in PATH")
	}
	good := []string{"refs/heads/main", "refs/heads/feature/a-b", "refs/heads/ünï", "refs/tags/v1.0", "refs/heads/a@b", "refs/heads/a'b", "refs/heads/$(x)", "refs/heads/@"}
	for _, ref := range append(good, hostileRefs...) {
		if strings.ContainsRune(ref, 0) {
			continue // cannot be an argument at all
		}
		git := exec.Command("git", "check-ref-format", ref).Run() == nil
		if checkRef(ref) == nil {
			require.True(t, git, "git refuses %q", ref)
		}
	}
	for _, ref := range good {
		require.NoError(t, checkRef(ref), ref)
	}
}

func TestT08RefContainsIsComputedHere(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	one := o.commit("refs/heads/main", "one", workflows(nil))
	two := o.commit("refs/heads/main", "two", workflows(map[string]node{"a.yml": text("x")}))
	three := o.commit("refs/heads/main", "three", workflows(map[string]node{"a.yml": text("y")}))
	o.git("", "update-ref", "refs/heads/side", one)
	stray := o.commit("refs/heads/side", "stray", workflows(map[string]node{"b.yml": text("x")}))
	c := newClient(t, nil)
	src := h.source(repoDID)
	for sha, want := range map[string]bool{one: true, two: true, three: true, stray: false, strings.Repeat("a", 40): false, strings.Repeat("a", 64): false} {
		got, err := c.RefContains(t.Context(), src, "refs/heads/main", sha)
		require.NoError(t, err)
		require.Equal(t, want, got, sha)
	}
	got, err := c.RefContains(t.Context(), src, "refs/heads/side", two)
	require.NoError(t, err)
	require.False(t, got)
	got, err = c.RefContains(t.Context(), src, "refs/heads/side", one)
	require.NoError(t, err)
	require.True(t, got)
	noWorkTree(t, c)
}

func TestChangedFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	old := o.commit("refs/heads/main", "one", map[string]node{"a": text("1"), "d": dir(map[string]node{"x": text("x"), "y": text("y")}), "odd\nname": text("1")})
	o.commit("refs/heads/main", "between", map[string]node{"z": text("z")})
	sha := o.commit("refs/heads/main", "two", map[string]node{"a": text("2"), "d": dir(map[string]node{"x": text("x"), "z": text("y")}), "odd\nname": text("2")})
	src := h.source(repoDID)
	for name, c := range map[string]*Client{"whole": newClient(t, nil), "trees": largeClient(t, h, sha)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, complete, err := c.ChangedFiles(t.Context(), src, old, sha, 100)
			require.NoError(t, err)
			require.True(t, complete)
			require.ElementsMatch(t, []string{"a", "d/y", "d/z", "odd\nname"}, files)
			files, complete, err = c.ChangedFiles(t.Context(), src, old, sha, 2)
			require.NoError(t, err)
			require.False(t, complete)
			require.Len(t, files, 2)
			files, complete, err = c.ChangedFiles(t.Context(), src, strings.Repeat("0", 40), sha, 100)
			require.NoError(t, err)
			require.True(t, complete)
			require.ElementsMatch(t, []string{"a", "d/x", "d/z", "odd\nname"}, files)
			files, _, err = c.ChangedFiles(t.Context(), src, sha, sha, 100)
			require.NoError(t, err)
			require.Empty(t, files)
			_, _, err = c.ChangedFiles(t.Context(), src, strings.Repeat("a", 40), sha, 100)
			require.ErrorIs(t, err, ErrCommitGone)
			noWorkTree(t, c)
		})
	}
}

// TestMergeBase finds where a head left another history, also one at another host, and says when they never met.
func TestMergeBase(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := h.repo(repoDID)
	one := o.commit("refs/heads/main", "one", map[string]node{"a": text("1")})
	o.git("", "update-ref", "refs/heads/fix", one)
	fix := o.commit("refs/heads/fix", "fix", map[string]node{"a": text("1"), "b": text("1")})
	main := o.commit("refs/heads/main", "two", map[string]node{"a": text("2")})
	lone := o.commit("refs/heads/lone", "lone", map[string]node{"z": text("1")})
	src := h.source(repoDID)
	c := newClient(t, nil)
	got, err := c.MergeBase(t.Context(), src, fix, src, "refs/heads/main", "")
	require.NoError(t, err)
	require.Equal(t, one, got)
	got, err = c.MergeBase(t.Context(), src, fix, src, "", main)
	require.NoError(t, err)
	require.Equal(t, one, got)
	_, err = c.MergeBase(t.Context(), src, lone, src, "refs/heads/main", "")
	require.ErrorIs(t, err, ErrNoMergeBase)
	require.False(t, Temporary(err))
	_, err = c.MergeBase(t.Context(), src, fix, src, "refs/heads/none", "")
	require.ErrorIs(t, err, ErrRefGone)
	_, err = c.MergeBase(t.Context(), src, fix, src, "", strings.Repeat("a", 64))
	require.ErrorIs(t, err, ErrInvalid)
	noWorkTree(t, c)
}
