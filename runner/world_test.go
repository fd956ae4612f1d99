package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/engines"
	"spindle/engines/dummy"
	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/knot"
	"spindle/logs"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/runner"
	"spindle/store"
	"spindle/workflow"
)

func TestMain(m *testing.M) {
	// A library below the repository client starts a goroutine when it is loaded and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
}

const (
	boss   = "did:plc:bossbossbossbossbossboss"
	alice  = "did:plc:alicealicealicealiceali2"
	bob    = "did:plc:bobbobbobbobbobbobbobbo2"
	repo   = "did:plc:repoarepoarepoarepoarep2"
	fork   = "did:plc:forkforkforkforkforkfor2"
	sha    = "4be21c04be21c04be21c04be21c04be21c04be21"
	secret = "correct horse battery staple"
	token  = "header.payload.signature"
)

const patience = time.Minute

// world is a runner on a real store, real logs and the dummy engine. It stands between the runner and each of
// them, notes what passes, and does instead what a test tells it to.
type world struct {
	*store.Store
	t    testing.TB
	logs *logs.Logs
	ids  *tid.Source
	real *dummy.Engine
	keys int
	cfg  runner.Config

	mu     sync.Mutex
	events []string
	envs   map[string][]string // by script
	out    *logs.Writer
	facts  []pipeline.Fact

	secrets  func() (map[string]string, error)
	token    func() (string, error)
	apply    func(pipeline.Fact) error
	prepare  func() error
	open     func(ctx context.Context, s engines.Spec) error
	command  func(ctx context.Context, c engines.Command) (engines.Result, error, bool)
	shut     func(ctx context.Context) error
	startOne func() error
}

func newWorld(t testing.TB, logDir ...string) *world {
	t.Helper()
	w := &world{t: t, ids: tid.New(clock.Real{}), real: dummy.New(dummy.Config{}), envs: map[string][]string{}}
	s, err := store.Open(context.Background(), store.Config{Path: filepath.Join(t.TempDir(), "spindle.db"), Admission: rbac.Open, Owner: boss})
	require.NoError(t, err)
	w.Store = s
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Accept(context.Background(), store.Effects{Repos: []store.RepoBinding{{
		Repo: repo, Owner: alice, Rkey: "3kself", Name: "hello", Knot: "knot.example", DefaultBranch: "main", VerifiedAt: time.Now(),
	}}})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "logs")
	if len(logDir) > 0 {
		dir = logDir[0]
	}
	w.logs, err = logs.Open(logs.Config{Dir: dir, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.cfg = runner.Config{
		Facts: w, Checkouts: w, Secrets: given{w}, Tokens: w, Logs: w, Engines: []engines.Engine{engine{w}},
		Clock: clock.Real{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Dir: filepath.Join(t.TempDir(), "attempts"),
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf(format, args...))
}

func (w *world) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// job says what runs: the fields of the trigger and the pipeline that matter, and the steps.
type job struct {
	spec    workflow.Spec
	trigger pipeline.Trigger
	trust   pipeline.Trust
}

// does is a job on a branch of the repository whose steps are the given commands, without a checkout.
func does(commands ...string) job {
	j := job{
		trust:   pipeline.TrustBranch,
		spec:    workflow.Spec{Name: "test", Engine: "dummy", Clone: workflow.Clone{Skip: true}},
		trigger: pipeline.Trigger{Kind: pipeline.Push, Repo: repo, Actor: alice, Ref: "refs/heads/main", Commit: sha},
	}
	for _, c := range commands {
		j.spec.Steps = append(j.spec.Steps, workflow.Step{Name: c, Command: c})
	}
	return j
}

// fromFork is j as a pull request from a fork.
func (j job) fromFork() job {
	j.trust = pipeline.TrustFork
	j.trigger.Kind, j.trigger.Ref, j.trigger.Actor = pipeline.PullRequest, "", bob
	j.trigger.Pull = &pipeline.Pull{
		Round: "at://" + bob + "/r/1", RoundCID: "bafy", SourceRepo: fork, SourceBranch: "fix", TargetBranch: "main", Head: sha, Action: "opened",
	}
	return j
}

func (w *world) plan(j job, status pipeline.Status) pipeline.ID {
	w.t.Helper()
	ctx := context.Background()
	spec, err := json.Marshal(j.spec)
	require.NoError(w.t, err)
	w.keys++
	j.trigger.Key = fmt.Sprintf("key-%d", w.keys)
	if j.trigger.Kind == pipeline.Push && j.trigger.Old == "" {
		j.trigger.Old = fmt.Sprintf("%040x", w.keys) // the same move twice is one event
	}
	a, err := w.Accept(ctx, store.Effects{Event: &j.trigger})
	require.NoError(w.t, err)
	p, err := w.Enqueue(ctx, store.Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{
		ID: pipeline.ID(w.ids.Next()), Repo: repo, Owner: alice, Trust: j.trust, Knot: "knot.example", RepoName: "hello", DefaultBranch: "main",
		Workflows: []pipeline.Workflow{{
			Name: "test", File: ".tangled/workflows/test.yml", Engine: "dummy", Status: status, Spec: spec, Digest: "d",
		}},
	}})
	require.NoError(w.t, err)
	return p.ID
}

func (w *world) claim() *store.Claimed {
	w.t.Helper()
	c, err := w.Claim(context.Background(), store.ClaimRequest{Holder: "local", Engines: []string{"dummy"}, TTL: time.Hour})
	require.NoError(w.t, err)
	return c
}

// claimed plans j and leases it.
func (w *world) claimed(j job) *store.Claimed {
	w.t.Helper()
	id := w.plan(j, pipeline.Waiting)
	c := w.claim()
	require.NotNil(w.t, c)
	require.Equal(w.t, id, c.Pipeline.ID)
	return c
}

// run executes j to its end and returns what the store says of it afterwards.
func (w *world) run(j job) pipeline.Workflow {
	w.t.Helper()
	c := w.claimed(j)
	runner.New(w.cfg).Execute(context.Background(), c)
	return w.row(c)
}

func (w *world) row(c *store.Claimed) pipeline.Workflow {
	w.t.Helper()
	p, ok, err := w.Pipeline(context.Background(), c.Pipeline.ID)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	return p.Workflows[0]
}

// lines is the log of the attempt as it is on the disk.
func (w *world) lines(c pipeline.Workflow) []logs.Line {
	w.t.Helper()
	lines, _, ended, err := w.logs.Read(context.Background(), logs.Ref{Pipeline: string(c.Pipeline), Workflow: c.Name, Attempt: c.Attempt}, 0, 10_000)
	require.NoError(w.t, err)
	require.True(w.t, ended, "the log is closed")
	return lines
}

// text is what the log holds of output and of the spindle's own words.
func (w *world) text(c pipeline.Workflow) string {
	w.t.Helper()
	var b strings.Builder
	for _, l := range w.lines(c) {
		if l.Kind == logs.Data {
			b.WriteString(l.Content)
		}
	}
	return b.String()
}

func statuses(w pipeline.Workflow) []pipeline.Status {
	var out []pipeline.Status
	for _, s := range w.Steps {
		out = append(out, s.Status)
	}
	return out
}

// The runner's Facts.

func (w *world) Apply(ctx context.Context, id pipeline.ID, name string, f pipeline.Fact) (pipeline.Workflow, error) {
	w.mu.Lock()
	w.facts = append(w.facts, f)
	out := w.out
	w.mu.Unlock()
	w.note("report %T", f)
	if out != nil && out.System(-1, "x") == nil {
		w.t.Error("the end was reported while the log was open")
	}
	if w.apply != nil {
		if err := w.apply(f); err != nil {
			return pipeline.Workflow{}, err
		}
	}
	return w.Store.Apply(ctx, id, name, f)
}

func (w *world) StartStep(ctx context.Context, l pipeline.Lease, s pipeline.Step) error {
	w.note("start %d", s.Index)
	if w.startOne != nil {
		if err := w.startOne(); err != nil {
			return err
		}
	}
	return w.Store.StartStep(ctx, l, s)
}

func (w *world) EndStep(ctx context.Context, l pipeline.Lease, s pipeline.Step) error {
	w.note("end %d %s", s.Index, s.Status)
	return w.Store.EndStep(ctx, l, s)
}

func (w *world) MarkReleased(ctx context.Context, l pipeline.Lease) error {
	w.note("released")
	return w.Store.MarkReleased(ctx, l)
}

// The runner's Checkouts.

func (w *world) Locate(_ context.Context, repo string) (knot.Source, error) {
	w.note("locate %s", repo)
	return knot.Source{Repo: repo, KnotURL: "https://knot.example"}, nil
}

func (w *world) PrepareCheckout(_ context.Context, r knot.CheckoutRequest) (knot.Checkout, error) {
	w.note("fetch %s %s", r.Source.Repo, r.SHA)
	if w.prepare != nil {
		if err := w.prepare(); err != nil {
			return knot.Checkout{}, err
		}
	}
	return knot.Checkout{Dir: r.Dir, SHA: r.SHA}, nil
}

// given is the runner's Secrets: whatever the test gives, to everybody who asks.
type given struct{ w *world }

func (g given) Run(context.Context, string, pipeline.Trust) (map[string]string, error) {
	g.w.note("secrets")
	if g.w.secrets == nil {
		return nil, nil
	}
	return g.w.secrets()
}

// Token implements the runner's Tokens.
func (w *world) Token(context.Context, pipeline.Pipeline, string, string, time.Duration) (string, error) {
	w.note("token")
	if w.token == nil {
		return "", nil
	}
	return w.token()
}

// Create implements the runner's Logs.
func (w *world) Create(ref logs.Ref, mask []string) (*logs.Writer, error) {
	w.note("log")
	out, err := w.logs.Create(ref, mask)
	w.mu.Lock()
	w.out = out
	w.mu.Unlock()
	return out, err
}

// engine is the dummy engine as the world shows it.
type engine struct{ w *world }

func (e engine) Name() string { return "dummy" }

func (e engine) Open(ctx context.Context, s engines.Spec) (engines.Attempt, error) {
	e.w.note("open")
	if e.w.open != nil {
		if err := e.w.open(ctx, s); err != nil {
			return nil, err
		}
	}
	a, err := e.w.real.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	return machine{a, e.w}, nil
}

type machine struct {
	engines.Attempt
	w *world
}

func (m machine) Run(ctx context.Context, c engines.Command) (engines.Result, error) {
	name := c.Script
	if strings.Contains(c.Script, "git -C") {
		// The dummy engine has no git: the checkout succeeds by itself.
		name, c.Script = "checkout", "echo checked out"
	}
	m.w.note("run %s", name)
	m.w.mu.Lock()
	m.w.envs[name] = slices.Clone(c.Env)
	m.w.mu.Unlock()
	if m.w.command != nil {
		if res, err, done := m.w.command(ctx, c); done {
			return res, err
		}
	}
	return m.Attempt.Run(ctx, c)
}

func (m machine) Close(ctx context.Context) error {
	m.w.note("close")
	var err error
	if m.w.shut != nil {
		err = m.w.shut(ctx)
	}
	if cerr := m.Attempt.Close(context.WithoutCancel(ctx)); cerr != nil {
		return cerr
	}
	return err
}

func receive[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
	}
	return v
}

// leftovers lists what is left of attempts' folders.
func (w *world) leftovers() []os.DirEntry {
	list, err := os.ReadDir(w.cfg.Dir)
	if !os.IsNotExist(err) {
		require.NoError(w.t, err)
	}
	return list
}
