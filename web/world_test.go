package web

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spindle/internal/clock"
	"spindle/logs"
	"spindle/obs"
	"spindle/pipeline"
	"spindle/store"
)

// world is a small store in memory; its logs are real files.
type world struct {
	logs  *logs.Logs
	clock *clock.Manual

	mu      sync.Mutex
	list    []pipeline.Pipeline // the newest first
	repos   []store.RepoBinding
	changes []pipeline.Change
	changed chan struct{}
	down    error
}

func newWorld(t testing.TB) *world {
	t.Helper()
	c := clock.NewManual(time.Now().Truncate(time.Second))
	l, err := logs.Open(logs.Config{Dir: t.TempDir(), Clock: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &world{logs: l, clock: c, changed: make(chan struct{})}
}

func (w *world) Pipelines(_ context.Context, q store.Query) (out []pipeline.Pipeline, total int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, 0, w.down
	}
	for _, p := range w.list {
		if q.Repo != "" && p.Repo != q.Repo || q.Statuses != nil && !slices.Contains(q.Statuses, p.Status) ||
			q.Kinds != nil && !slices.Contains(q.Kinds, p.Trigger.Kind) {
			continue
		}
		total++
		if q.Before != "" && p.ID >= q.Before || len(out) >= q.Limit {
			continue
		}
		p.Workflows = slices.Clone(p.Workflows)
		for i := range p.Workflows {
			p.Workflows[i].Steps = nil
		}
		out = append(out, p)
	}
	return out, total, nil
}

func (w *world) Pipeline(_ context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.list {
		if p.ID == id {
			p.Workflows = slices.Clone(p.Workflows)
			return p, true, w.down
		}
	}
	return pipeline.Pipeline{}, false, w.down
}

func (w *world) Stats(context.Context) (store.Stats, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var s store.Stats
	for _, p := range w.list {
		for _, f := range p.Workflows {
			switch {
			case f.Status.Active():
				s.Running++
			case f.Status == pipeline.Waiting:
				s.Waiting++
				s.OldestWaiting = f.CreatedAt
			case f.Status == pipeline.Held:
				s.Held++
			default:
				s.Finished24h++
				if f.Status.Good() {
					s.Passed24h++
				}
			}
		}
	}
	return s, w.down
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
	return out, nil
}

func (w *world) LastChange(context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(len(w.changes)), w.down
}

func (w *world) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *world) Repos(context.Context) ([]store.RepoBinding, error) { return w.repos, nil }

func (w *world) Handle(_ context.Context, did string) string {
	name, _ := strings.CutPrefix(did, "did:plc:")
	name, _, _ = strings.Cut(name, "2222")
	return name + ".example.com"
}

func (w *world) Components() []obs.Component {
	return []obs.Component{{Name: "jetstream", OK: true, Detail: "0.4 s behind"}, {Name: "knots", OK: true, Detail: "3 of 3"}}
}

// put adds a pipeline, or replaces it and announces the change.
func (w *world) put(p pipeline.Pipeline) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.list, func(o pipeline.Pipeline) bool { return o.ID == p.ID })
	if i >= 0 {
		w.list[i] = p
	} else {
		w.list = append([]pipeline.Pipeline{p}, w.list...)
	}
	w.changes = append(w.changes, pipeline.Change{Number: int64(len(w.changes)) + 1, Pipeline: p.ID, Repo: p.Repo, Step: -1, Status: p.Status})
	close(w.changed)
	w.changed = make(chan struct{})
}

// serve starts the pages on a real socket.
func (w *world) serve(t testing.TB, change ...func(*Config)) (*Web, *httptest.Server) {
	t.Helper()
	c := Config{
		Pipelines: w, Repos: w, Logs: w.logs, Names: w, Health: w, Hostname: "ci.example.com", Version: "0.1.0",
		Clock: w.clock, Log: slog.New(slog.NewTextHandler(testOutput{t}, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return h, s
}

// testOutput sends a logger's lines to the test.
type testOutput struct{ t testing.TB }

func (o testOutput) Write(b []byte) (int, error) {
	o.t.Logf("%s", b)
	return len(b), nil
}

func did(name string) string { return "did:plc:" + name + strings.Repeat("2", 24-len(name)) }

// build is a pipeline with one workflow for each status, whose steps are a clone and a test.
func (w *world) build(n int, titleText string, ss ...pipeline.Status) pipeline.Pipeline {
	now := w.clock.Now()
	p := pipeline.Pipeline{
		ID: pipeline.ID(fmt.Sprintf("3lx2aaaaaaa%02d", n)), Repo: did("hello"), Owner: did("alice"), RepoName: "hello",
		Knot: "knot1.example.com", DefaultBranch: "main", Title: titleText, Trust: pipeline.TrustBranch,
		Trigger: pipeline.Trigger{
			Kind: pipeline.Push, Repo: did("hello"), Actor: did("alice"), Ref: "refs/heads/main",
			Commit: fmt.Sprintf("%040x", 0x9d1e02c+n*7919),
		},
		CreatedAt: now.Add(-time.Duration(60-n) * 97 * time.Second),
	}
	names := []string{"test", "lint", "build", "deploy"}
	for i, s := range ss {
		f := pipeline.Workflow{
			Pipeline: p.ID, Name: names[i%4], File: ".tangled/workflows/" + names[i%4] + ".yml", Engine: "sandbox",
			Status: s, CreatedAt: p.CreatedAt, ReadyAt: p.CreatedAt,
		}
		if s != pipeline.Waiting && s != pipeline.Held && s != pipeline.Invalid && s != pipeline.Skipped {
			f.Attempt = 1
			f.StartedAt = p.CreatedAt.Add(300 * time.Millisecond * time.Duration(i+1))
			at := f.StartedAt
			for j, name := range []string{"set up", "clone", "unit tests", "package"} {
				st := pipeline.Step{Index: j, Name: name, Status: pipeline.Passed, Kind: pipeline.UserStep, StartedAt: at}
				if j < 2 {
					st.Kind = pipeline.SystemStep
				} else {
					st.Command = "go test ./...\ngo vet ./..."
				}
				st.FinishedAt = at.Add(time.Duration(300+900*j*(i+1)+37*n) * time.Millisecond)
				at = st.FinishedAt
				if j == 2 && !s.Good() {
					st.Status = s
					if s == pipeline.Failed {
						st.ExitCode = 1
					}
					if s.Active() {
						st.Status, st.FinishedAt = pipeline.Running, time.Time{}
					}
				}
				if j == 3 && !s.Good() {
					st.Status, st.StartedAt, st.FinishedAt = pipeline.Skipped, time.Time{}, time.Time{}
					if s.Active() {
						st.Status = pipeline.Waiting
					}
				}
				f.Steps = append(f.Steps, st)
			}
			if s.Terminal() {
				f.FinishedAt = at
			}
			if s == pipeline.Failed {
				f.ExitCode, f.Reason = 1, `step "unit tests" exited with code 1`
			}
		}
		p.Workflows = append(p.Workflows, f)
	}
	p.Status = pipeline.Summarize(ss)
	if p.Status.Terminal() {
		p.FinishedAt = p.CreatedAt.Add(time.Second)
		for _, f := range p.Workflows {
			if f.FinishedAt.After(p.FinishedAt) {
				p.FinishedAt = f.FinishedAt
			}
		}
	}
	return p
}

// write makes the log of a workflow: its steps, with extra lines in the third one.
func (w *world) write(t testing.TB, f pipeline.Workflow, extra ...string) *logs.Writer {
	t.Helper()
	out, err := w.logs.Create(logs.Ref{Pipeline: string(f.Pipeline), Workflow: f.Name, Attempt: max(1, f.Attempt)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range f.Steps {
		if s.StartedAt.IsZero() {
			continue
		}
		check(out.StepStart(s.Index, s.Name, s.Command, string(s.Kind)))
		if s.Index == 1 {
			check(out.System(s.Index, "fetching "+f.File))
		}
		o := out.Stream(s.Index, "stdout")
		if s.Index == 2 {
			for _, x := range extra {
				_, err := fmt.Fprintln(o, x)
				check(err)
			}
		} else {
			_, err := fmt.Fprintf(o, "%s is ready\n", s.Name)
			check(err)
		}
		check(o.Close())
		if !s.FinishedAt.IsZero() {
			check(out.StepEnd(s.Index, string(s.Status), s.ExitCode, s.Reason))
		}
	}
	return out
}
