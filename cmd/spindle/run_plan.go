package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"spindle/desk"
	"spindle/workflow"
)

// diagnose shows what the compiler has to say about the files, and refuses invalid ones.
func (r *runner) diagnose(ctx context.Context, o desk.Options) error {
	plan, err := o.Plan(ctx)
	if err != nil {
		return fail(exitUsage, err)
	}
	p := (&linter{environ: r.environ, stdout: r.stderr}).palette()
	bad := 0
	for _, w := range plan.Workflows {
		if len(o.Only) > 0 && !desk.Wanted(o.Only, w.Name) {
			continue
		}
		if w.Spec == nil {
			bad++
		}
		for _, d := range w.Diagnostics {
			if d.Severity == workflow.Error || o.Format != desk.JSON {
				fmt.Fprintln(r.stderr, p.diagnostic(d.Render(w.Source)))
			}
		}
	}
	if bad > 0 {
		return fail(exitInvalid, fmt.Errorf("%s invalid; nothing was started", count(bad, "workflow file")+are(bad)))
	}
	if o.Fork {
		fmt.Fprintln(r.stderr, "spindle: as a fork: without secrets and tokens; on the server a maintainer has to approve such a run before it starts")
	}
	return nil
}

func are(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// plan prints what would start and why, or with --list the workflows and their steps.
func (r *runner) plan(ctx context.Context, c *cli.Command, o desk.Options) error {
	plan, err := o.Plan(ctx)
	if err != nil {
		return fail(exitUsage, err)
	}
	if o.Format == desk.JSON {
		return r.planJSON(plan)
	}
	var b strings.Builder
	for _, w := range plan.Workflows {
		if len(o.Only) > 0 && !desk.Wanted(o.Only, w.Name) {
			continue
		}
		if w.Spec == nil {
			fmt.Fprintf(&b, "! %s  (invalid; `spindle lint` says why)\n", w.Name)
			continue
		}
		fmt.Fprintf(&b, "✓ %s  %s, %s", w.Name, w.Spec.Engine, count(len(w.Spec.Steps), "step"))
		if len(w.Spec.WaitsFor) > 0 {
			fmt.Fprintf(&b, ", after %s", strings.Join(w.Spec.WaitsFor, ", "))
		}
		b.WriteByte('\n')
		if c.Bool("list") {
			for i, s := range w.Spec.Steps {
				fmt.Fprintf(&b, "    %d  %s\n", i+1, s.Name)
			}
		}
	}
	for _, n := range plan.NotMatched {
		if len(o.Only) == 0 || desk.Wanted(o.Only, n.Name) {
			fmt.Fprintf(&b, "✗ %s  (%s)\n", n.Name, n.Why)
		}
	}
	for _, d := range plan.Diagnostics {
		b.WriteString(d.String() + "\n")
	}
	text := b.String()
	if o.ASCII {
		text = asciiOnly().Replace(text)
	}
	if _, err := r.stdout.Write([]byte(text)); err != nil {
		return fail(exitEnv, fmt.Errorf("write the plan: %w", err))
	}
	return nil
}

// planJSON is the plan for programs. Fields are added within version 1, never changed or removed.
func (r *runner) planJSON(plan workflow.Plan) error {
	type planned struct {
		Name   string         `json:"name"`
		File   string         `json:"file"`
		Starts bool           `json:"starts"`
		Why    string         `json:"why,omitempty"`
		Spec   *workflow.Spec `json:"spec,omitempty"`
	}
	list := []planned{}
	for _, w := range plan.Workflows {
		p := planned{Name: w.Name, File: w.Path, Starts: w.Spec != nil, Spec: w.Spec}
		if w.Spec == nil {
			p.Why = "invalid"
		}
		list = append(list, p)
	}
	for _, n := range plan.NotMatched {
		list = append(list, planned{Name: n.Name, Why: n.Why})
	}
	b, err := json.MarshalIndent(map[string]any{"v": 1, "kind": "run.plan", "workflows": list}, "", "  ")
	if err == nil {
		_, err = r.stdout.Write(append(b, '\n'))
	}
	if err != nil {
		return fail(exitEnv, fmt.Errorf("write the plan: %w", err))
	}
	return nil
}
