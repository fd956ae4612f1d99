package main

import (
	"path"
	"slices"
	"strings"
	"time"

	"spindle/pipeline"
	"spindle/workflow"
)

// findings are what there is to say about all sets.
type findings struct {
	files            int
	errors, warnings int
	diagnostics      []workflow.Diagnostic
	sources          map[string][]byte // by the names that the diagnostics use
	decisions        []decision
	paths            bool // some condition on paths was taken for true
	failed           bool
	took             time.Duration
}

// decision says whether a trigger starts the workflow of a file.
type decision struct {
	Event   string `json:"event"`
	Ref     string `json:"ref,omitempty"` // a branch, or "tag v1"
	File    string `json:"file"`
	Starts  bool   `json:"starts"`
	Invalid bool   `json:"invalid,omitempty"`
	// Why says why it does not start.
	Why string `json:"why,omitempty"`
}

// check adds what there is to say about s.
func (f *findings) check(s fileSet, a asked) {
	if f.sources == nil {
		f.sources = map[string][]byte{}
	}
	in := workflow.Input{Files: s.files, DefaultBranch: defaultBranch, Changed: a.changed}
	can := workflow.ThisVersion()
	in.All, in.Partial, in.Capabilities = true, s.partial, &can
	in.Trigger.Kind = pipeline.Manual
	plan := workflow.Compile(in)
	f.files += len(plan.Workflows)
	all := slices.Clone(plan.Diagnostics)
	paths := map[string]string{}
	for _, w := range plan.Workflows {
		paths[w.Name], paths[w.Workflow] = w.Path, w.Path
		f.sources[s.name(w.Path)] = w.Source
		all = append(all, w.Diagnostics...)
	}
	slices.SortStableFunc(all, func(a, b workflow.Diagnostic) int { return strings.Compare(a.File, b.File) })
	for _, d := range all {
		d.File = s.name(d.File)
		if d.Severity == workflow.Error {
			f.errors++
		} else {
			f.warnings++
		}
		f.diagnostics = append(f.diagnostics, d)
	}
	f.paths = f.paths || !a.changed.Known && workflow.NeedsPaths(s.files, in.Limits)
	in.All = false // from here on conditions count
	for _, t := range a.triggers {
		in.Trigger = t
		f.decisions = append(f.decisions, decide(in, s, paths)...)
	}
}

// decide says of every file whether in.Trigger starts it. paths are those of the files, by workflow.
func decide(in workflow.Input, s fileSet, paths map[string]string) []decision {
	plan := workflow.Compile(in)
	d := decision{Event: string(in.Trigger.Kind)}
	switch {
	case in.Trigger.Pull != nil:
		d.Ref = in.Trigger.Pull.TargetBranch
	case in.Trigger.Kind == pipeline.Push && in.Trigger.RefType() == "tag":
		d.Ref = "tag " + in.Trigger.RefName()
	case in.Trigger.Kind == pipeline.Push:
		d.Ref = in.Trigger.RefName()
	}
	var out []decision
	for _, w := range plan.Workflows {
		d := d
		d.File, d.Starts, d.Invalid = s.name(w.Path), w.Spec != nil, w.Spec == nil
		if d.Invalid {
			d.Why = "invalid"
		}
		out = append(out, d)
	}
	for _, n := range plan.NotMatched {
		d := d
		d.File, d.Why = s.name(paths[n.Name]), n.Why
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b decision) int { return strings.Compare(a.File, b.File) })
	return out
}

// what is the trigger in a word or two.
func (d decision) what() string { return strings.TrimSpace(d.Event + " " + d.Ref) }

// base is the file without its folder.
func (d decision) base() string { return path.Base(d.File) }
