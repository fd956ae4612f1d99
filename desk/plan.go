package desk

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/workflow"
)

func filled(o Options) Options {
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	if o.Log == nil {
		o.Log = discard()
	}
	if o.Jobs <= 0 {
		o.Jobs = runtime.NumCPU()
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Hour
	}
	if o.Format == "" {
		o.Format = Plain
	}
	if o.Event == "" {
		o.Event = pipeline.Push
	}
	return o
}

// Compile is the plan of o's files for t, by the compiler that the server has.
func (o Options) Compile(ctx context.Context, t pipeline.Trigger) workflow.Plan {
	in := workflow.Input{Files: o.Files, Trigger: t, DefaultBranch: o.Repo.DefaultBranch(), Changed: o.Changed}
	caps := capabilities()
	in.Capabilities = &caps
	if !in.Changed.Known && workflow.NeedsPaths(o.Files, in.Limits) {
		target := ""
		if t.Pull != nil {
			target = t.Pull.TargetBranch
		}
		in.Changed = o.Repo.Changed(ctx, t.RefName(), target, o.Ref)
	}
	return workflow.Compile(in)
}

// Plan is what o would start, without starting anything.
func (o Options) Plan(ctx context.Context) (workflow.Plan, error) {
	o = filled(o)
	t, err := o.trigger(ctx)
	if err != nil {
		return workflow.Plan{}, err
	}
	return o.Compile(ctx, t), nil
}

// Wanted tells whether a planned workflow is among those that were named.
func Wanted(only []string, name string) bool {
	return slices.ContainsFunc(only, func(o string) bool {
		o = strings.TrimSuffix(strings.TrimSuffix(o, ".yml"), ".yaml")
		return o == name || o == baseOf(name)
	})
}

// trigger is what the run simulates.
func (o Options) trigger(ctx context.Context) (pipeline.Trigger, error) {
	commit := o.Repo.Head
	if o.Ref != "" {
		commit = o.Ref
	}
	t := pipeline.Trigger{
		Key: "desk", Kind: o.Event, ActorSource: pipeline.FromServer, Repo: deskRepo, Actor: deskYou, Commit: commit, Inputs: o.Inputs, At: o.Clock.Now(),
	}
	branch := o.Branch
	if branch == "" {
		branch = o.Repo.Branch
	}
	if branch == "" {
		branch = o.Repo.DefaultBranch()
	}
	switch o.Event {
	case pipeline.PullRequest:
		target := o.Target
		if target == "" {
			target = o.Repo.DefaultBranch()
		}
		t.Pull = &pipeline.Pull{
			SourceRepo: deskRepo, SourceBranch: branch, TargetBranch: target, Head: commit, Action: workflow.Opened,
		}
		if o.Fork {
			t.Pull.SourceRepo = forkRepo
		}
	case pipeline.Schedule:
		t.Ref = "refs/heads/" + o.Repo.DefaultBranch()
	default:
		t.Ref = "refs/heads/" + branch
		if o.Tag != "" {
			t.Ref = "refs/tags/" + o.Tag
		}
	}
	if o.Event == pipeline.Manual {
		t.Only = nil // what they need comes with them, which choose sees to
	}
	if err := t.Check(); err != nil {
		return t, fmt.Errorf("that cannot be simulated: %w", err)
	}
	return t, nil
}

// choose takes from the plan what is wanted, and what that needs.
func (r *run) choose() error {
	want := map[string]bool{}
	var names []string
	for _, w := range r.plan.Workflows {
		names = append(names, baseOf(w.Name))
	}
	for _, n := range r.plan.NotMatched {
		names = append(names, n.Name)
	}
	for _, o := range r.o.Only {
		o = strings.TrimSuffix(strings.TrimSuffix(o, ".yml"), ".yaml")
		if !slices.ContainsFunc(r.plan.Workflows, func(w workflow.Planned) bool { return w.Name == o || baseOf(w.Name) == o }) {
			for _, n := range r.plan.NotMatched {
				if n.Name == o {
					return fmt.Errorf("%w: %s %s; `spindle run --plan` shows what would start", ErrNothing, o, n.Why)
				}
			}
			slices.Sort(names)
			return fmt.Errorf("%w: there is no workflow %q; there are: %s", ErrNothing, o, strings.Join(slices.Compact(names), ", "))
		}
		want[o] = true
	}
	wanted := func(w workflow.Planned) bool {
		return len(r.o.Only) == 0 || want[w.Name] || want[baseOf(w.Name)]
	}
	for changed := true; changed; {
		changed = false
		for _, w := range r.plan.Workflows {
			if !wanted(w) || w.Spec == nil {
				continue
			}
			for _, n := range w.Spec.WaitsFor {
				if len(r.o.Only) > 0 && !want[n] && !want[baseOf(n)] {
					want[n], changed = true, true
				}
			}
		}
	}
	for _, w := range r.plan.Workflows {
		if wanted(w) {
			n := &node{Planned: w, done: make(chan struct{})}
			if w.Spec != nil {
				n.to = len(w.Spec.Steps)
			}
			r.nodes = append(r.nodes, n)
		}
	}
	return nil
}

// baseOf is the name of a workflow without its cell.
func baseOf(name string) string {
	b, _, _ := strings.Cut(name, "[")
	return b
}
