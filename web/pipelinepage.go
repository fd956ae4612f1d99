package web

import (
	"context"
	"fmt"

	"spindle/logs"
	"spindle/pipeline"
)

// pipelineAt is the page of one pipeline.
type pipelineAt struct {
	w  *Web
	id pipeline.ID
}

// onePipeline is what the page is made of.
type onePipeline struct {
	row
	Hold      *hold
	Failures  []failure
	Workflows []workflowCard
	Span      string
	Withheld  bool
	// Approved is who let it run.
	Approved person
	Inputs   []pipeline.Input
}

// hold says what a pipeline waits for a person for.
type hold struct {
	Note  string
	Owner person
	Actor person
	ID    pipeline.ID
	// Asked are the workflows whose files ask for the approval, each with whose; none when the code comes from outside.
	Asked []wish
}

// wish is a workflow whose file asks for an approval.
type wish struct {
	Name, Reason, Deploys string
	Until                 string
}

// held is the notice for the workflows among fs that wait for a person.
func (w *Web) held(p pipeline.Pipeline, fs ...pipeline.Workflow) *hold {
	h := &hold{Note: p.Note, Owner: w.person(p.Owner), Actor: w.person(p.Trigger.Actor), ID: p.ID}
	for _, f := range fs {
		if f.Status == pipeline.Held && f.Gate == pipeline.GateApproval {
			h.Asked = append(h.Asked, wish{f.Name, f.Reason, f.Rules.DeploysTo, f.HeldUntil.UTC().Format("2006-01-02 15:04 MST")})
		}
	}
	return h
}

// failure is a workflow that did not pass, with the end of what it said.
type failure struct {
	Name, URL string
	Mark      mark
	// Step is the step that failed; empty when none was reached.
	Step, Command string
	Text          string
	// Diagnostics is what the workflow file's reader said, over several lines.
	Diagnostics string
	Lines       []line
	LineURL     string
}

// workflowCard is a workflow and its steps.
type workflowCard struct {
	Name, URL, File, Engine string
	Mark                    mark
	Took                    took
	Reason                  string
	Attempt                 int
	Steps                   []stepRow
	Lane                    []bar
}

type stepRow struct {
	Name, URL string
	Index     int
	Mark      mark
	Took      took
	ExitCode  int
	System    bool
	Reason    string
}

func (a pipelineAt) concerns(c pipeline.Change) bool { return c.Pipeline == a.id }

func (a pipelineAt) load(ctx context.Context, _ bool) (view, error) {
	now := a.w.c.Clock.Now()
	p, ok, err := a.w.c.Pipelines.Pipeline(ctx, a.id)
	if err != nil {
		return view{}, fmt.Errorf("read pipeline %s: %w", a.id, err)
	}
	if !ok {
		return view{}, errNotFound
	}
	d := onePipeline{
		row: a.w.row(p, now), Withheld: !p.Trust.Secrets(), Approved: a.w.person(p.ApprovedBy),
		Inputs: p.Trigger.Inputs,
	}
	if p.Status == pipeline.Held || anyHeld(p) {
		d.Hold = a.w.held(p, p.Workflows...)
	}
	x := axisOf(p, now)
	d.Span = lasted(x.span)
	for _, f := range p.Workflows {
		card := a.w.card(p.ID, f)
		card.Lane = x.lane(f, now)
		d.Workflows = append(d.Workflows, card)
		if f.Status.Terminal() && !f.Status.Good() && f.Status != pipeline.Superseded {
			fail, err := a.w.failure(ctx, p.ID, f)
			if err != nil {
				return view{}, err
			}
			d.Failures = append(d.Failures, fail)
		}
	}
	m := d.Mark
	return view{
		template: "pipeline", title: d.Repo + " · " + d.Title, data: d, twin: p, mark: &m, live: !settled(p),
		sections: []string{"head", "hold", "failures", "workflows"},
	}, nil
}

func anyHeld(p pipeline.Pipeline) bool {
	for _, f := range p.Workflows {
		if f.Status == pipeline.Held {
			return true
		}
	}
	return false
}

// settled tells whether nothing of p changes any more.
func settled(p pipeline.Pipeline) bool {
	for _, f := range p.Workflows {
		if !f.Status.Terminal() {
			return false
		}
	}
	return p.Status.Terminal()
}

func (w *Web) card(id pipeline.ID, f pipeline.Workflow) workflowCard {
	now := w.c.Clock.Now()
	c := workflowCard{
		Name: f.Name, URL: workflowURL(id, f.Name), File: f.File, Engine: f.Engine, Mark: markOf(f.Status),
		Took: tookOf(f.Status, f.StartedAt, f.FinishedAt, now), Attempt: f.Attempt, Reason: firstLine(f.Reason),
	}
	for _, s := range f.Steps {
		c.Steps = append(c.Steps, stepRow{
			Name: s.Name, Index: s.Index, Mark: markOf(s.Status), Took: tookOf(s.Status, s.StartedAt, s.FinishedAt, now),
			ExitCode: s.ExitCode, System: s.Kind == pipeline.SystemStep, Reason: firstLine(s.Reason),
			URL: fmt.Sprintf("%s?step=%d#step-%d", c.URL, s.Index, s.Index),
		})
	}
	return c
}

// excerptLines is how many lines of a failing step the page of a pipeline shows.
const excerptLines = 12

// failure says what went wrong with f, with the last lines of the step that failed.
func (w *Web) failure(ctx context.Context, id pipeline.ID, f pipeline.Workflow) (failure, error) {
	out := failure{Name: f.Name, URL: workflowURL(id, f.Name), Mark: markOf(f.Status), Text: f.Reason}
	if f.Status == pipeline.Invalid {
		out.Text, out.Diagnostics = f.File+" cannot run as it is written", f.Reason
		return out, nil
	}
	step, ok := failing(f)
	if !ok {
		return out, nil
	}
	out.Step, out.Command = step.Name, step.Command
	if out.Text == "" || f.Status == pipeline.Failed {
		out.Text = fmt.Sprintf("exited with code %d", step.ExitCode)
		if step.ExitCode == 0 && step.Reason != "" {
			out.Text = step.Reason
		}
	}
	if !step.StartedAt.IsZero() && !step.FinishedAt.IsZero() {
		out.Text += " after " + lasted(step.FinishedAt.Sub(step.StartedAt))
	}
	lines, err := w.ending(ctx, refOf(id, f, f.Attempt), step.Index, excerptLines)
	if err != nil {
		return out, err
	}
	out.Lines = lines
	if len(lines) > 0 {
		out.LineURL = fmt.Sprintf("%s?line=%d#L%d", out.URL, lines[0].Number, lines[0].Number)
	}
	return out, nil
}

// failing is the step that ended f.
func failing(f pipeline.Workflow) (pipeline.Step, bool) {
	for _, s := range f.Steps {
		if s.Status.Terminal() && !s.Status.Good() {
			return s, true
		}
	}
	return pipeline.Step{}, false
}

func refOf(id pipeline.ID, f pipeline.Workflow, attempt int) logs.Ref {
	return logs.Ref{Pipeline: string(id), Workflow: f.Name, Attempt: attempt}
}

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}
