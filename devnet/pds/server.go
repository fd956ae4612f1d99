package pds

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// maxBody bounds the body of a call, in bytes.
const maxBody = 1 << 20

// failure is an XRPC error (https://atproto.com/specs/xrpc#error-responses).
type failure struct {
	status int
	Name   string `json:"error"`
	Text   string `json:"message"`
}

func (f failure) Error() string { return f.Name + ": " + f.Text }

func invalid(text string) failure { return failure{http.StatusBadRequest, "InvalidRequest", text} }

// Handler serves /xrpc/com.atproto.{repo,sync,server,identity}.* and /.well-known/atproto-did.
func (h *Host) Handler() http.Handler {
	mux := http.NewServeMux()
	query := func(nsid string, f func(url.Values) (any, error)) {
		mux.HandleFunc("GET /xrpc/"+nsid, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r.URL.Query())
			answer(w, out, err)
		})
	}
	query("com.atproto.sync.getRecord", h.syncGetRecord)
	query("com.atproto.sync.getRepo", h.syncGetRepo)
	query("com.atproto.sync.getLatestCommit", h.getLatestCommit)
	query("com.atproto.sync.getRepoStatus", h.getRepoStatus)
	query("com.atproto.sync.listRepos", h.listRepos)
	query("com.atproto.repo.getRecord", h.getRecord)
	query("com.atproto.repo.listRecords", h.listRecords)
	query("com.atproto.repo.describeRepo", h.describeRepo)
	query("com.atproto.server.describeServer", func(url.Values) (any, error) {
		return map[string]any{"did": "did:web:pds.test", "availableUserDomains": []string{".test"}}, nil
	})
	query("com.atproto.identity.resolveHandle", h.resolveHandle)
	if h.fire != nil {
		mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", h.fire)
	}
	mux.HandleFunc("POST /xrpc/com.atproto.server.createSession", h.createSession)
	mux.HandleFunc("GET /xrpc/com.atproto.server.getSession", h.getSession)
	mux.HandleFunc("GET /xrpc/com.atproto.server.getServiceAuth", h.getServiceAuth)
	mux.HandleFunc("POST /xrpc/com.atproto.repo.createRecord", h.write)
	mux.HandleFunc("POST /xrpc/com.atproto.repo.putRecord", h.write)
	mux.HandleFunc("POST /xrpc/com.atproto.repo.deleteRecord", h.write)
	mux.HandleFunc("GET /xrpc/_health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"version": "devnet"}, nil)
	})
	mux.HandleFunc("GET /.well-known/atproto-did", h.wellKnown)
	mux.HandleFunc("/xrpc/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil, failure{http.StatusNotImplemented, "MethodNotImplemented", "no such method here"})
	})
	return mux
}

// carFile is an answer that is a CAR file.
type carFile []byte

func answer(w http.ResponseWriter, out any, err error) {
	if err != nil {
		f := asFailure(err)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.status)
		_ = json.NewEncoder(w).Encode(f) // a client that left is no matter of ours
		return
	}
	if c, ok := out.(carFile); ok {
		w.Header().Set("Content-Type", "application/vnd.ipld.car")
		w.Header().Set("Content-Length", strconv.Itoa(len(c)))
		_, _ = w.Write(c)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// asFailure maps the errors of this package to the wire, in one place.
func asFailure(err error) failure {
	var f failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, ErrNoRepo):
		return failure{http.StatusBadRequest, "RepoNotFound", err.Error()}
	case errors.Is(err, ErrNoRecord):
		return failure{http.StatusBadRequest, "RecordNotFound", err.Error()}
	case errors.Is(err, ErrSwap):
		return failure{http.StatusBadRequest, "InvalidSwap", err.Error()}
	case errors.Is(err, ErrBadPath), errors.Is(err, ErrBadRecord):
		return invalid(err.Error())
	default:
		return failure{http.StatusInternalServerError, "InternalServerError", err.Error()}
	}
}

// open finds the active repository that q names with key.
func (h *Host) open(q url.Values, key string) (*Repo, error) {
	did, ok := h.Resolve(q.Get(key))
	if !ok {
		return nil, failure{http.StatusBadRequest, "RepoNotFound", "no such repository here"}
	}
	r, err := h.Repo(did)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]string{"takendown": "RepoTakendown", "suspended": "RepoSuspended", "deactivated": "RepoDeactivated", "deleted": "RepoNotFound"}
	if name, ok := names[r.status]; ok {
		return nil, failure{http.StatusBadRequest, name, "the account is " + r.status}
	}
	return r, nil
}

func (h *Host) syncGetRecord(q url.Values) (any, error) {
	r, err := h.open(q, "did")
	if err != nil {
		return nil, err
	}
	path := q.Get("collection") + "/" + q.Get("rkey")
	if _, _, err := syntax.ParseRepoPath(path); err != nil {
		return nil, invalid("collection or rkey is malformed")
	}
	b, err := r.Proof(q.Get("collection"), q.Get("rkey"))
	return carFile(b), err
}

func (h *Host) syncGetRepo(q url.Values) (any, error) {
	r, err := h.open(q, "did")
	if err != nil {
		return nil, err
	}
	b, err := r.Export()
	return carFile(b), err
}

func (h *Host) getLatestCommit(q url.Values) (any, error) {
	r, err := h.open(q, "did")
	if err != nil {
		return nil, err
	}
	c := r.Head()
	return map[string]string{"cid": c.CID.String(), "rev": c.Rev}, nil
}

func (h *Host) getRepoStatus(q url.Values) (any, error) {
	r, err := h.Repo(syntax.DID(q.Get("did")))
	if err != nil {
		return nil, err
	}
	return repoStatus(r), nil
}

func repoStatus(r *Repo) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]any{"did": r.did.String(), "active": r.status == ""}
	if r.status != "" {
		out["status"] = r.status
		return out
	}
	out["rev"], out["head"] = r.head.commit.Rev, r.head.cid.String()
	return out
}

func (h *Host) listRepos(q url.Values) (any, error) {
	limit, err := bounded(q.Get("limit"), 500, 1000)
	if err != nil {
		return nil, err
	}
	after := q.Get("cursor")
	repos := []any{}
	out := map[string]any{}
	for _, did := range h.DIDs() {
		if did.String() <= after {
			continue
		}
		if len(repos) == limit {
			out["cursor"] = after
			break
		}
		r, err := h.Repo(did)
		if err != nil {
			continue // dropped a moment ago
		}
		repos, after = append(repos, repoStatus(r)), did.String()
	}
	out["repos"] = repos
	return out, nil
}

func (h *Host) describeRepo(q url.Values) (any, error) {
	r, err := h.open(q, "repo")
	if err != nil {
		return nil, err
	}
	collections := []string{}
	for _, rec := range r.List("") {
		if !slices.Contains(collections, rec.Collection) {
			collections = append(collections, rec.Collection)
		}
	}
	return map[string]any{"did": r.did.String(), "collections": collections}, nil
}

func view(r *Repo, rec Record) (any, error) {
	value, err := rec.JSON()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"uri": "at://" + r.did.String() + "/" + rec.Collection + "/" + rec.Rkey, "cid": rec.CID.String(), "value": value,
	}, nil
}

func (h *Host) getRecord(q url.Values) (any, error) {
	r, err := h.open(q, "repo")
	if err != nil {
		return nil, err
	}
	rec, err := r.Get(q.Get("collection"), q.Get("rkey"))
	if err != nil {
		return nil, err
	}
	return view(r, rec)
}

// listRecords goes from the newest key to the oldest, as a real PDS does, unless reverse is asked for.
func (h *Host) listRecords(q url.Values) (any, error) {
	r, err := h.open(q, "repo")
	if err != nil {
		return nil, err
	}
	limit, err := bounded(q.Get("limit"), 50, 100)
	if err != nil {
		return nil, err
	}
	if q.Get("collection") == "" {
		return nil, invalid("collection is required")
	}
	all := r.List(q.Get("collection"))
	forward := q.Get("reverse") == "true"
	if !forward {
		slices.Reverse(all)
	}
	cursor := q.Get("cursor")
	records := []any{}
	out := map[string]any{}
	for _, rec := range all {
		if cursor != "" && (forward && rec.Rkey <= cursor || !forward && rec.Rkey >= cursor) {
			continue
		}
		v, err := view(r, rec)
		if err != nil {
			return nil, err
		}
		records = append(records, v)
		if len(records) == limit {
			out["cursor"] = rec.Rkey
			break
		}
	}
	out["records"] = records
	return out, nil
}

func (h *Host) resolveHandle(q url.Values) (any, error) {
	did, ok := h.Resolve(q.Get("handle"))
	if !ok {
		return nil, failure{http.StatusBadRequest, "HandleNotFound", "no such handle here"}
	}
	return map[string]string{"did": did.String()}, nil
}

// wellKnown resolves a handle over HTTPS (https://atproto.com/specs/handle#handle-resolution).
func (h *Host) wellKnown(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	did, ok := h.Resolve(host)
	if !ok || strings.HasPrefix(host, "did:") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(did))
}

// getServiceAuth signs a service token with the account's key, at most an hour long (60 s unless asked).
func (h *Host) getServiceAuth(w http.ResponseWriter, r *http.Request) {
	repo, err := h.bearer(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	q := r.URL.Query()
	ttl := time.Minute
	if exp := q.Get("exp"); exp != "" {
		at, err := strconv.ParseInt(exp, 10, 64)
		ttl = time.Unix(at, 0).Sub(h.clock.Now())
		if err != nil || ttl <= 0 || ttl > time.Hour {
			answer(w, nil, failure{http.StatusBadRequest, "BadExpiration", "exp must lie within the next hour"})
			return
		}
	}
	token, err := repo.ServiceToken(q.Get("aud"), q.Get("lxm"), ttl)
	answer(w, map[string]string{"token": token}, err)
}

// ServiceToken signs a service token of the repository's DID for the audience aud and the method lxm; an
// empty lxm leaves the claim out (https://atproto.com/specs/xrpc#inter-service-authentication-jwt).
func (r *Repo) ServiceToken(aud, lxm string, ttl time.Duration) (string, error) {
	if aud == "" {
		return "", invalid("aud is required")
	}
	var method *syntax.NSID
	if lxm != "" {
		n, err := syntax.ParseNSID(lxm)
		if err != nil {
			return "", invalid("lxm is no NSID")
		}
		method = &n
	}
	token, err := auth.SignServiceAuth(r.did, aud, ttl, method, r.Key())
	if err != nil {
		return "", failure{http.StatusInternalServerError, "InternalServerError", "signing failed"}
	}
	return token, nil
}

// bounded reads a limit: def when absent, no more than most.
func bounded(text string, def, most int) (int, error) {
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid("limit must lie between 1 and " + strconv.Itoa(most))
	}
	return n, nil
}
