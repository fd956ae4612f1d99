package xrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/identity"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
	"spindle/xrpc"
)

const (
	repoDID   = "did:plc:rrrrrrrrrrrrrrrrrrrrrrrr"
	otherRepo = "did:plc:qqqqqqqqqqqqqqqqqqqqqqqq"
	ownerDID  = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	friendDID = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb" // a collaborator
	maloryDID = "did:plc:mmmmmmmmmmmmmmmmmmmmmmmm" // nobody
	bannedDID = "did:plc:nnnnnnnnnnnnnnnnnnnnnnnn"
	bossDID   = "did:plc:ssssssssssssssssssssssss" // the spindle's owner
	knotDID   = "did:web:knot.example.com"
	sha       = "0123456789abcdef0123456789abcdef01234567"
	sha2      = "fedcba9876543210fedcba9876543210fedcba98"
	doneID    = "3mzzzzzzzzy2a"
	heldID    = "3mzzzzzzzzy2b"
	liveID    = "3mzzzzzzzzy2c"
	foreignID = "3mzzzzzzzzy2d"
	missingID = "3mzzzzzzzzy2e"
)

var epoch = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

// world is the far side of every interface of Config, in memory.
type world struct {
	mu        sync.Mutex
	pipelines []pipeline.Pipeline
	changes   []pipeline.Change
	changed   chan struct{}
	repos     []store.RepoBinding
	rules     []rbac.Rule
	secrets   map[string]string
	used      map[string]bool
	logs      map[string]*fakeLog
	lastQuery store.Query
	did       []string // what was called, in words
	drain     bool
	notReady  string
	fail      error // what every far side answers with, if set
	knotFail  error
	ingestErr error
	verbErr   error
	defsErr   error
	retryErr  error
	cancelled int // what Cancel tells
	boom      bool
}

func newWorld() *world {
	w := &world{changed: make(chan struct{}), secrets: map[string]string{}, used: map[string]bool{}, logs: map[string]*fakeLog{}, cancelled: 1}
	trigger := pipeline.Trigger{Kind: pipeline.Push, Repo: repoDID, Actor: ownerDID, Ref: "refs/heads/main", Commit: sha, At: epoch}
	base := pipeline.Pipeline{Repo: repoDID, Owner: ownerDID, Trigger: trigger, Trust: pipeline.TrustBranch, Knot: "knot.example.com", Title: "Mend it", CreatedAt: epoch}
	done, held, live, foreign := base, base, base, base
	done.ID, done.Status = doneID, pipeline.Failed
	done.Workflows = []pipeline.Workflow{
		{Pipeline: doneID, Name: "test", File: ".tangled/workflows/test.yml", Engine: "dummy", Status: pipeline.Failed, Attempt: 1, ExitCode: 3, Reason: "step 2 ended with 3", CreatedAt: epoch, StartedAt: epoch, FinishedAt: epoch.Add(time.Second), Steps: []pipeline.Step{{Index: 0, Name: "build", Command: "make", Kind: pipeline.UserStep, Status: pipeline.Failed, ExitCode: 3}}},
		{Pipeline: doneID, Name: "lint", File: ".tangled/workflows/lint.yml", Engine: "dummy", Status: pipeline.Invalid, Reason: "line 3: unknown key", CreatedAt: epoch, FinishedAt: epoch},
	}
	held.ID, held.Status, held.Trust = heldID, pipeline.Held, pipeline.TrustFork
	held.Trigger.Kind, held.Trigger.Actor = pipeline.PullRequest, maloryDID
	held.Trigger.Pull = &pipeline.Pull{Round: "at://" + maloryDID + "/org.tangled.review.patch/3mzzzzzzzzy2a", SourceRepo: otherRepo, TargetBranch: "main", Base: sha, Head: sha2, Action: "opened"}
	held.Workflows = []pipeline.Workflow{{Pipeline: heldID, Name: "test", File: ".tangled/workflows/test.yml", Status: pipeline.Held, CreatedAt: epoch}}
	live.ID, live.Status = liveID, pipeline.Running
	live.Trigger.Kind, live.Trigger.Inputs = pipeline.Manual, []pipeline.Input{{Key: "who", Value: "me"}}
	live.Workflows = []pipeline.Workflow{
		{Pipeline: liveID, Name: "a", File: ".tangled/workflows/a.yml", Status: pipeline.Running, Attempt: 1, Epoch: 1, CreatedAt: epoch, StartedAt: epoch},
		{Pipeline: liveID, Name: "b", File: ".tangled/workflows/b.yml", Status: pipeline.Waiting, CreatedAt: epoch},
	}
	foreign.ID, foreign.Repo, foreign.Status = foreignID, otherRepo, pipeline.Passed
	w.pipelines = []pipeline.Pipeline{done, held, live, foreign}
	w.repos = []store.RepoBinding{{Repo: repoDID, Owner: ownerDID, Rkey: "3mzzzzzzzzy2a", Name: "tidepool", Knot: "knot.example.com", DefaultBranch: "main"}}
	w.rules = []rbac.Rule{
		rbac.Grant(bossDID, rbac.Owner, rbac.Spindle), rbac.Grant(ownerDID, rbac.Member, rbac.Spindle), rbac.Grant(bannedDID, rbac.Banned, rbac.Spindle),
		rbac.Grant(ownerDID, rbac.Owner, rbac.RepoDomain(repoDID)), rbac.Grant(friendDID, rbac.Collaborator, rbac.RepoDomain(repoDID)),
	}
	return w
}

// with runs f under the lock and wakes who waits for changes.
func (w *world) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// note remembers a call.
func (w *world) note(format string, args ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, fmt.Sprintf(format, args...))
	return w.fail
}

func (w *world) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.did)
}

func (w *world) Pipelines(_ context.Context, q store.Query) ([]pipeline.Pipeline, int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boom {
		panic("boom")
	}
	w.lastQuery = q
	var out []pipeline.Pipeline
	total := 0
	for i := len(w.pipelines) - 1; i >= 0; i-- {
		p := w.pipelines[i]
		if p.Repo != q.Repo {
			continue
		}
		total++
		if (q.Before == "" || p.ID < q.Before) && len(out) < q.Limit {
			out = append(out, p)
		}
	}
	return out, total, w.fail
}

func (w *world) Pipeline(_ context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pipelines {
		if p.ID == id {
			p.Workflows = slices.Clone(p.Workflows)
			return p, true, w.fail
		}
	}
	return pipeline.Pipeline{}, false, w.fail
}

func (w *world) Changes(_ context.Context, after int64, limit int) ([]pipeline.Change, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pipeline.Change
	for _, c := range w.changes {
		if c.Number > after && len(out) < limit {
			out = append(out, c)
		}
	}
	return out, w.fail
}

func (w *world) LastChange(context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.changes) == 0 {
		return 0, w.fail
	}
	return w.changes[len(w.changes)-1].Number, w.fail
}

func (w *world) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *world) Repo(_ context.Context, did string) (store.RepoBinding, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.repos {
		if b.Repo == did {
			return b, true, w.fail
		}
	}
	return store.RepoBinding{}, false, w.fail
}

func (w *world) Repos(context.Context) ([]store.RepoBinding, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.repos), w.fail
}

func (w *world) Gate(context.Context) (*rbac.Gate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rbac.New(1, rbac.Closed, w.rules)
}

func (w *world) Cancel(_ context.Context, id pipeline.ID, names []string, by, _ string, as pipeline.Status) (int, error) {
	if err := w.note("cancel %s %v by %s as %s", id, names, by, as); err != nil {
		return 0, err
	}
	return w.cancelled, w.verbErr
}

func (w *world) Approve(ctx context.Context, id pipeline.ID, by string, _ []string, admit func(*rbac.Gate, pipeline.Pipeline) rbac.Decision) error {
	p, _, _ := w.Pipeline(ctx, id)
	gate, err := w.Gate(ctx)
	if err != nil {
		return err
	}
	if d := admit(gate, p); !d.Allowed {
		return &store.Refusal{Decision: d}
	}
	if p.Status != pipeline.Held {
		return store.ErrNotBlocked
	}
	return errors.Join(w.note("approve %s by %s", id, by), w.verbErr)
}

func (w *world) Retry(_ context.Context, old pipeline.Pipeline, names []string, by string) (pipeline.ID, error) {
	return "3mzzzzzzzzz2a", errors.Join(w.note("retry %s %v by %s", old.ID, names, by), w.retryErr)
}

func (w *world) Definitions(_ context.Context, b store.RepoBinding, ref string) ([]xrpc.Definition, error) {
	if err := errors.Join(w.note("definitions %s %s", b.Repo, ref), w.defsErr); err != nil {
		return nil, err
	}
	return []xrpc.Definition{{Name: "test", Path: ".tangled/workflows/test.yml", Commit: sha, Hash: "abc", Triggers: []string{"push"}, Engine: "sandbox",
		Diagnostics: []xrpc.Diagnostic{{Severity: "warning", Message: "old key", Line: 3}}}}, nil
}

func (w *world) Put(_ context.Context, repo, name, value, by string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets[name] = value
	w.did = append(w.did, "put "+repo+" "+name+" by "+by)
	return w.fail
}

func (w *world) List(context.Context, string) ([]xrpc.Secret, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []xrpc.Secret
	for name := range w.secrets {
		out = append(out, xrpc.Secret{Name: name, CreatedAt: epoch, CreatedBy: ownerDID})
	}
	return out, w.fail
}

func (w *world) Delete(_ context.Context, _, name, _ string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.secrets[name]
	delete(w.secrets, name)
	return ok, w.fail
}

func (w *world) NotifyPush(_ context.Context, p xrpc.Push) (xrpc.Notified, error) {
	err := errors.Join(w.note("push %s %s %s by %s told by %s %v", p.Repo, p.Ref, p.New, p.Actor, p.Caller, p.Options), w.ingestErr)
	return xrpc.Notified{Pipelines: []pipeline.ID{liveID}, Message: "1 workflow\n"}, err
}

func (w *world) NotifyManual(_ context.Context, m xrpc.Manual) (xrpc.Notified, error) {
	err := errors.Join(w.note("manual %s %s %s by %s %v %v", m.Repo, m.Commit, m.Ref, m.Caller, m.Workflows, m.Inputs), w.ingestErr)
	return xrpc.Notified{Pipelines: []pipeline.ID{liveID}}, err
}

func (w *world) KnotDID(context.Context, string) (string, error) { return knotDID, w.knotFail }

// Issuer is the DID of a token that Verify takes, and a stranger for one that it does not.
func (w *world) Issuer(bearer, lxm string) (string, error) {
	if did, _, ok := strings.Cut(bearer, "|"); ok {
		return strings.TrimPrefix(did, "~"), nil
	}
	return "did:plc:strangerstrangerstranger", nil
}

// Verify takes tokens of the form DID|lxm|jti, or !Reason for an error of identity.
func (w *world) Verify(_ context.Context, bearer, lxm string) (string, error) {
	if name, bad := strings.CutPrefix(bearer, "!"); bad {
		for _, err := range tokenErrors() {
			if identity.Reason(err) == name {
				return "", fmt.Errorf("verify: /inner/detail: %w", err)
			}
		}
		return "", errors.New("inner detail")
	}
	if strings.HasPrefix(bearer, "~") { // a forgery in somebody's name
		return "", identity.ErrSignature
	}
	parts := strings.Split(bearer, "|")
	if len(parts) != 3 {
		return "", identity.ErrTokenMalformed
	}
	if parts[1] != lxm {
		return "", identity.ErrTokenMethod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used[parts[2]] {
		return "", identity.ErrTokenReplayed
	}
	w.used[parts[2]] = true
	return parts[0], nil
}

func tokenErrors() []error {
	return []error{
		identity.ErrTokenMalformed, identity.ErrTokenAlgorithm, identity.ErrTokenType, identity.ErrTokenKey, identity.ErrTokenIssuer, identity.ErrTokenAudience,
		identity.ErrTokenMethod, identity.ErrTokenLifetime, identity.ErrTokenExpired, identity.ErrTokenEarly, identity.ErrTokenNoID, identity.ErrTokenReplayed,
		identity.ErrSignature, identity.ErrBadDID, identity.ErrNotFound, identity.ErrBadDocument, identity.ErrUnreachable, identity.ErrBusy,
	}
}

// Follow opens a fake log.
func (w *world) Follow(_ context.Context, id pipeline.ID, name string, attempt int, from int64) (xrpc.LogReader, error) {
	if w.fail != nil {
		return nil, w.fail
	}
	return &fakeReader{log: w.log(id, name, attempt), at: int(from)}, nil
}

// log is the log of one attempt.
func (w *world) log(id pipeline.ID, name string, attempt int) *fakeLog {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s/%s/%d", id, name, attempt)
	if w.logs[key] == nil {
		w.logs[key] = &fakeLog{more: make(chan struct{})}
	}
	return w.logs[key]
}

// bench is a server over a world, on a real socket.
type bench struct {
	*world
	url    string
	server *xrpc.Server
	logged *safeBuffer
	jti    int
	mu     sync.Mutex
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newBench(t *testing.T, change ...func(*xrpc.Config)) *bench {
	t.Helper()
	w := newWorld()
	b := &bench{world: w, logged: &safeBuffer{}}
	c := xrpc.Config{
		Pipelines: w, Repos: w, Policy: w, Verbs: w, Retries: w, Definitions: w, Secrets: w, Logs: w, Ingest: w, Tokens: w, Knots: w,
		Owner: bossDID, Draining: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.drain },
		Ready:     func(context.Context) string { w.mu.Lock(); defer w.mu.Unlock(); return w.notReady },
		Documents: []xrpc.Document{{Path: "/.well-known/did.json", Body: func() []byte { return []byte(`{"id":"did:web:ci.example.com"}`) }}, {Path: "/none", Body: func() []byte { return nil }}},
		Limits:    xrpc.Limits{PerAddress: 1e6, AddressBurst: 1e6, PerCaller: 1e6, CallerBurst: 1e6, Failures: 1e6},
		Log:       slog.New(slog.NewTextHandler(b.logged, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	b.server, err = xrpc.New(c)
	require.NoError(t, err)
	h := httptest.NewServer(b.server.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, b.server.Close(ctx))
		h.Close()
	})
	b.url = h.URL
	return b
}

// token is a fresh token of did for nsid.
func (b *bench) token(did, nsid string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jti++
	return fmt.Sprintf("Bearer %s|%s|%d", did, nsid, b.jti)
}

// answer is what a call was answered with.
type answer struct {
	status int
	header http.Header
	text   string
	Error  string `json:"error"`
}

// into decodes the answer of a call that went well.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.NoError(t, json.Unmarshal([]byte(a.text), v))
}

// do calls path. did is who calls, or "" for a call without token, or a whole Authorization header.
func (b *bench) do(t *testing.T, method, path, did string, body any, more ...string) answer {
	t.Helper()
	var r io.Reader
	switch x := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(x)
	default:
		j, err := json.Marshal(x)
		require.NoError(t, err)
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, r)
	require.NoError(t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	nsid, _, _ := strings.Cut(strings.TrimPrefix(path, "/xrpc/"), "?")
	switch {
	case strings.HasPrefix(did, "did:"):
		req.Header.Set("Authorization", b.token(did, nsid))
	case did != "":
		req.Header.Set("Authorization", did)
	}
	for i := 0; i+1 < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	a := answer{status: res.StatusCode, header: res.Header, text: string(text)}
	_ = json.Unmarshal(text, &a)
	return a
}

func (b *bench) get(t *testing.T, path, did string) answer {
	t.Helper()
	return b.do(t, http.MethodGet, path, did, nil)
}

func (b *bench) post(t *testing.T, nsid, did string, body any) answer {
	t.Helper()
	return b.do(t, http.MethodPost, "/xrpc/"+nsid, did, body)
}

// m is short for a JSON object.
type m = map[string]any
