package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/pipeline"
	"spindle/queue"
	"spindle/rbac"
	"spindle/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	boss  = "did:plc:bossbossbossbossbossboss"
	alice = "did:plc:alicealicealicealiceali2"
	bob   = "did:plc:bobbobbobbobbobbobbobbo2"
	repoA = "did:plc:repoarepoarepoarepoarep2"
	repoB = "did:plc:repobrepobrepobrepobrep2"
)

// patience is how long a test waits for what should happen at once.
const patience = time.Minute

// world is a real store with work in it.
type world struct {
	*store.Store
	t     testing.TB
	clock clock.Clock
	ids   *tid.Source
	path  string
	keys  int
}

// newWorld opens a store that lives by c; nil is the machine's clock.
func newWorld(t testing.TB, c clock.Clock) *world {
	t.Helper()
	if c == nil {
		c = clock.Real{}
	}
	w := &world{t: t, clock: c, ids: tid.New(c), path: filepath.Join(t.TempDir(), "spindle.db")}
	w.open()
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	w.bind(repoA, alice)
	w.bind(repoB, bob)
	return w
}

func (w *world) open() {
	w.t.Helper()
	s, err := store.Open(context.Background(), store.Config{Path: w.path, Clock: w.clock, Admission: rbac.Open, Owner: boss})
	require.NoError(w.t, err)
	w.Store = s
}

func (w *world) bind(repo, owner string) {
	w.t.Helper()
	_, err := w.Accept(context.Background(), store.Effects{Repos: []store.RepoBinding{{
		Repo: repo, Owner: owner, Rkey: "self", Name: "hello", Knot: "knot.example", VerifiedAt: w.clock.Now(),
	}}})
	require.NoError(w.t, err)
}

// plan starts a pipeline of n workflows named w000, w001 and so on; change, if any, has the last word on each.
func (w *world) plan(repo string, n int, change ...func(*pipeline.Workflow)) pipeline.ID {
	w.t.Helper()
	owner := map[string]string{repoA: alice, repoB: bob}[repo]
	w.keys++
	tr := pipeline.Trigger{
		Key: fmt.Sprintf("key-%d", w.keys), Kind: pipeline.Push, Repo: repo, Actor: owner,
		Ref: fmt.Sprintf("refs/heads/b%d", w.keys), Commit: fmt.Sprintf("%040x", w.keys), At: w.clock.Now(),
	}
	a, err := w.Accept(context.Background(), store.Effects{Event: &tr})
	require.NoError(w.t, err)
	var ws []pipeline.Workflow
	for i := range n {
		name := fmt.Sprintf("w%03d", i)
		f := pipeline.Workflow{
			Name: name, File: ".tangled/workflows/" + name + ".yml", Engine: "dummy", Status: pipeline.Waiting,
			Spec: []byte(`{}`), Digest: name,
		}
		for _, c := range change {
			c(&f)
		}
		ws = append(ws, f)
	}
	p, err := w.Enqueue(context.Background(), store.Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{
		ID: pipeline.ID(w.ids.Next()), Repo: repo, Owner: owner, Trust: pipeline.TrustBranch, Workflows: ws,
	}})
	require.NoError(w.t, err)
	return p.ID
}

func (w *world) get(id pipeline.ID) pipeline.Pipeline {
	w.t.Helper()
	p, ok, err := w.Pipeline(context.Background(), id)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	return p
}

// ended waits until the pipeline has ended.
func (w *world) ended(id pipeline.ID) pipeline.Pipeline {
	w.t.Helper()
	eventually(w.t, "the end of "+string(id), func() bool { return w.get(id).Status.Terminal() })
	return w.get(id)
}

func (w *world) finish(c *store.Claimed, s pipeline.Status) {
	_, err := w.Apply(context.Background(), c.Lease.Pipeline, c.Lease.Workflow, pipeline.Finished{Epoch: c.Lease.Epoch, Status: s})
	if err != nil {
		w.t.Errorf("report the end of %s/%s: %v", c.Lease.Pipeline, c.Lease.Workflow, err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
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

// executor runs each claim through do and remembers what it was given.
type executor struct {
	do func(ctx context.Context, c *store.Claimed)

	mu      sync.Mutex
	started []pipeline.Lease
	owners  []string
	now     int
	most    int
}

func (e *executor) Execute(ctx context.Context, c *store.Claimed) {
	e.mu.Lock()
	e.started = append(e.started, c.Lease)
	e.owners = append(e.owners, c.Pipeline.Owner)
	e.now++
	e.most = max(e.most, e.now)
	e.mu.Unlock()
	e.do(ctx, c)
	e.mu.Lock()
	e.now--
	e.mu.Unlock()
}

func (e *executor) seen() ([]pipeline.Lease, []string, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]pipeline.Lease(nil), e.started...), append([]string(nil), e.owners...), e.most
}

// passes reports every claim as passed at once.
func (w *world) passes() *executor {
	return &executor{do: func(_ context.Context, c *store.Claimed) { w.finish(c, pipeline.Passed) }}
}

// obedient runs until it is stopped, tells why, and reports what a runner would.
func (w *world) obedient(started chan<- *store.Claimed, stopped chan<- *pipeline.Stop) *executor {
	return &executor{do: func(ctx context.Context, c *store.Claimed) {
		if started != nil {
			started <- c
		}
		<-ctx.Done()
		var stop *pipeline.Stop
		if !errors.As(context.Cause(ctx), &stop) {
			w.t.Errorf("the cause is no Stop: %v", context.Cause(ctx))
			return
		}
		var f pipeline.Fact
		switch stop.Kind {
		case pipeline.StopCancel:
			f = pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Cancelled}
		case pipeline.StopDrain:
			f = pipeline.Lost{Epoch: c.Lease.Epoch, Reason: stop.Sentence(), Again: true}
		}
		if f != nil {
			if _, err := w.Apply(context.Background(), c.Lease.Pipeline, c.Lease.Workflow, f); err != nil {
				w.t.Errorf("report: %v", err)
			}
		}
		if stopped != nil {
			stopped <- stop
		}
	}}
}

// run starts a dispatcher and returns it with a function that ends it and waits.
func (w *world) run(e queue.Executor, change ...func(*queue.Config)) (*queue.Dispatcher, func()) {
	w.t.Helper()
	d, cancel, wait := w.start(e, change...)
	return d, func() { cancel(); wait() }
}

// start is run with the two halves of its end apart.
func (w *world) start(e queue.Executor, change ...func(*queue.Config)) (d *queue.Dispatcher, cancel, wait func()) {
	w.t.Helper()
	c := queue.Config{
		Jobs: w.Store, Executor: e, Clock: w.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Holder: "local/1",
		Engines: []string{"dummy"}, Seats: 1, TTL: time.Hour, Idle: time.Hour,
	}
	for _, f := range change {
		f(&c)
	}
	d = queue.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	wait = sync.OnceFunc(func() {
		require.NoError(w.t, receive(w.t, "the dispatcher's end", done))
		require.Zero(w.t, d.Running())
	})
	w.t.Cleanup(func() { cancel(); wait() })
	return d, cancel, wait
}

func seats(n int) func(*queue.Config) { return func(c *queue.Config) { c.Seats = n } }

// jobs is the store with a test's own hands on some of its verbs.
type jobs struct {
	*store.Store
	claim   func(ctx context.Context, r store.ClaimRequest) (*store.Claimed, error)
	renew   func(ctx context.Context, l pipeline.Lease, ttl time.Duration) (string, time.Time, error)
	changed func() <-chan struct{}
	// read is the greatest number after which changes were asked for.
	read atomic.Int64
	// claims counts calls of Claim.
	claims atomic.Int64
}

func (j *jobs) Claim(ctx context.Context, r store.ClaimRequest) (*store.Claimed, error) {
	j.claims.Add(1)
	if j.claim != nil {
		return j.claim(ctx, r)
	}
	return j.Store.Claim(ctx, r)
}

func (j *jobs) Renew(ctx context.Context, l pipeline.Lease, ttl time.Duration) (string, time.Time, error) {
	if j.renew != nil {
		return j.renew(ctx, l, ttl)
	}
	return j.Store.Renew(ctx, l, ttl)
}

func (j *jobs) Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error) {
	j.read.Store(max(after, j.read.Load()))
	return j.Store.Changes(ctx, after, limit)
}

func (j *jobs) Changed() <-chan struct{} {
	if j.changed != nil {
		return j.changed()
	}
	return j.Store.Changed()
}

func with(j *jobs) func(*queue.Config) { return func(c *queue.Config) { c.Jobs = j } }
