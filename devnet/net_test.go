package devnet_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/devnet"
	"spindle/devnet/knot"
)

// TestMain fails when anything of a closed network still runs.
func TestMain(m *testing.M) {
	// A logging library of the CAR reader starts this one when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
}

const notifyNSID = "org.tangled.event.notifyEvent"

// open starts a network that ends with the test.
func open(t *testing.T, cfg devnet.Config) *devnet.Net {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	n, err := devnet.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func account(t *testing.T, n *devnet.Net, handle string) *devnet.Account {
	t.Helper()
	a, err := n.CreateAccount(t.Context(), handle)
	require.NoError(t, err)
	return a
}

func repository(t *testing.T, n *devnet.Net, owner *devnet.Account, opts devnet.RepoOptions) *devnet.Repo {
	t.Helper()
	r, err := n.CreateRepo(t.Context(), owner, "site", opts)
	require.NoError(t, err)
	return r
}

func push(t *testing.T, r *devnet.Repo, c devnet.Change) devnet.Pushed {
	t.Helper()
	if c.Files == nil {
		c.Files = map[string]string{"a.txt": rand(t)}
	}
	p, err := r.Push(t.Context(), c)
	require.NoError(t, err)
	return p
}

// rand is text that differs from call to call.
func rand(t *testing.T) string { return t.Name() + time.Now().String() }

// directory resolves DIDs of the network as a spindle would.
func directory(t *testing.T, n *devnet.Net) *identity.BaseDirectory {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &identity.BaseDirectory{PLCURL: n.PLCURL(), HTTPClient: http.Client{Transport: tr}, SkipHandleVerification: true}
}

// notice is one call that the test spindle got.
type notice struct {
	Repo  string
	Event struct {
		Type        string `json:"$type"`
		Repo        string
		Ref         string
		OldSha      string
		NewSha      string
		Actor       string
		PushOptions []string
	}
	issuer string // empty: the token did not verify
	jti    string
	at     time.Time
}

// spindle is a small server that checks notices as the specification asks.
type spindle struct {
	*httptest.Server
	dir    identity.Directory
	mu     sync.Mutex
	got    []notice
	status int
	reply  string
}

func newSpindle(t *testing.T, n *devnet.Net) *spindle {
	t.Helper()
	s := &spindle{dir: directory(t, n), status: http.StatusOK, reply: `{"$type":"org.tangled.event.notifyEvent#ciOutput","message":"pipeline 3abc started\nsee http://ci.test/3abc","pipelines":["3abc"]}`}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *spindle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in notice
	in.at = time.Now()
	if r.URL.Path != "/xrpc/"+notifyNSID || json.NewDecoder(r.Body).Decode(&in) != nil {
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	v := auth.ServiceAuthValidator{Audience: "did:web:ci.test#tangled_spindle", Dir: s.dir}
	lxm := syntax.NSID(notifyNSID)
	if iss, err := v.Validate(r.Context(), token, &lxm); err == nil {
		in.issuer = iss.String()
	}
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err == nil {
		in.jti = claims.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, in)
	w.WriteHeader(s.status)
	_, _ = w.Write([]byte(s.reply))
}

func (s *spindle) answer(status int, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.reply = status, reply
}

func (s *spindle) notices() []notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]notice(nil), s.got...)
}

func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 2*time.Millisecond, what)
}

func TestPushTellsTheSpindleAndThePusher(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	s := newSpindle(t, n)
	n.SetSpindle("ci.test", s.URL)
	alice := account(t, n, "alice.test")
	r := repository(t, n, alice, devnet.RepoOptions{Spindle: "ci.test"})

	p := push(t, r, devnet.Change{Options: []string{"verbose-ci"}})
	assert.Contains(t, p.Output, "remote: pipeline 3abc started")
	assert.Contains(t, p.Output, "remote: see http://ci.test/3abc")
	require.Len(t, s.notices(), 1)
	got := s.notices()[0]
	assert.Equal(t, r.DID.String(), got.issuer, "the token verifies with the key in the DID document")
	assert.Equal(t, r.DID.String(), got.Repo)
	assert.Equal(t, "org.tangled.event.push", got.Event.Type)
	assert.Equal(t, "refs/heads/main", got.Event.Ref)
	assert.Equal(t, strings.Repeat("0", 40), got.Event.OldSha)
	assert.Equal(t, p.SHA, got.Event.NewSha)
	assert.Equal(t, alice.DID.String(), got.Event.Actor)
	assert.Equal(t, []string{"verbose-ci"}, got.Event.PushOptions)

	// The second push moves the ref on; a tag is a notice of its own.
	q := push(t, r, devnet.Change{Tag: "v1"})
	require.Len(t, s.notices(), 3)
	assert.Equal(t, p.SHA, s.notices()[1].Event.OldSha)
	assert.Equal(t, q.SHA, s.notices()[1].Event.NewSha)
	assert.Equal(t, "refs/tags/v1", s.notices()[2].Event.Ref)
}

// What a person can do to a branch: remove files, make scripts, amend, delete it.
func TestPushShapes(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	r := repository(t, n, account(t, n, "alice.test"), devnet.RepoOptions{})
	one := push(t, r, devnet.Change{Files: map[string]string{"a b/run.sh": "#!/bin/sh\n", "x": "1"}, Message: "one"})
	two := push(t, r, devnet.Change{Files: map[string]string{"x": "2"}, Remove: []string{"a b/run.sh"}})
	amended := push(t, r, devnet.Change{Files: map[string]string{"y": ""}, Message: "two again", Force: true})
	show := func(args ...string) string {
		out, err := n.Knot().Git(t.Context(), r.Git.Dir, args...)
		require.NoError(t, err)
		return out
	}
	assert.Contains(t, show("ls-tree", "-r", one.SHA), "100755")
	assert.Equal(t, "x", show("ls-tree", "-r", "--name-only", two.SHA))
	assert.Equal(t, "x\ny", show("ls-tree", "-r", "--name-only", amended.SHA))
	assert.Equal(t, one.SHA, show("rev-parse", amended.SHA+"^"))
	push(t, r, devnet.Change{Branch: "side"})
	require.NoError(t, r.DeleteBranch(t.Context(), nil, "side"))
	_, err := r.Head(t.Context(), "side")
	require.Error(t, err)
	_, err = r.Push(t.Context(), devnet.Change{Files: map[string]string{"../x": ""}})
	require.ErrorIs(t, err, devnet.ErrPath)
}

func TestCloneByDIDAndByName(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	r := repository(t, n, account(t, n, "alice.test"), devnet.RepoOptions{DefaultBranch: "trunk"})
	p := push(t, r, devnet.Change{Files: map[string]string{"dir/a.txt": "hello"}})
	for _, url := range []string{r.CloneURL(), r.NamedURL(), r.CloneURL() + ".git"} {
		out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", url, t.TempDir()+"/c").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	// What a spindle does: one commit by its name, without blobs.
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "--bare", dir},
		{"--git-dir", dir, "fetch", "-q", "--depth=1", "--no-tags", "--filter=blob:none", r.CloneURL(), p.SHA},
		{"--git-dir", dir, "ls-tree", "-r", p.SHA},
	} {
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	out, err := exec.CommandContext(t.Context(), "git", "clone", n.KnotURL()+"/did:plc:nobody", t.TempDir()+"/c").CombinedOutput()
	require.Error(t, err, string(out))
}

func TestWhoMayPush(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	s := newSpindle(t, n)
	n.SetSpindle("ci.test", s.URL)
	alice, bob := account(t, n, "alice.test"), account(t, n, "bob.test")
	r := repository(t, n, alice, devnet.RepoOptions{Spindle: "did:web:ci.test"})

	_, err := r.Push(t.Context(), devnet.Change{As: bob})
	require.ErrorContains(t, err, "403")
	require.NoError(t, r.AddCollaborator(bob))
	push(t, r, devnet.Change{As: bob})
	assert.Equal(t, bob.DID.String(), s.notices()[0].Event.Actor)
	require.NoError(t, r.RemoveCollaborator(bob))
	_, err = r.Push(t.Context(), devnet.Change{As: bob})
	require.ErrorContains(t, err, "403")
	stranger := *bob
	stranger.Token = "wrong"
	_, err = r.Push(t.Context(), devnet.Change{As: &stranger})
	require.Error(t, err)
	require.Len(t, s.notices(), 1)
}

func TestNoticeWaitsForASpindleThatIsDown(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	s := newSpindle(t, n)
	alice := account(t, n, "alice.test")
	r := repository(t, n, alice, devnet.RepoOptions{Spindle: "ci.test"})
	p := push(t, r, devnet.Change{})
	assert.Contains(t, p.Output, "remote: spindle ci.test cannot be reached now")
	assert.Equal(t, 1, n.Knot().Pending())

	s.answer(http.StatusServiceUnavailable, `{"error":"NotEnoughResources"}`)
	n.SetSpindle("ci.test", s.URL)
	eventually(t, func() bool { return len(s.notices()) >= 2 }, "a 503 is tried again")
	s.answer(http.StatusOK, `{}`)
	eventually(t, func() bool { return n.Knot().Pending() == 0 }, "an answer settles the notice")
	seen := map[string]bool{}
	for _, got := range s.notices() {
		assert.Equal(t, p.SHA, got.Event.NewSha)
		assert.Equal(t, r.DID.String(), got.issuer)
		assert.False(t, seen[got.jti], "each try has a token of its own")
		seen[got.jti] = true
	}

	// A refusal is final and the pusher is told; terminal codes do not reach them.
	before := len(s.notices())
	s.answer(http.StatusForbidden, `{"error":"OwnerPaused","message":"not \u001b[31madmitted"}`)
	p = push(t, r, devnet.Change{})
	assert.Contains(t, p.Output, "refused this push: OwnerPaused not [31madmitted")
	assert.NotContains(t, p.Output, "\x1b[31m")
	assert.Equal(t, 0, n.Knot().Pending())
	assert.Len(t, s.notices(), before+1)
}

func TestKnotFaults(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	s := newSpindle(t, n)
	n.SetSpindle("ci.test", s.URL)
	r := repository(t, n, account(t, n, "alice.test"), devnet.RepoOptions{Spindle: "ci.test"})
	k := n.Knot()

	k.SetFaults(knot.Faults{Drop: func(knot.Push) bool { return true }})
	push(t, r, devnet.Change{})
	assert.Empty(t, s.notices(), "dropped")

	k.SetFaults(knot.Faults{Duplicate: 2})
	p := push(t, r, devnet.Change{})
	got := s.notices()
	require.Len(t, got, 3, "sent three times")
	assert.Equal(t, p.SHA, got[2].Event.NewSha)
	assert.NotEqual(t, got[0].jti, got[1].jti)

	k.SetFaults(knot.Faults{BadSignature: true})
	push(t, r, devnet.Change{})
	assert.Empty(t, s.notices()[3].issuer, "the token does not verify")

	k.SetFaults(knot.Faults{Hold: true})
	first, second := push(t, r, devnet.Change{}), push(t, r, devnet.Change{})
	require.Len(t, s.notices(), 4, "held back")
	answers, err := k.Release(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, answers, 2)
	assert.Equal(t, []string{"3abc"}, answers[0].Pipelines)
	got = s.notices()
	assert.Equal(t, second.SHA, got[4].Event.NewSha, "in the other order")
	assert.Equal(t, first.SHA, got[5].Event.NewSha)

	k.SetFaults(knot.Faults{Delay: 50 * time.Millisecond})
	start := time.Now()
	push(t, r, devnet.Change{})
	eventually(t, func() bool { return len(s.notices()) == 7 }, "delayed")
	assert.GreaterOrEqual(t, s.notices()[6].at.Sub(start), 50*time.Millisecond)
}

// A knot that does not host a repository speaks for it (T07): the call goes out as it was forged.
func TestT07ForgedCall(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	s := newSpindle(t, n)
	mallory, alice := account(t, n, "mallory.test"), account(t, n, "alice.test")
	r := repository(t, n, alice, devnet.RepoOptions{})
	a, err := n.Knot().Call(t.Context(), knot.Call{
		URL: s.URL, Issuer: r.DID, Key: mallory.Key(), Audience: "did:web:ci.test#tangled_spindle",
		Push: knot.Push{Repo: r.DID, Ref: "refs/heads/main", OldSHA: strings.Repeat("0", 40), NewSHA: strings.Repeat("1", 40)},
	})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, a.Status)
	require.Len(t, s.notices(), 1)
	assert.Empty(t, s.notices()[0].issuer)
}

func TestForkAndPull(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice, bob := account(t, n, "alice.test"), account(t, n, "bob.test")
	target := repository(t, n, alice, devnet.RepoOptions{})
	base := push(t, target, devnet.Change{})
	fork, err := n.Fork(t.Context(), bob, target, devnet.RepoOptions{})
	require.NoError(t, err)
	assert.NotEqual(t, target.DID, fork.DID)
	head := push(t, fork, devnet.Change{Branch: "feature"})
	push(t, target, devnet.Change{}) // the target goes on meanwhile

	p, err := n.OpenPull(t.Context(), bob, target, fork, devnet.PullOptions{Branch: "feature"})
	require.NoError(t, err)
	require.Len(t, p.Rounds, 1)
	assert.Equal(t, base.SHA, p.Rounds[0].Base)
	assert.Equal(t, head.SHA, p.Rounds[0].Head)
	rec, err := bob.Get(devnet.Patch, p.Rounds[0].Rkey)
	require.NoError(t, err)
	text, err := rec.JSON()
	require.NoError(t, err)
	assert.JSONEq(t, `"`+p.Ticket+`"`, field(t, text, "ticket"))
	assert.Contains(t, field(t, text, "source"), fork.DID.String())

	again := push(t, fork, devnet.Change{Branch: "feature"})
	round, err := p.Resubmit(t.Context())
	require.NoError(t, err)
	assert.Equal(t, again.SHA, round.Head)
	require.NoError(t, p.SetState("closed"))
	rec, err = bob.Get(devnet.Ticket, p.TicketRkey)
	require.NoError(t, err)
	text, err = rec.JSON()
	require.NoError(t, err)
	assert.Equal(t, `"closed"`, field(t, text, "state"))
}

func field(t *testing.T, object []byte, name string) string {
	t.Helper()
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(object, &m))
	return string(m[name])
}

func TestHostsAndMoves(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{Spindles: map[string]string{"ci.test": "http://127.0.0.1:7777"}})
	alice := account(t, n, "alice.test")
	r := repository(t, n, alice, devnet.RepoOptions{Older: true})
	p := push(t, r, devnet.Change{})
	h := n.Hosts()
	assert.Equal(t, "127.0.0.1:7777", h["ci.test"])
	assert.Equal(t, strings.TrimPrefix(n.KnotURL(), "http://"), h["knot.test"])
	assert.Equal(t, strings.TrimPrefix(n.PDSURL(), "http://"), h["alice.test"])
	_, err := alice.Get(devnet.OldRepo, r.Rkey)
	require.NoError(t, err)

	knot2, err := n.StartKnot(t.Context(), "knot2.test")
	require.NoError(t, err)
	require.NoError(t, r.Move(knot2))
	id, err := directory(t, n).LookupDID(t.Context(), r.DID)
	require.NoError(t, err)
	assert.Equal(t, knot2.Server.URL(), id.GetServiceEndpoint("tangled_knot"))
	assert.Equal(t, knot2.Server.URL(), id.PDSEndpoint())
	assert.True(t, strings.HasPrefix(r.CloneURL(), knot2.Server.URL()))
	q := push(t, r, devnet.Change{})
	assert.NotEqual(t, p.SHA, q.SHA)

	pds2, err := n.StartPDS(t.Context(), "pds2.test")
	require.NoError(t, err)
	require.NoError(t, alice.Move(pds2))
	assert.Equal(t, pds2.Server.URL(), alice.PDSURL())
	_, err = n.PDS().Repo(alice.DID)
	require.Error(t, err)
}
