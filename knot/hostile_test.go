package knot

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/netguard"
)

var someSHA = strings.Repeat("a", 40)

func answer(code int, header ...string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		})
	}
}

func TestFailuresHaveTheirKind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wrap      func(http.Handler) http.Handler
		kind      error
		temporary bool
	}{
		"400":         {answer(400), ErrRefused, false},
		"401":         {answer(401, "WWW-Authenticate", `Basic realm="x"`), ErrRefused, false},
		"403":         {answer(403), ErrRefused, false},
		"404":         {answer(404), ErrRepoNotFound, false},
		"408":         {answer(408), ErrUnreachable, true},
		"429":         {answer(429), ErrUnreachable, true},
		"500":         {answer(500), ErrUnreachable, true},
		"503":         {answer(503), ErrUnreachable, true},
		"no git":      {answer(200, "Content-Type", "text/html"), ErrRepoNotFound, false},
		"no commit":   {nil, ErrCommitGone, false},
		"hangs up":    {hangUp, ErrUnreachable, true},
		"cut in pack": {cutShort, ErrUnreachable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			o := h.repo(repoDID)
			sha := o.commit("refs/heads/main", "x", map[string]node{"f": text(noise(200 << 10))})
			if name == "no commit" {
				sha = someSHA
			}
			h.put(tc.wrap)
			c := newClient(t, nil)
			_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
			require.ErrorIs(t, err, tc.kind)
			require.Equal(t, tc.temporary, Temporary(err), err)
			s, ok := Sentence(err)
			require.True(t, ok)
			require.NotEmpty(t, s)
			// Once the host is well again, so are we.
			h.put(nil)
			if tc.temporary {
				_, err = c.Workflows(t.Context(), h.source(repoDID), sha)
				require.NoError(t, err)
			}
		})
	}
}

func hangUp(http.Handler) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

// cutShort lets half a pack through.
func cutShort(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	})
}

func TestUnreachableHost(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(nil)
	srv.Close()
	_, err := newClient(t, nil).Workflows(t.Context(), Source{repoDID, srv.URL}, someSHA)
	require.ErrorIs(t, err, ErrUnreachable)
	require.True(t, Temporary(err))
}

func TestT26RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the trap was reached") }))
	defer trap.Close()
	h := newHost(t)
	h.repo(repoDID)
	c := newClient(t, nil)
	for _, code := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{trap.URL + "/x", "file:///etc/passwd", "gopher://127.0.0.1/x"} {
			h.put(answer(code, "Location", to))
			_, err := c.Workflows(t.Context(), h.source(repoDID), someSHA)
			require.ErrorIs(t, err, ErrRedirected, "%d %s", code, to)
			require.False(t, Temporary(err))
			_, err = c.ResolveRef(t.Context(), h.source(repoDID), "HEAD")
			require.ErrorIs(t, err, ErrRedirected)
		}
	}
}

// A host that sends a byte now and then is given up, by the stall rule or by the whole time, and leaves
// nothing on the disk.
func TestT31SlowHost(t *testing.T) {
	t.Parallel()
	for name, lim := range map[string]Limits{"stall": {Stall: time.Second}, "whole time": {Timeout: 500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.repo(repoDID)
			h.put(func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
					for r.Context().Err() == nil {
						_, _ = w.Write([]byte("0"))
						_ = http.NewResponseController(w).Flush()
						select {
						case <-r.Context().Done():
						case <-time.After(50 * time.Millisecond):
						}
					}
				})
			})
			c := newClient(t, func(cfg *Config) { cfg.Limits = lim })
			start := time.Now()
			_, err := c.Workflows(t.Context(), h.source(repoDID), someSHA)
			require.ErrorIs(t, err, ErrTimeout)
			require.True(t, Temporary(err))
			require.Less(t, time.Since(start), 15*time.Second)
		})
	}
}

func TestT31EndlessPackIsCut(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	sha := h.repo(repoDID).commit("refs/heads/main", "x", map[string]node{"f": text(noise(6 << 20))})
	c := newClient(t, func(cfg *Config) { cfg.Limits.SmallFetch, cfg.Limits.CheckoutFetch = 1<<20, 2<<20 })
	_, err := c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
	require.ErrorIs(t, err, ErrTooLarge)
	require.Less(t, dirSize(c.cfg.RepoDir), int64(1<<20), "the disk is as before")
}

// Cancelling ends the fetch at once, and with it everything that talks to the host: our own request, or git
// and the helpers that git started. The host sees its connection close.
func TestCancelEndsTheFetch(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"in one request": nil,
		"by git":         func(cfg *Config) { cfg.HTTP = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.repo(repoDID)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{}, 8)
			h.put(func(http.Handler) http.Handler {
				return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					cancel()
					<-r.Context().Done()
					gone <- struct{}{}
				})
			})
			start := time.Now()
			_, err := newClient(t, change).Workflows(ctx, h.source(repoDID), someSHA)
			require.ErrorIs(t, err, context.Canceled)
			require.Less(t, time.Since(start), killDelay, "nothing held the pipes")
			select {
			case <-gone:
			case <-time.After(10 * time.Second):
				t.Fatal("the connection is still open")
			}
		})
	}
}

func TestT27HostileInput(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.repo(repoDID)
	c := newClient(t, nil)
	mark := filepath.Join(t.TempDir(), "executed")
	for _, sha := range []string{"", "HEAD", "-x", "--upload-pack=touch " + mark, someSHA + "\n", strings.ToUpper(someSHA), someSHA[1:], someSHA + ":x", "+" + someSHA} {
		_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
		require.ErrorIs(t, err, ErrInvalid, "%q", sha)
		_, err = c.PrepareCheckout(t.Context(), request(t, h.source(repoDID), sha))
		require.ErrorIs(t, err, ErrInvalid, "%q", sha)
		_, _, err = c.ChangedFiles(t.Context(), h.source(repoDID), sha, someSHA, 10)
		require.ErrorIs(t, err, ErrInvalid, "%q", sha)
		_, err = c.RefContains(t.Context(), h.source(repoDID), "refs/heads/main", sha)
		require.ErrorIs(t, err, ErrInvalid, "%q", sha)
	}
	for _, src := range []Source{
		{repoDID, "ext::sh -c touch% " + mark}, {repoDID, "ssh://-oProxyCommand=touch " + mark}, {repoDID, "file:///"},
		{repoDID, "--upload-pack=touch"}, {repoDID, "https://u:p@h.test"}, {repoDID, "https://h.test/x"}, {repoDID, "https://h.test?x"},
		{repoDID, "https://h.test#x"}, {repoDID, "https://h .test"}, {repoDID, "https://h.test\n"}, {repoDID, "https://[::1]"}, {repoDID, ""},
		{repoDID, "https://-h.test"}, {"../../etc", h.url}, {"did:plc:a/../../b", h.url}, {"did:plc:a\nb", h.url}, {"-did:plc:a", h.url}, {"", h.url},
	} {
		_, err := c.Workflows(t.Context(), src, someSHA)
		require.ErrorIs(t, err, ErrInvalid, "%q", src)
		_, err = c.Heads(t.Context(), src)
		require.ErrorIs(t, err, ErrInvalid, "%q", src)
	}
	require.NoFileExists(t, mark)
	require.Zero(t, h.requests.Load())

	// Without Dev, plain http is not a protocol at all.
	strict := newClient(t, func(cfg *Config) { cfg.Dev, cfg.ProxyURL = false, "http://127.0.0.1:1" })
	_, err := strict.Workflows(t.Context(), h.source(repoDID), someSHA)
	require.ErrorIs(t, err, ErrInvalid)
}

// The whole command line and environment of a fetch, so that a change to them is seen.
func TestT27CommandLine(t *testing.T) {
	t.Parallel()
	c := command{op: "fetch", dir: "/r.git", args: []string{"fetch", "--", "https://k.test/did:plc:a", someSHA},
		net: &network{proxy: "http://spindle:secret@127.0.0.1:1", stall: 20 * time.Second, helper: "https"}}
	line := strings.Join(c.argv(), " ")
	for _, want := range []string{"--git-dir=/r.git", "protocol.allow=never", "protocol.https.allow=always", "http.followRedirects=false",
		"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.sshCommand=false", "transfer.bundleURI=false", "submodule.recurse=false",
		"fetch.recurseSubmodules=false", "credential.helper=", "gc.auto=0", "http.lowSpeedTime=20"} {
		require.Contains(t, line, want)
	}
	require.NotContains(t, line, "secret")
	require.NotContains(t, line, "protocol.http.allow")
	env := strings.Join(c.env(), "\n")
	for _, want := range []string{"GIT_ALLOW_PROTOCOL=https\n", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_LFS_SKIP_SMUDGE=1", "HOME=/nonexistent", "GIT_CONFIG_VALUE_0=http://spindle:secret@127.0.0.1:1"} {
		require.Contains(t, env, want)
	}
	require.NotContains(t, env, os.Getenv("HOME")+"\n")
	local := command{op: "read", dir: "/r.git"}
	require.Contains(t, strings.Join(local.env(), "\n"), "GIT_ALLOW_PROTOCOL=none")
	require.NotContains(t, strings.Join(local.argv(), " "), "allow=always")
}

// Everything that git fetches goes through the guarded proxy, and what the guard denies stays denied.
func TestT25FetchGoesThroughTheGuard(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	sha := h.repo(repoDID).commit("refs/heads/main", "x", workflows(map[string]node{"a.yml": text("x")}))
	denied := make(chan string, 16)
	g := netguard.New(netguard.Config{Dev: true, Hosts: map[string]string{"knot.test": strings.TrimPrefix(h.url, "http://")}})
	p, err := g.StartProxy(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	c := newClient(t, func(cfg *Config) { cfg.ProxyURL = p.URL() })
	// The name exists for the guard alone: git itself could not have resolved it.
	got, err := c.Workflows(t.Context(), Source{repoDID, "http://knot.test"}, sha)
	require.NoError(t, err)
	require.Len(t, got.Files, 1)

	strict := netguard.New(netguard.Config{Denied: func(r string) { denied <- r }})
	sp, err := strict.StartProxy(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, sp.Close()) }()
	c = newClient(t, func(cfg *Config) { cfg.ProxyURL, cfg.Dev = sp.URL(), false })
	_, err = c.Workflows(t.Context(), Source{repoDID, "https://127.0.0.1"}, sha)
	require.ErrorIs(t, err, ErrDenied)
	require.False(t, Temporary(err))
	require.Equal(t, netguard.ReasonAddress, <-denied)
	require.NotContains(t, err.Error(), "spindle:", "no credential of the proxy")
}

func TestFindGit(t *testing.T) {
	t.Parallel()
	script := func(out string) string {
		p := filepath.Join(t.TempDir(), "git")
		require.NoError(t, os.WriteFile(p, []byte("#!/bin/sh\necho '"+out+"'\n"), 0o700))
		return p
	}
	for out, want := range map[string]error{
		"git version 2.38.5": ErrGitTooOld, "git version 1.9": ErrGitTooOld, "git version 2.39.0": nil,
		"git version 2.50.1 (Apple Git-155)": nil, "git version 2.45.2.windows.1": nil, "hello": ErrGitMissing, "": ErrGitMissing,
	} {
		g, err := FindGit(t.Context(), script(out))
		if want == nil {
			require.NoError(t, err, out)
			require.NotEmpty(t, g.Version())
			continue
		}
		require.ErrorIs(t, err, want, out)
		require.False(t, Temporary(err))
	}
	_, err := FindGit(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, ErrGitMissing)
	require.ErrorContains(t, err, "install git "+MinGit)
	_, err = FindGit(t.Context(), script("git version 2.30.0"))
	require.ErrorContains(t, err, "upgrade git")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	g, err := FindGit(t.Context(), "")
	if err != nil {
		t.Skip("needs git")
	}
	for _, cfg := range []Config{{}, {Git: g}, {Git: g, RepoDir: "x", Dev: true}, {Git: g, RepoDir: t.TempDir()}, {Git: g, RepoDir: t.TempDir(), Dev: true}} {
		_, err := New(cfg)
		require.Error(t, err)
	}
}

var _ io.Writer = (*tail)(nil)
