package knot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/identity"
	"spindle/internal/netguard"
)

const repoDID = "did:plc:repoaaaaaaaaaaaaaaaaaaaa"

// host is a knot's git side: real git over smart HTTP.
type host struct {
	t        testing.TB
	root     string
	url      string
	requests atomic.Int64
	mu       sync.Mutex
	wrap     func(http.Handler) http.Handler // what stands between the client and git
}

// execPath is where git keeps its programs.
var execPath = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	return strings.TrimSpace(string(out)), err
})

func newHost(t testing.TB) *host {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git in PATH")
	}
	dir, err := execPath()
	require.NoError(t, err)
	backend := filepath.Join(dir, "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("needs git-http-backend: " + backend)
	}
	h := &host{t: t, root: t.TempDir()}
	conf := filepath.Join(h.root, "gitconfig")
	require.NoError(t, os.WriteFile(conf, []byte("[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n[safe]\n\tdirectory = *\n"), 0o600))
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		env := []string{"GIT_PROJECT_ROOT=" + h.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=" + conf, "GIT_CONFIG_NOSYSTEM=1"}
		if p := r.Header.Get("Git-Protocol"); p != "" {
			env = append(env, "GIT_PROTOCOL="+p)
		}
		(&cgi.Handler{Path: backend, Env: env, InheritEnv: []string{"PATH"},
			Stderr: io.Discard, Logger: log.New(io.Discard, "", 0)}).ServeHTTP(w, r)
	})
	ctx, end := context.WithCancel(context.Background())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		wrap := h.wrap
		h.mu.Unlock()
		if wrap == nil {
			serve.ServeHTTP(w, r)
			return
		}
		// A server notices that its client has gone only once the request's body is read.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		wrap(serve).ServeHTTP(w, r)
	}))
	srv.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.Start()
	t.Cleanup(func() {
		end() // whoever still waits for a request's context goes on, so that Close cannot hang
		srv.CloseClientConnections()
		srv.Close()
	})
	h.url = srv.URL
	return h
}

// put sets what stands between the client and git.
func (h *host) put(wrap func(http.Handler) http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrap = wrap
}

func (h *host) source(did string) Source { return Source{Repo: did, KnotURL: h.url} }

// origin is a repository on the host, written with plumbing so that its trees can be as odd as wanted.
type origin struct {
	t   testing.TB
	dir string
}

func (h *host) repo(did string, initArgs ...string) *origin {
	h.t.Helper()
	o := &origin{t: h.t, dir: filepath.Join(h.root, did)}
	cmd := exec.Command("git", append(append([]string{"init", "-q", "--bare", "-b", "main"}, initArgs...), o.dir)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	require.NoError(h.t, err, string(out))
	return o
}

func (o *origin) git(stdin string, args ...string) string {
	o.t.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + o.dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.test")
	cmd.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(o.t, err, "%v: %s", args, errs.String())
	return strings.TrimSpace(string(out))
}

func (o *origin) blob(data string) string { return o.git(data, "hash-object", "-w", "--stdin") }

// node is an entry of a tree to write: a file's text, a tree, or any mode with any hash.
type node struct {
	mode string
	id   string
	text string
	dir  map[string]node
}

func text(s string) node         { return node{mode: "100644", text: s} }
func dir(m map[string]node) node { return node{mode: "040000", dir: m} }
func link(to string) node        { return node{mode: "120000", text: to} }
func gitlink(sha string) node    { return node{mode: "160000", id: sha} }
func (o *origin) tree(m map[string]node) string {
	var in strings.Builder
	for name, n := range m {
		kind := "blob"
		switch {
		case n.mode == "040000":
			kind, n.id = "tree", o.tree(n.dir)
		case n.mode == "160000":
			kind = "commit"
		default:
			n.id = o.blob(n.text)
		}
		fmt.Fprintf(&in, "%s %s %s\t%s\x00", n.mode, kind, n.id, name)
	}
	return o.git(in.String(), "mktree", "-z", "--missing")
}

// commit writes a commit of m on top of ref and moves ref to it.
func (o *origin) commit(ref, msg string, m map[string]node) string {
	o.t.Helper()
	args := []string{"commit-tree", o.tree(m)}
	if b, err := os.ReadFile(filepath.Join(o.dir, ref)); err == nil { // quicker than asking git
		args = append(args, "-p", strings.TrimSpace(string(b)))
	}
	sha := o.git(msg, args...)
	o.git("", "update-ref", ref, sha)
	return sha
}

// workflows is a tree with these workflow files and one more file.
func workflows(files map[string]node) map[string]node {
	return map[string]node{".tangled": dir(map[string]node{"workflows": dir(files)}), "README": text("hello\n")}
}

var theGit = sync.OnceValues(func() (*Git, error) { return FindGit(context.Background(), "") })

// newClient is a client with no proxy, which Dev allows.
func newClient(t testing.TB, change func(*Config)) *Client {
	t.Helper()
	g, err := theGit()
	require.NoError(t, err)
	cfg := Config{Git: g, RepoDir: t.TempDir(), Dev: true, HTTP: guarded(), Directory: (*identity.Directory)(nil), Prover: (*identity.Prover)(nil)}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	require.NoError(t, err)
	return c
}

// guarded is the HTTP client of a guard that allows loopback.
func guarded() *http.Client {
	return netguard.New(netguard.Config{Dev: true}).HTTPClient(netguard.ClientOptions{Timeout: -1})
}

// noWorkTree fails the test if anything below the client's directory looks like a checkout.
func noWorkTree(t testing.TB, c *Client) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(c.cfg.RepoDir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, bad := range []string{".git", "README", ".tangled", "index"} {
			if d.Name() == bad {
				t.Errorf("work tree on the server: %s", p)
			}
		}
		return nil
	}))
}
