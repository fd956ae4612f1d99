package knot

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/identity"
	"spindle/internal/netguard"
)

// orphanURL names the environment of the process that fetches and is killed.
const orphanURL = "KNOT_TEST_ORPHAN"

// TestOrphanHelper is that process; by itself it does nothing.
func TestOrphanHelper(t *testing.T) {
	url := os.Getenv(orphanURL)
	if url == "" {
		t.Skip("this is run by TestGitDoesNotOutliveTheServer")
	}
	git, err := FindGit(t.Context(), "")
	require.NoError(t, err)
	// As the server does it: what git starts goes through our own proxy, and loses its connection with us.
	proxy, err := netguard.New(netguard.Config{Dev: true}).StartProxy(t.Context())
	require.NoError(t, err)
	c, err := New(Config{Git: git, RepoDir: t.TempDir(), Dev: true, ProxyURL: proxy.URL(), Directory: (*identity.Directory)(nil), Prover: (*identity.Prover)(nil)})
	require.NoError(t, err)
	_, _ = c.Workflows(context.Background(), Source{Repo: repoDID, KnotURL: url}, someSHA)
}

// running lists the processes whose command line has text in it.
func running(t *testing.T, text string) (out []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err == nil && bytes.Contains(b, []byte(text)) {
			out = append(out, filepath.Base(d)+": "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// TestGitDoesNotOutliveTheServer kills a process with SIGKILL while its git waits for a knot that says nothing.
func TestGitDoesNotOutliveTheServer(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("needs /proc")
	}
	h := newHost(t)
	asked := make(chan struct{}, 8)
	h.put(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-r.Context().Done()
		})
	})
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestOrphanHelper$")
	cmd.Env = append(os.Environ(), orphanURL+"="+h.url)
	require.NoError(t, cmd.Start())
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("git never asked")
	}
	address := strings.TrimPrefix(h.url, "http://")
	require.NotEmpty(t, running(t, address), "git is there")
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait() // it was killed
	require.Eventually(t, func() bool { return len(running(t, address)) == 0 }, time.Minute, 20*time.Millisecond,
		"git and what it started ended: %v", running(t, address))
}

// TestFullDiskIsToldApart fetches into a file system that has no room.
func TestFullDiskIsToldApart(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"in one request": nil, "by git": func(cfg *Config) { cfg.HTTP = nil }} {
		small := t.TempDir()
		if err := syscall.Mount("none", small, "tmpfs", 0, "size=256k"); err != nil {
			t.Skip("needs to mount a tmpfs: " + err.Error())
		}
		t.Cleanup(func() { require.NoError(t, syscall.Unmount(small, syscall.MNT_DETACH)) })
		h := newHost(t)
		sha := h.repo(repoDID).commit("refs/heads/main", "x", map[string]node{"f": text(noise(1 << 20)), ".tangled": dir(map[string]node{"workflows": dir(map[string]node{"a.yml": text("a")})})})
		c := newClient(t, func(cfg *Config) {
			cfg.RepoDir = small
			if change != nil {
				change(cfg)
			}
		})
		_, err := c.Workflows(t.Context(), h.source(repoDID), sha)
		require.Error(t, err, name)
		require.True(t, errors.Is(err, ErrDiskFull) || errors.Is(err, syscall.ENOSPC), "%s: %v", name, err)
		require.True(t, Temporary(err), "there may be room again")
		words, ok := Sentence(err)
		require.True(t, ok)
		require.Contains(t, words, "disk of this spindle is full")
	}
	// The same in git's words, where no file system can be made.
	g, err := theGit()
	require.NoError(t, err)
	for _, text := range []string{
		"fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output",
		"error: unable to write file ./objects/pack/tmp: Disk quota exceeded\nfatal: early EOF",
	} {
		require.ErrorIs(t, g.classify("fetch", text, true), ErrDiskFull)
	}
}
