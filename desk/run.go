package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"spindle/internal/tid"
	"spindle/pipeline"
	"spindle/runner"
	"spindle/store"
	"spindle/workflow"
)

// Errors that say how a command ends.
var (
	// ErrInvalid is a workflow file that was asked for and is not as it must be.
	ErrInvalid = errors.New("desk: a workflow file is invalid")
	// ErrNothing is a run in which no workflow was started by what is simulated.
	ErrNothing = errors.New("desk: no workflow matches")
	// ErrSecrets is a run whose workflows name secrets that nobody handed over.
	ErrSecrets = errors.New("desk: secrets are missing")
	// ErrEngine is a workflow for an engine that this machine does not have.
	ErrEngine = errors.New("desk: the engine is not available")
	// ErrInputs is a manual run whose inputs are not as a workflow declares them.
	ErrInputs = errors.New("desk: the inputs do not fit")
	// ErrStep is a step that was asked for and is not there.
	ErrStep = errors.New("desk: there is no such step")
)

// run is one run.
type run struct {
	o       Options
	trigger pipeline.Trigger
	plan    workflow.Plan
	nodes   []*node
	facts   *facts
	show    *display
	runner  *runner.Runner
	id      pipeline.ID
	trust   pipeline.Trust
	seats   chan struct{}
	groups  map[string]*sync.Mutex
	notes   []string // what the person should know before it starts
}

// node is a workflow of the run.
type node struct {
	workflow.Planned
	done     chan struct{} // closed when it has ended
	from, to int           // steps of the Spec that are wanted: from <= i < to
	found    bool          // the step that was asked for is one of its
}

// Run runs what o asks for, and shows it. ctx ends when the person asks for the end. An error is told before anything
// has started.
func Run(ctx context.Context, o Options) (Outcome, error) {
	r, err := prepare(ctx, o)
	if err != nil {
		return Outcome{}, err
	}
	return r.execute(ctx)
}

// prepare compiles, chooses and checks.
func prepare(ctx context.Context, o Options) (*run, error) {
	o = filled(o)
	r := &run{o: o, facts: newFacts(o.Clock.Now), groups: map[string]*sync.Mutex{}, trust: pipeline.TrustBranch}
	if o.Fork {
		r.trust = pipeline.TrustFork
	}
	var err error
	if r.trigger, err = o.trigger(ctx); err != nil {
		return nil, err
	}
	r.plan = o.Compile(ctx, r.trigger)
	if len(r.plan.InputErrors) > 0 {
		var why []string
		for _, e := range r.plan.InputErrors {
			why = append(why, e.Error())
		}
		return nil, fmt.Errorf("%w: %s", ErrInputs, strings.Join(why, "; "))
	}
	if err := r.choose(); err != nil {
		return nil, err
	}
	return r, nil
}

// execute runs the nodes and reports.
func (r *run) execute(ctx context.Context) (Outcome, error) {
	if err := r.check(); err != nil {
		return Outcome{}, err
	}
	t := &tree{repo: r.o.Repo, ref: r.o.Ref, objects: objectsMount}
	if !r.o.Isolated {
		t.objects = r.o.Repo.common + "/objects"
	}
	r.show = newDisplay(r.o, r.nodes)
	conf := runner.Config{
		Facts: r.facts, Needs: r.facts, Results: r.facts, Checkouts: t, Secrets: given(r.o.Secrets), Logs: sinks{r.show, r.o.Clock},
		Engines: r.o.Engines, Clock: r.o.Clock, Log: r.o.Log, Dir: r.o.Dir + "/attempts", Timeout: r.o.Timeout, MaxTimeout: 24 * time.Hour,
		Mounts: t.mounts(),
	}
	r.runner = runner.New(conf)
	r.id = pipeline.ID(tid.New(r.o.Clock).Next())
	r.seats = make(chan struct{}, r.o.Jobs)
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(&pipeline.Stop{Kind: pipeline.StopCancel, By: "you"}) })
	defer stop()
	var all sync.WaitGroup
	if !r.o.InPlace {
		all.Go(func() { t.start(work) })
	}
	r.show.begin(r)
	for _, n := range r.nodes {
		all.Go(func() {
			defer close(n.done)
			r.node(work, n, conf)
		})
	}
	all.Wait()
	var out Outcome
	var states []pipeline.Status
	for _, n := range r.nodes {
		w := r.facts.row(n.Name)
		out.Workflows = append(out.Workflows, w)
		states = append(states, w.Status)
	}
	out.Status = pipeline.Summarize(states)
	r.show.end(r, out)
	return out, r.show.err()
}

// node takes one workflow to its end.
func (r *run) node(ctx context.Context, n *node, conf runner.Config) {
	if n.Spec == nil {
		r.facts.settle(n.Name, pipeline.Invalid, "its file is invalid")
		return
	}
	if n.Skip != "" {
		r.facts.settle(n.Name, pipeline.Skipped, n.Skip)
		r.show.settled(n.Name, pipeline.Skipped, n.Skip)
		return
	}
	for _, w := range n.Spec.WaitsFor {
		for _, o := range r.nodes {
			if o.Name == w {
				<-o.done
			}
		}
	}
	if d := n.Spec.Decide(r.trigger, r.facts.results()); !d.Run {
		s := pipeline.Skipped
		if d.Fault {
			s = pipeline.Error
		}
		r.facts.settle(n.Name, s, d.Why)
		r.show.settled(n.Name, s, d.Why)
		return
	}
	if g := r.group(n); g != nil {
		g.Lock()
		defer g.Unlock()
	}
	select {
	case r.seats <- struct{}{}:
		defer func() { <-r.seats }()
	case <-ctx.Done():
		r.facts.settle(n.Name, pipeline.Cancelled, "cancelled before it began")
		r.show.settled(n.Name, pipeline.Cancelled, "cancelled before it began")
		return
	}
	for attempt := 1; ; attempt++ {
		r.attempt(ctx, n, conf, attempt)
		w := r.facts.row(n.Name)
		if ctx.Err() != nil || !again(n.Spec.Retry, w.Status, attempt) {
			r.show.settled(n.Name, w.Status, w.Reason)
			return
		}
		r.show.note(n.Name, fmt.Sprintf("attempt %d ended: %s; trying again (retry: %d at most)", attempt, w.Reason, n.Spec.Retry.Max))
	}
}

// again tells whether another attempt follows one that ended with s.
func again(p *workflow.Retry, s pipeline.Status, attempt int) bool {
	if p == nil || attempt > p.Max {
		return false
	}
	on := map[pipeline.Status]string{
		pipeline.Error: workflow.RetryInfrastructure, pipeline.Failed: workflow.RetryFailure, pipeline.Timeout: workflow.RetryTimeout,
	}[s]
	return on != "" && slices.Contains(p.On, on)
}

// group is what only one workflow at a time may hold, or nil.
func (r *run) group(n *node) *sync.Mutex {
	if n.Spec.Concurrency == nil {
		return nil
	}
	name, err := n.Spec.Concurrency.Group.Expand(n.Spec.Facts(r.trigger, r.facts.results()))
	if err != nil {
		return nil // the server says so when it plans; here nobody else runs
	}
	r.facts.mu.Lock()
	defer r.facts.mu.Unlock()
	if r.groups[name] == nil {
		r.groups[name] = &sync.Mutex{}
	}
	return r.groups[name]
}

// attempt runs a workflow once.
func (r *run) attempt(ctx context.Context, n *node, conf runner.Config, number int) {
	spec := *n.Spec
	if r.o.InPlace {
		spec.Clone.Skip = true
	}
	text, err := json.Marshal(spec)
	if err != nil {
		r.facts.settle(n.Name, pipeline.Error, "the workflow could not be written down")
		return
	}
	w := pipeline.Workflow{
		Pipeline: r.id, Name: n.Name, File: n.Path, Spec: text, Digest: n.Digest, Engine: spec.Engine, Attempt: number, Epoch: int64(number),
	}
	r.facts.begin(w)
	run := r.runner
	if n.from > 0 || n.to < len(spec.Steps) || r.o.Shell != nil {
		run = runner.New(r.narrowed(n, conf))
	}
	run.Execute(ctx, &store.Claimed{
		Lease: pipeline.Lease{Pipeline: r.id, Workflow: n.Name, Attempt: number, Epoch: int64(number), Holder: "desk"},
		Pipeline: pipeline.Pipeline{
			ID: r.id, Repo: deskRepo, Owner: deskYou, Trigger: r.trigger, Trust: r.trust, Knot: "desk.invalid",
			DefaultBranch: r.o.Repo.DefaultBranch(), CreatedAt: r.o.Clock.Now(),
		},
		Workflow: w,
	})
}
