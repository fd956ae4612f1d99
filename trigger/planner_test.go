package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/devnet"
	"spindle/devnet/fault"
	"spindle/identity"
	"spindle/internal/clock"
	"spindle/internal/netguard"
	"spindle/internal/tid"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/store"
)

func TestMain(m *testing.M) {
	// The logger of the IPFS libraries that indigo uses starts this one at import and has no way to stop it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
}

// bench is a planner on a real store and a network of its own, with real git.
type bench struct {
	t     *testing.T
	net   *devnet.Net
	store *store.Store
	alice *devnet.Account // owns the spindle
	c     Config
	n     int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	var err error
	b.net, err = devnet.Start(t.Context(), devnet.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.net.Close()) })
	b.alice, err = b.net.CreateAccount(t.Context(), "alice.test")
	require.NoError(t, err)
	b.store, err = store.Open(t.Context(), store.Config{
		Path: filepath.Join(t.TempDir(), "spindle.db"), Clock: clock.Real{}, Owner: b.alice.DID.String(), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	client := netguard.New(netguard.Config{Dev: true, Hosts: b.net.Hosts()}).HTTPClient(netguard.ClientOptions{Timeout: 5 * time.Second})
	t.Cleanup(client.CloseIdleConnections)
	git, err := knot.FindGit(t.Context(), "")
	if err != nil {
		t.Skip("needs git: " + err.Error())
	}
	dir := identity.NewDirectory(identity.DirectoryConfig{PLCURL: b.net.PLCURL(), Client: client, Dev: true})
	knots, err := knot.New(knot.Config{
		Git: git, RepoDir: t.TempDir(), Directory: dir, Prover: identity.NewProver(identity.ProverConfig{Directory: dir, Client: client}), Dev: true,
	})
	require.NoError(t, err)
	b.c = Config{
		Store: b.store, Sources: knots, IDs: tid.New(clock.Real{}), Clock: clock.Real{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Engines: []string{"dummy"},
	}
	return b
}

// run plans until the end of the test.
func (b *bench) run(change ...func(*Config)) {
	c := b.c
	for _, f := range change {
		f(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = New(c).Run(ctx)
	}()
	b.t.Cleanup(func() { cancel(); <-ended })
}

// repo makes a repository of alice's and binds it here.
func (b *bench) repo(name string, at ...*devnet.Knot) *devnet.Repo {
	b.t.Helper()
	o := devnet.RepoOptions{Spindle: "spindle.test"}
	if len(at) > 0 {
		o.Knot = at[0]
	}
	r, err := b.net.CreateRepo(b.t.Context(), b.alice, name, o)
	require.NoError(b.t, err)
	_, err = b.store.Accept(b.t.Context(), store.Effects{Repos: []store.RepoBinding{{
		Repo: r.DID.String(), Owner: b.alice.DID.String(), Rkey: r.Rkey, Name: name, Knot: "knot.test", DefaultBranch: "main", VerifiedAt: time.Now(),
	}}})
	require.NoError(b.t, err)
	return r
}

// commit pushes files and gives the trigger of that push.
func (b *bench) commit(r *devnet.Repo, c devnet.Change) pipeline.Trigger {
	b.t.Helper()
	old, err := r.Head(b.t.Context(), "main")
	if err != nil {
		old = strings.Repeat("0", 40)
	}
	p, err := r.Push(b.t.Context(), c)
	require.NoError(b.t, err)
	return pipeline.Trigger{
		Kind: pipeline.Push, Repo: r.DID.String(), Actor: b.alice.DID.String(), ActorSource: pipeline.FromKnot, Ref: p.Ref,
		Commit: strings.TrimSpace(p.SHA), Old: strings.TrimSpace(old),
	}
}

// accept stores a trigger under a key of its own.
func (b *bench) accept(t pipeline.Trigger) string {
	b.t.Helper()
	b.n++
	t.Key = fmt.Sprintf("test:%d", b.n)
	_, err := b.store.Accept(b.t.Context(), store.Effects{Event: &t})
	require.NoError(b.t, err)
	return t.Key
}

func (b *bench) view(key string) store.EventView {
	b.t.Helper()
	v, ok, err := b.store.EventByKey(context.Background(), key)
	require.NoError(b.t, err)
	require.True(b.t, ok)
	return v
}

// settled waits until the event is settled.
func (b *bench) settled(key string) store.EventView {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.view(key).State != store.EventPending }, time.Minute, 5*time.Millisecond)
	return b.view(key)
}

// planned waits for the event's pipeline.
func (b *bench) planned(key string) pipeline.Pipeline {
	b.t.Helper()
	v := b.settled(key)
	require.Equal(b.t, store.EventDone, v.State, v.Reason)
	p, ok, err := b.store.Pipeline(context.Background(), v.Pipeline)
	require.NoError(b.t, err)
	require.True(b.t, ok)
	return p
}

func names(p pipeline.Pipeline) (out []string) {
	for _, w := range p.Workflows {
		out = append(out, w.Name)
	}
	return out
}

// file is a workflow with further conditions in its when entry.
func file(more string) string {
	if !strings.Contains(more, "branch:") {
		more = "    branch: [\"**\"]\n" + more
	}
	return "when:\n  - event: [push, pull_request, manual]\n" + more + "engine: dummy\nclone: {skip: true}\nsteps:\n  - command: echo x\n"
}

const dir = ".tangled/workflows/"

// TestFilesAreThoseOfTheCommit plans an old commit after the branch has moved on.
func TestFilesAreThoseOfTheCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	first := b.commit(r, devnet.Change{Message: "one\n\nmore", Files: map[string]string{dir + "a.yml": file("")}})
	second := b.commit(r, devnet.Change{Files: map[string]string{dir + "b.yml": file("")}, Remove: []string{dir + "a.yml"}})
	b.run()
	p := b.planned(b.accept(first))
	require.Equal(t, []string{"a"}, names(p))
	require.Equal(t, "one", p.Title)
	require.Equal(t, pipeline.TrustBranch, p.Trust)
	require.Equal(t, []string{"b"}, names(b.planned(b.accept(second))))
}

// TestWhyNothingRuns settles what starts nothing, with the reason.
func TestWhyNothingRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	for _, c := range []struct {
		change devnet.Change
		option string
		state  store.EventState
		reason string
	}{
		{devnet.Change{Files: map[string]string{"x": "y"}}, "", store.EventNoMatch, "no workflow file"},
		{devnet.Change{Files: map[string]string{dir + "a.yml": file("    branch: [release]\n")}}, "", store.EventNoMatch, "release"},
		{devnet.Change{Files: map[string]string{dir + "a.yml": file("")}, Message: "fix [skip ci]"}, "", store.EventSkipped, "[skip ci]"},
		{devnet.Change{Files: map[string]string{dir + "a.yml": file("")}}, "skip-ci", store.EventSkipped, "skip-ci"},
	} {
		tr := b.commit(b.repo("r"+string(c.state)+fmt.Sprint(b.n)), c.change)
		if c.option != "" {
			tr.Options = []string{c.option}
		}
		v := b.settled(b.accept(tr))
		require.Equal(t, c.state, v.State)
		require.Contains(t, v.Reason, c.reason)
	}
	r := b.repo("last")
	tr := b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file("")}})
	gone := tr
	gone.Commit, gone.Old = strings.Repeat("0", 40), tr.Commit
	v := b.settled(b.accept(gone))
	require.Equal(t, store.EventSkipped, v.State)
	require.Contains(t, v.Reason, "refs/heads/main was deleted")

	tr.Kind, tr.ActorSource, tr.Ref, tr.Old = pipeline.Manual, pipeline.FromCaller, "", ""
	skip := b.commit(r, devnet.Change{Message: "[skip ci]", Files: map[string]string{"x": "y"}})
	tr.Commit = skip.Commit
	require.Equal(t, []string{"a"}, names(b.planned(b.accept(tr))), "a marker is for pushes, not for a person's wish")
}

// TestB026InvalidFilesAreVisible plans a broken file beside a good one, and tells of a link that is not followed.
func TestB026InvalidFilesAreVisible(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	tr := b.commit(r, devnet.Change{Files: map[string]string{
		dir + "a.yml": file(""), dir + "oops.yml": "when:\n  - event: [push]\n\tbranch: main\n", dir + "notes.txt": "not a workflow",
	}})
	b.run()
	p := b.planned(b.accept(tr))
	require.Equal(t, []string{"a", "oops"}, names(p))
	require.Equal(t, pipeline.Invalid, p.Workflows[1].Status)
	require.Contains(t, p.Workflows[1].Reason, "3")
	require.Equal(t, pipeline.Waiting, p.Workflows[0].Status)
}

// TestB035PathsAndABaseThatIsGone matches changed files, and everything when the old commit is no more.
func TestB035PathsAndABaseThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file("    paths: [\"src/**\"]\n"), dir + "b.yml": file("    paths: [\"doc/**\"]\n")}})
	tr := b.commit(r, devnet.Change{Files: map[string]string{"src/x": "y"}})
	b.run()
	require.Equal(t, []string{"a"}, names(b.planned(b.accept(tr))))
	tr.Old = strings.Repeat("1", 40)
	require.Equal(t, []string{"a", "b"}, names(b.planned(b.accept(tr))))
}

// TestB041CommitThatIsGone settles at once, with the reason.
func TestB041CommitThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	tr := b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file("")}})
	tr.Commit = strings.Repeat("1", 40)
	b.run()
	v := b.settled(b.accept(tr))
	require.Equal(t, store.EventGone, v.State)
	require.Contains(t, v.Reason, "does not have this commit")
	require.Zero(t, v.Tries)
}

// TestKnotDownThenUpPlansOnce puts events off in order; one slow knot does not hold up another.
func TestKnotDownThenUpPlansOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	far, err := b.net.StartKnot(t.Context(), "far.test")
	require.NoError(t, err)
	r, other := b.repo("hello", far), b.repo("other")
	one := b.commit(r, devnet.Change{Branch: "main", Files: map[string]string{dir + "a.yml": file("")}})
	two := b.commit(r, devnet.Change{Branch: "main", Files: map[string]string{"x": "y"}})
	elsewhere := b.commit(other, devnet.Change{Files: map[string]string{dir + "a.yml": file("")}})
	far.Server.Gate.Set(fault.Rule{Status: 503})
	k1, k2 := b.accept(one), b.accept(two)
	b.run()
	require.Eventually(t, func() bool { return b.view(k1).Tries > 0 }, time.Minute, 5*time.Millisecond)
	require.Contains(t, b.view(k1).Reason, "knot cannot be reached")
	b.planned(b.accept(elsewhere))
	require.Zero(t, b.view(k2).Tries, "the second waits for the first")
	far.Server.Gate.Clear()
	p1, p2 := b.planned(k1), b.planned(k2)
	require.Less(t, p1.ID, p2.ID, "in the order of the pushes")
	ps, n, err := b.store.Pipelines(t.Context(), store.Query{Repo: r.DID.String()})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Len(t, ps, 2)
}

// TestGivenUpWithAReason tries as often as allowed. A fork's knot gets fewer tries, since others wait behind it.
func TestGivenUpWithAReason(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	tr := b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file("")}})
	b.net.Knot().Server.Gate.Set(fault.Rule{Status: 503})
	k := b.accept(tr)
	b.run(func(c *Config) { c.MaxTries = 2 })
	v := b.settled(k)
	require.Equal(t, store.EventGone, v.State)
	require.Contains(t, v.Reason, "given up after 2 tries: ")
}

// stub answers about sources without a network.
type stub struct {
	Sources
	mu    sync.Mutex
	asked int
	err   error
}

func (s *stub) Locate(context.Context, string) (knot.Source, error) { return knot.Source{}, nil }

func (s *stub) Workflows(ctx context.Context, _ knot.Source, _ string) (knot.Files, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if _, bounded := ctx.Deadline(); !bounded {
		return knot.Files{}, knot.ErrRefused
	}
	return knot.Files{}, s.err
}

// postponing is a store in which put off events are due at once.
type postponing struct{ *store.Store }

func (p postponing) PostponeEvent(ctx context.Context, id int64, reason string, _ time.Time) error {
	return p.Store.PostponeEvent(ctx, id, reason, time.Unix(1, 0))
}

// TestDeadForkHoldsNobodyForLong bounds what the knot of a fork may take.
func TestDeadForkHoldsNobodyForLong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	s := &stub{err: knot.ErrUnreachable}
	k := b.accept(pipeline.Trigger{
		Kind: pipeline.PullRequest, Repo: r.DID.String(), Actor: b.alice.DID.String(), Commit: strings.Repeat("a", 40),
		Pull: &pipeline.Pull{SourceRepo: "did:plc:forkforkforkforkforkfork"},
	})
	b.run(func(c *Config) { c.Sources, c.Store = s, postponing{b.store} })
	v := b.settled(k)
	require.Contains(t, v.Reason, "given up after 4 tries")
	require.Equal(t, forkTries, s.asked)
}

// closing is a store whose admission ends between the planner's question and its write.
type closing struct {
	*store.Store
	before func()
}

func (c closing) Enqueue(ctx context.Context, p store.Plan) (pipeline.Pipeline, error) {
	c.before()
	return c.Store.Enqueue(ctx, p)
}

// TestRefusedAtTheSecondLook bans the owner after the first question of the gate.
func TestRefusedAtTheSecondLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob, err := b.net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	r := b.repo("hello")
	_, err = b.store.Accept(t.Context(), store.Effects{ReplaceCollaborators: map[string][]string{r.DID.String(): {bob.DID.String()}}})
	require.NoError(t, err)
	tr := b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file("")}})
	tr.Kind, tr.Actor, tr.ActorSource = pipeline.Manual, bob.DID.String(), pipeline.FromCaller
	b.run(func(c *Config) {
		c.Store = closing{b.store, func() {
			require.NoError(t, b.store.Ban(context.Background(), bob.DID.String(), b.alice.DID.String()))
		}}
	})
	v := b.settled(b.accept(tr))
	require.Equal(t, store.EventRefused, v.State)
	require.Contains(t, v.Reason, "banned")
}

// TestRepositoriesThatAreNotServed refuses one that is unknown and one whose owner is not admitted.
func TestRepositoriesThatAreNotServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	const stranger, theirs = "did:plc:strangerstrangerstranger", "did:plc:theirstheirstheirstheirs"
	_, err := b.store.Accept(t.Context(), store.Effects{Repos: []store.RepoBinding{{Repo: theirs, Owner: stranger, VerifiedAt: time.Now()}}})
	require.NoError(t, err)
	for repo, why := range map[string]string{"did:plc:unknownunknownunknownunk": "does not serve", theirs: "whom its owner allows"} {
		v := b.settled(b.accept(pipeline.Trigger{Kind: pipeline.Push, Repo: repo, Actor: stranger, Ref: "refs/heads/main", Commit: strings.Repeat("a", 40)}))
		require.Equal(t, store.EventRefused, v.State)
		require.Contains(t, v.Reason, why)
	}
}

// TestForksAndStrangersAreHeld trusts neither code from elsewhere nor a pusher without the right.
func TestForksAndStrangersAreHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob, err := b.net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	r := b.repo("hello")
	tr := b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file("")}})
	fork, err := b.net.Fork(t.Context(), bob, r, devnet.RepoOptions{})
	require.NoError(t, err)
	head, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "b", Files: map[string]string{"x": "y"}})
	require.NoError(t, err)
	b.run()
	for name, change := range map[string]func(*pipeline.Trigger){
		"fork": func(t *pipeline.Trigger) {
			t.Kind, t.Ref, t.Commit = pipeline.PullRequest, "", strings.TrimSpace(head.SHA)
			t.Pull = &pipeline.Pull{SourceRepo: fork.DID.String(), Base: t.Old, TargetBranch: "main", Action: "opened"}
		},
		"stranger": func(t *pipeline.Trigger) { t.Actor = bob.DID.String() },
	} {
		held := tr
		change(&held)
		p := b.planned(b.accept(held))
		require.Equal(t, pipeline.TrustFork, p.Trust, name)
		require.Equal(t, pipeline.Held, p.Workflows[0].Status, name)
		require.Contains(t, p.Note, "must approve", name)
	}
}

// TestOnlyAndInputsOfAManualRun plans what was asked for and says what does not exist.
func TestOnlyAndInputsOfAManualRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	tr := b.commit(r, devnet.Change{Files: map[string]string{dir + "a.yml": file(""), dir + "b.yml": file(""), dir + "c.yml": file("")}})
	tr.Kind, tr.ActorSource = pipeline.Manual, pipeline.FromCaller
	tr.Only, tr.Inputs = []string{"b", "nope"}, []pipeline.Input{{Key: "LEVEL", Value: "3"}}
	b.run()
	p := b.planned(b.accept(tr))
	require.Equal(t, []string{"b"}, names(p))
	require.Equal(t, tr.Inputs, p.Trigger.Inputs)
	require.Contains(t, p.Note, "nope")
}

// TestB028RetryRunsTheStoredSpecs repeats the same set at the same trust, when the knot is gone.
func TestB028RetryRunsTheStoredSpecs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo("hello")
	files := map[string]string{}
	for i := range 25 {
		files[fmt.Sprintf("%sw%02d.yml", dir, i)] = file("")
	}
	tr := b.commit(r, devnet.Change{Files: files})
	b.run()
	old := b.planned(b.accept(tr))
	require.Len(t, old.Workflows, 25)
	b.net.Knot().Server.Gate.Set(fault.Rule{Status: 503})
	again := tr
	again.RetryOf, again.ActorSource = old.ID, pipeline.FromCaller
	p := b.planned(b.accept(again))
	require.Equal(t, names(old), names(p))
	require.NotEqual(t, old.ID, p.ID)
	require.Equal(t, old.Trust, p.Trust)
	want, err := b.store.Specs(t.Context(), old.ID)
	require.NoError(t, err)
	got, err := b.store.Specs(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, want, got)
	again.Only = []string{"w07"}
	require.Equal(t, []string{"w07"}, names(b.planned(b.accept(again))))
	again.Only = []string{"none"}
	require.Equal(t, store.EventNoMatch, b.settled(b.accept(again)).State)
	again.RetryOf = "3mzzzzzzzzz2a"
	require.Equal(t, store.EventRefused, b.settled(b.accept(again)).State)
}
