package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"spindle/knot"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
	"spindle/workflow"
)

// settle plans e and enqueues the plan, or settles e without a pipeline.
func (p *Planner) settle(ctx context.Context, e store.Event) error {
	t := e.Trigger
	if t.RetryOf != "" {
		return p.repeat(ctx, e)
	}
	if t.Kind == pipeline.Push && strings.Trim(t.Commit, "0") == "" {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventSkipped, "nothing to run: "+t.Ref+" was deleted")
	}
	repo, ok, err := p.c.Store.Repo(ctx, t.Repo)
	if err != nil {
		return fmt.Errorf("read repository %s: %w", t.Repo, err)
	}
	if repo.GoneReason != "" {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventRefused, "this spindle does not serve the repository any more: "+repo.GoneReason)
	}
	if !ok || repo.Gone {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventRefused, "this spindle does not serve the repository")
	}
	// The gate is asked here to spare a fetch, and again in the transaction that enqueues.
	gate, err := p.c.Store.Gate(ctx)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	if d := gate.Admit(rbac.Repo{DID: repo.Repo, Owner: repo.Owner}); !d.Allowed {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventRefused, d.Sentence)
	}
	src, err := p.c.Sources.Locate(ctx, t.CodeRepo())
	if err != nil {
		return fmt.Errorf("find the knot of %s: %w", t.CodeRepo(), err)
	}
	files, err := p.c.Sources.Workflows(ctx, src, t.Commit)
	if err != nil {
		return fmt.Errorf("read the workflow files of %s: %w", t.Commit, err)
	}
	if t.Kind == pipeline.Push && !t.Late && t.Ref == "refs/heads/"+repo.DefaultBranch {
		list := timetable(repo.Repo, files, p.c.Limits, p.c.Clock.Now().UTC())
		if err := p.c.Store.PutSchedules(ctx, repo.Repo, t.Commit, list); err != nil {
			return fmt.Errorf("write the schedules of %s: %w", repo.Repo, err)
		}
	}
	if t.Kind == pipeline.Push || t.Kind == pipeline.PullRequest {
		if marker, skip := workflow.SkipMarker(t.Options, files.Message); skip {
			return p.c.Store.SettleEvent(ctx, e.ID, store.EventSkipped, "skipped: the push says "+marker)
		}
	}
	plan, why, err := p.compile(ctx, t, repo, src, files)
	if err != nil {
		return err
	}
	if len(plan.InputErrors) > 0 {
		return p.c.Store.RefuseEvent(ctx, e.ID, CodeInput, wrongInputs(plan.InputErrors))
	}
	if len(plan.Workflows) == 0 {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventNoMatch, nothing(plan, files))
	}
	return p.enqueue(ctx, e, repo, src, gate, files, plan, why)
}

func (p *Planner) compile(ctx context.Context, t pipeline.Trigger, repo store.RepoBinding, src knot.Source, files knot.Files) (workflow.Plan, string, error) {
	in := workflow.Input{
		Trigger: t, DefaultBranch: repo.DefaultBranch, Engines: p.c.Engines, Capabilities: p.c.Capabilities,
		Limits: p.c.Limits,
	}
	for _, f := range files.Files {
		in.Files = append(in.Files, workflow.File{Path: f.Path, Data: f.Data})
	}
	for _, s := range files.Skipped {
		in.Files = append(in.Files, workflow.File{Path: workflow.Dir + s.Name, NotTaken: s.Why})
	}
	why := ""
	if (t.Pull != nil || strings.Trim(t.Old, "0") != "") && workflow.NeedsPaths(in.Files, p.c.Limits) {
		var err error
		if in.Changed, why, err = p.changed(ctx, t, repo, src); err != nil {
			return workflow.Plan{}, "", err
		}
	}
	return workflow.Compile(in), why, nil
}

// nothing says why a trigger starts nothing, file by file.
func nothing(plan workflow.Plan, files knot.Files) string {
	if len(files.Files) == 0 {
		s := "there is no workflow file in .tangled/workflows at this commit"
		for _, sk := range files.Skipped {
			s += fmt.Sprintf("; %s was left out: %s", sk.Name, sk.Why)
		}
		return s
	}
	var b strings.Builder
	b.WriteString("no workflow matched: ")
	for i, n := range plan.NotMatched {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %s", n.Name, n.Why)
	}
	for _, d := range plan.Diagnostics {
		b.WriteString("; " + told(d))
	}
	return b.String()
}

func (p *Planner) enqueue(
	ctx context.Context, e store.Event, repo store.RepoBinding, src knot.Source, gate *rbac.Gate,
	files knot.Files, plan workflow.Plan, unknown string,
) error {
	t := e.Trigger
	trust, err := p.trust(ctx, t, repo, src, gate, plan)
	if err != nil {
		return err
	}
	now := p.c.Clock.Now()
	title, _, _ := strings.Cut(files.Message, "\n")
	pl := pipeline.Pipeline{
		ID: pipeline.ID(p.c.IDs.Next()), Repo: repo.Repo, Owner: repo.Owner, Trigger: t, Trust: trust,
		RepoName: repo.Name, Knot: repo.Knot, DefaultBranch: repo.DefaultBranch, Title: title, CreatedAt: now,
	}
	pl.Note = note(t, trust, plan, unknown)
	for _, w := range plan.Workflows {
		row, err := planned(pl, w)
		if err != nil {
			return err
		}
		row.CreatedAt = now
		pl.Workflows = append(pl.Workflows, row)
	}
	_, err = p.c.Store.Enqueue(ctx, store.Plan{Event: e.ID, Pipeline: pl, Admit: admit(pl)})
	return err
}

// told is a diagnostic of the commit as a whole in one line.
func told(d workflow.Diagnostic) string {
	if d.File == "" {
		return d.Message
	}
	return d.File + ": " + d.Message
}

// maxNotes bounds what a note tells of single workflows, in lines.
const maxNotes = 20

// note is what a reader should know of the pipeline as a whole. unknown, if not empty, is why it is not known which
// files changed.
func note(t pipeline.Trigger, trust pipeline.Trust, plan workflow.Plan, unknown string) string {
	var lines []string
	if t.Late && t.Kind == pipeline.Push {
		lines = append(lines, "late: nobody told of this push at its time; it was found by comparing the repository's refs, so who pushed and with what options is not known")
	} else if t.Late {
		lines = append(lines, "late: nobody told of this at its time; it was found by reading the author's records")
	}
	if trust == pipeline.TrustFork {
		lines = append(lines, "the code comes from outside of the repository: somebody who may push to it must approve this run; "+
			"secrets and ID tokens are withheld, also after the approval")
	}
	if unknown != "" {
		lines = append(lines, "which files changed is not known, so every condition on paths holds: "+unknown)
	}
	for _, d := range plan.Diagnostics {
		lines = append(lines, told(d))
	}
	said := map[string]bool{} // the cells of a matrix are of one file
	for _, w := range plan.Workflows {
		if w.Spec == nil || said[w.Path] || len(lines) > maxNotes {
			continue
		}
		said[w.Path] = true
		for _, n := range w.Spec.NotCarried {
			lines = append(lines, fmt.Sprintf("%s:%d: %s", w.Path, n.Line, n.Why))
		}
	}
	return strings.Join(lines, "\n")
}

// admit is the gate's question as it is asked again in the transaction.
func admit(pl pipeline.Pipeline) func(*rbac.Gate) rbac.Decision {
	repo := rbac.Repo{DID: pl.Repo, Owner: pl.Owner}
	return func(g *rbac.Gate) rbac.Decision {
		if d := g.Admit(repo); !d.Allowed {
			return d
		}
		// A person who starts a run by hand must still have the right to. A push's right was proven by
		// the knot that let it in, and a pull request of a stranger is held instead.
		if pl.Trigger.ActorSource == pipeline.FromCaller {
			return g.May(pl.Trigger.Actor, rbac.Push, repo)
		}
		return rbac.Decision{Allowed: true}
	}
}

// maxReport bounds what is told of one invalid file, in bytes. What the store and the lexicon keep is a little more.
const maxReport = 3900

// report is what is wrong with w, in whole diagnostics: a caret without its line helps nobody.
func report(w workflow.Planned) string {
	var b strings.Builder
	for i, d := range w.Diagnostics {
		text := strings.TrimRight(d.Render(w.Source), "\n")
		if i > 0 && b.Len()+1+len(text) > maxReport {
			fmt.Fprintf(&b, "\n… and %d more: spindle lint tells all", len(w.Diagnostics)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

// planned is the row of one compiled file.
func planned(pl pipeline.Pipeline, w workflow.Planned) (pipeline.Workflow, error) {
	row := pipeline.Workflow{
		Pipeline: pl.ID, Name: w.Name, File: w.Path, Digest: w.Digest, Status: pipeline.Waiting,
	}
	if w.Spec == nil {
		row.Status = pipeline.Invalid
		row.Reason = report(w)
		return row, nil
	}
	spec, err := json.Marshal(w.Spec)
	if err != nil {
		return row, fmt.Errorf("encode the spec of %s: %w", w.Path, err)
	}
	row.Spec, row.Engine, row.Labels = spec, w.Spec.Engine, w.Spec.RunsOn
	if row.Rules, err = rules(w.Spec, pl.Trigger); err != nil {
		row.Status, row.Reason = pipeline.Invalid, err.Error()
		return row, nil
	}
	if w.Skip != "" {
		row.Status, row.Reason = pipeline.Skipped, w.Skip
		return row, nil
	}
	if pl.Trust == pipeline.TrustFork {
		row.Status, row.Reason = pipeline.Held, "waits for the approval of somebody who may push to the repository"
	}
	return row, nil
}

// trust decides how far the run's code is trusted: the least of where the code comes from, who asked, and
// what is proven of its ref.
func (p *Planner) trust(
	ctx context.Context, t pipeline.Trigger, repo store.RepoBinding, src knot.Source, gate *rbac.Gate, plan workflow.Plan,
) (pipeline.Trust, error) {
	if t.CodeRepo() != repo.Repo {
		return pipeline.TrustFork, nil
	}
	if t.Kind != pipeline.Schedule && !gate.May(t.Actor, rbac.Push, rbac.Repo{DID: repo.Repo, Owner: repo.Owner}).Allowed {
		return pipeline.TrustFork, nil
	}
	// That the commit is inside the default branch costs a fetch, so it is proven only where a claim
	// depends on it.
	if !asksToken(plan) || t.RefType() != "branch" || t.RefName() != repo.DefaultBranch || t.Pull != nil {
		return pipeline.TrustBranch, nil
	}
	inside, err := p.c.Sources.RefContains(ctx, src, t.Ref, t.Commit)
	if err != nil && knot.Temporary(err) {
		return pipeline.TrustFork, fmt.Errorf("prove that %s is in %s: %w", t.Commit, t.Ref, err)
	}
	if inside {
		return pipeline.TrustProtected, nil
	}
	return pipeline.TrustBranch, nil
}

func asksToken(plan workflow.Plan) bool {
	for _, w := range plan.Workflows {
		if w.Spec != nil && w.Spec.Audience != "" {
			return true
		}
	}
	return false
}

// repeat plans a retry from what was stored: the same specs, the same trust, nothing read again.
func (p *Planner) repeat(ctx context.Context, e store.Event) error {
	t := e.Trigger
	old, ok, err := p.c.Store.Pipeline(ctx, t.RetryOf)
	if err != nil {
		return fmt.Errorf("read pipeline %s: %w", t.RetryOf, err)
	}
	if !ok || old.Repo != t.Repo {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventRefused, "the pipeline to repeat is gone")
	}
	if old.Trust == pipeline.TrustFork {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventRefused,
			"a run that needs an approval and never got one cannot be repeated")
	}
	specs, err := p.c.Store.Specs(ctx, old.ID)
	if err != nil {
		return fmt.Errorf("read what pipeline %s ran: %w", old.ID, err)
	}
	pl := old
	pl.ID, pl.Trigger, pl.Workflows, pl.Note = pipeline.ID(p.c.IDs.Next()), t, nil, ""
	pl.CreatedAt = p.c.Clock.Now()
	wanted := repeated(old.Workflows, t.Only)
	for _, w := range old.Workflows {
		if !wanted[w.Name] || len(specs[w.Name]) == 0 {
			continue
		}
		row := pipeline.Workflow{
			Pipeline: pl.ID, Name: w.Name, File: w.File, Spec: specs[w.Name], Digest: w.Digest, Rules: w.Rules,
			Engine: w.Engine, Labels: w.Labels, Status: pipeline.Waiting, CreatedAt: pl.CreatedAt,
		}
		if len(w.Rules.WaitsFor) == 0 && w.Status == pipeline.Skipped {
			// It was skipped for what the trigger and the files say, which are the same now.
			row.Status, row.Reason = w.Status, w.Reason
		}
		pl.Workflows = append(pl.Workflows, row)
	}
	if len(pl.Workflows) == 0 {
		return p.c.Store.SettleEvent(ctx, e.ID, store.EventNoMatch, "none of the workflows asked for can be repeated")
	}
	_, err = p.c.Store.Enqueue(ctx, store.Plan{Event: e.ID, Pipeline: pl, Admit: admit(pl)})
	return err
}
