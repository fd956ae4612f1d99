package desk

import (
	"context"
	"sync"
	"time"

	"spindle/internal/clock"
	"spindle/logs"
	"spindle/pipeline"
	"spindle/runner"
	"spindle/store"
	"spindle/workflow"
)

// facts is the pipeline of a run, in memory: the runner's Facts, Needs and Results.
type facts struct {
	now func() time.Time

	mu    sync.Mutex
	rows  map[string]*pipeline.Workflow
	needs map[string]workflow.Need // of ended workflows
	kept  map[string]runner.Result
}

func newFacts(now func() time.Time) *facts {
	return &facts{now: now, rows: map[string]*pipeline.Workflow{}, needs: map[string]workflow.Need{}, kept: map[string]runner.Result{}}
}

// begin makes the row of an attempt.
func (f *facts) begin(w pipeline.Workflow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Status, w.StartedAt = pipeline.Preparing, f.now()
	f.rows[w.Name] = &w
	delete(f.kept, w.Name)
}

// row is a workflow as it stands.
func (f *facts) row(name string) pipeline.Workflow {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.rows[name]; r != nil {
		return *r
	}
	return pipeline.Workflow{Name: name}
}

// settle writes how a workflow ended.
func (f *facts) settle(name string, s pipeline.Status, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[name]
	if r == nil {
		r = &pipeline.Workflow{Name: name}
		f.rows[name] = r
	}
	r.Status, r.Reason, r.FinishedAt = s, reason, f.now()
	f.ended(name)
}

// ended makes the result known to those that wait for it.
func (f *facts) ended(name string) {
	outcome, ok := workflow.OutcomeOf(f.rows[name].Status)
	if !ok {
		return
	}
	n := workflow.Need{Result: outcome, Outputs: map[string]string{}}
	for _, o := range f.kept[name].Outputs {
		n.Outputs[o.Key] = o.Value
	}
	f.needs[name] = n
}

// Needs implements runner.Needs.
func (f *facts) Needs(context.Context, *store.Claimed) (map[string]workflow.Need, error) {
	return f.results(), nil
}

func (f *facts) results() map[string]workflow.Need {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]workflow.Need, len(f.needs))
	for k, v := range f.needs {
		out[k] = v
	}
	return out
}

// Keep implements runner.Results.
func (f *facts) Keep(_ context.Context, l pipeline.Lease, r runner.Result) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[l.Workflow] = r
	return nil
}

// result is what the steps of a workflow told.
func (f *facts) result(name string) runner.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept[name]
}

// Apply implements runner.Facts.
func (f *facts) Apply(_ context.Context, _ pipeline.ID, name string, x pipeline.Fact) (pipeline.Workflow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[name]
	switch x := x.(type) {
	case pipeline.Finished:
		r.Status, r.ExitCode, r.Reason = x.Status, x.ExitCode, x.Reason
	case pipeline.Lost:
		r.Status, r.Reason = pipeline.Error, x.Reason
	}
	r.FinishedAt = f.now()
	f.ended(name)
	return *r, nil
}

// StartStep implements runner.Facts.
func (f *facts) StartStep(_ context.Context, l pipeline.Lease, s pipeline.Step) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[l.Workflow].Status = pipeline.Running
	f.rows[l.Workflow].Steps = append(f.rows[l.Workflow].Steps, s)
	return nil
}

// EndStep implements runner.Facts.
func (f *facts) EndStep(_ context.Context, l pipeline.Lease, s pipeline.Step) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[l.Workflow]
	for i := range r.Steps {
		if r.Steps[i].Index == s.Index {
			r.Steps[i] = s
			return nil
		}
	}
	r.Steps = append(r.Steps, s)
	return nil
}

// MarkReleased implements runner.Facts: nobody repeats an attempt of the desk unasked.
func (f *facts) MarkReleased(context.Context, pipeline.Lease) error { return nil }

// given is the runner's Secrets: what the person handed over.
type given map[string]string

// Run implements runner.Secrets.
func (g given) Run(context.Context, string, pipeline.Trust) (map[string]string, error) { return g, nil }

// sinks is the runner's Logs: every attempt's output goes to the display.
type sinks struct {
	show *display
	now  clock.Clock
}

// Create implements runner.Logs.
func (s sinks) Create(ref logs.Ref, mask []string) (*logs.Writer, error) {
	return logs.NewLive(s.show.sink(ref.Workflow), mask, s.now), nil
}
