package knot

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// maxAnswer bounds what receive-pack may say, in bytes.
const maxAnswer = 4 << 20

// route finds the repository and the git service in a path; ask says that credentials must be given.
func (k *Knot) route(path string) (r *Repo, service string, ask bool, err error) {
	path = strings.TrimPrefix(path, "/")
	path, ask = strings.CutPrefix(path, "auth/")
	for _, s := range []string{"/info/refs", "/git-upload-pack", "/git-receive-pack"} {
		name, ok := strings.CutSuffix(path, s)
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, ".git")
		owner, short, two := strings.Cut(name, "/")
		did, known := k.cfg.Accounts.Resolve(owner)
		switch {
		case !two:
			r, err = k.Repo(syntax.DID(owner))
		case known:
			r, err = k.named(did, short)
		default:
			err = fmt.Errorf("%w: nobody is called %s", ErrNoRepo, owner)
		}
		return r, s, ask, err
	}
	return nil, "", ask, fmt.Errorf("%w at this path", ErrNoRepo)
}

func (k *Knot) serveGit(w http.ResponseWriter, req *http.Request) {
	r, service, ask, err := k.route(req.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	pushing := service == "/git-receive-pack" || service == "/info/refs" && req.URL.Query().Get("service") == "git-receive-pack"
	if !pushing {
		k.backend(w, req, r, service)
		return
	}
	actor, status := k.pusher(req, r, ask)
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="devnet: handle and token"`)
		fallthrough
	case http.StatusForbidden:
		http.Error(w, "only the owner and collaborators may push here", status)
	default:
		if service == "/info/refs" {
			k.backend(w, req, r, service)
			return
		}
		k.receive(w, req, r, actor)
	}
}

// pusher says who pushes, or with which status to refuse.
func (k *Knot) pusher(req *http.Request, r *Repo, ask bool) (syntax.DID, int) {
	user, token, given := req.BasicAuth()
	if !given {
		if ask {
			return "", http.StatusUnauthorized
		}
		return r.Owner, http.StatusOK
	}
	did, ok := k.cfg.Accounts.Authenticate(user, token)
	if !ok {
		return "", http.StatusUnauthorized
	}
	if did == r.Owner {
		return did, http.StatusOK
	}
	records, err := k.cfg.Records.Repo(r.DID)
	if err == nil {
		_, err = records.Get(collaboratorNSID, did.String())
	}
	if err != nil {
		return "", http.StatusForbidden
	}
	return did, http.StatusOK
}

// backend hands the request to git http-backend.
func (k *Knot) backend(w http.ResponseWriter, req *http.Request, r *Repo, service string) {
	h := &cgi.Handler{
		Path: k.git, Args: []string{"http-backend"}, Root: "/", Dir: r.Dir,
		Env:    append(k.env(), "GIT_PROJECT_ROOT="+filepath.Dir(r.Dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="),
		Stderr: io.Discard,
	}
	inner := req.Clone(req.Context())
	inner.URL.Path = "/" + filepath.Base(r.Dir) + service
	h.ServeHTTP(w, inner)
}

// receive runs receive-pack, tells the spindle of what moved, and answers.
func (k *Knot) receive(w http.ResponseWriter, req *http.Request, r *Repo, actor syntax.DID) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, "the body is not gzip", http.StatusBadRequest)
			return
		}
		body = z
	}
	cmds, err := readCommands(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cmd := exec.CommandContext(req.Context(), k.git, "receive-pack", "--stateless-rpc", r.Dir)
	cmd.Env = k.env()
	cmd.Stdin = io.MultiReader(bytes.NewReader(cmds.raw), body)
	cmd.WaitDelay = 5 * time.Second
	out := &limited{left: maxAnswer}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil && out.Len() == 0 {
		http.Error(w, "receive-pack failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
	if !cmds.sideband {
		_, _ = w.Write(out.Bytes())
		k.announce(req, r, actor, cmds, accepted(out.Bytes()))
		return
	}
	report, others, err := split(out.Bytes())
	if err != nil {
		_, _ = w.Write(out.Bytes())
		return
	}
	text := k.announce(req, r, actor, cmds, accepted(report))
	var b bytes.Buffer
	b.Write(others)
	// Writing to a buffer cannot fail.
	_ = writeBand(&b, 2, []byte(text))
	_ = writeBand(&b, 1, report)
	b.WriteString(flushPkt)
	_, _ = w.Write(b.Bytes())
}

// announce tells everybody of the refs that moved and returns the text for the pusher.
func (k *Knot) announce(req *http.Request, r *Repo, actor syntax.DID, cmds commands, moved map[string]bool) string {
	var text strings.Builder
	for _, u := range cmds.updates {
		if !moved[u.ref] {
			continue
		}
		p := Push{
			Repo: r.DID, Ref: u.ref, OldSHA: u.old, NewSHA: u.new, Actor: actor, Options: cmds.options,
		}
		k.stream(p, r)
		text.WriteString(k.notify.tell(req.Context(), p))
	}
	return text.String()
}

// limited is a buffer that refuses to grow past its bound.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("knot: receive-pack says too much")
	}
	l.left -= len(p)
	return l.Buffer.Write(p)
}
