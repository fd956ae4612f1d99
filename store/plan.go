package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"spindle/pipeline"
	"spindle/rbac"
)

// Bounds of a plan.
const (
	maxWorkflows = 1000
	maxSpec      = 1 << 20
)

// CodeGone refuses work for a repository that is not, or no longer, bound here.
const CodeGone = "RepositoryGone"

// Enqueue turns an event into its pipeline in one transaction: the repository must be bound to the same owner,
// not gone and served by the policy as of this transaction, and p.Admit must agree. Otherwise the event is
// settled as refused (or gone) with the reason, and the error is a *Refusal. An event that has its pipeline
// already gives that one back.
//
// A push to a branch also ends what still waits from older pushes to that branch, as superseded; a round of a pull
// request does so with older rounds. A retry does not.
func (s *Store) Enqueue(ctx context.Context, p Plan) (pipeline.Pipeline, error) {
	if err := checkPlan(p.Pipeline); err != nil {
		return pipeline.Pipeline{}, fmt.Errorf("store: enqueue: %w", err)
	}
	type outcome struct {
		p       pipeline.Pipeline
		refusal *Refusal
	}
	o, err := value(ctx, s, "enqueue "+string(p.Pipeline.ID), func(t *tx) (o outcome, err error) {
		o.p, o.refusal, err = t.enqueue(p)
		return o, err
	})
	if err == nil && o.refusal != nil {
		return pipeline.Pipeline{}, o.refusal
	}
	return o.p, err
}

func checkPlan(p pipeline.Pipeline) error {
	switch {
	case p.ID == "":
		return errors.New("the pipeline has no id")
	case !p.Trust.Valid():
		return fmt.Errorf("trust %d does not exist", p.Trust)
	case len(p.Workflows) > maxWorkflows:
		return fmt.Errorf("%w: %d workflows", ErrTooLarge, len(p.Workflows))
	}
	names := map[string]bool{}
	for _, w := range p.Workflows {
		switch w.Status {
		case pipeline.Waiting, pipeline.Held, pipeline.Invalid, pipeline.Skipped, pipeline.Refused:
		default:
			return fmt.Errorf("workflow %q cannot be born %s", w.Name, w.Status)
		}
		if w.Name == "" || names[w.Name] {
			return fmt.Errorf("workflow name %q is empty or taken", w.Name)
		}
		if len(w.Spec) > maxSpec {
			return fmt.Errorf("%w: the spec of %q has %d bytes", ErrTooLarge, w.Name, len(w.Spec))
		}
		names[w.Name] = true
	}
	return checkOrder(p.Workflows)
}

func (t *tx) enqueue(plan Plan) (pipeline.Pipeline, *Refusal, error) {
	p := plan.Pipeline
	var state EventState
	var had pipeline.ID
	var body, reason string
	var sum []byte
	known, err := t.get("SELECT state, pipeline, body, sum, reason FROM events WHERE id = ?", []any{plan.Event}, &state, &had, &body, &sum, &reason)
	switch {
	case err != nil:
		return p, nil, err
	case !known:
		return p, nil, fmt.Errorf("event %d: %w", plan.Event, ErrNotFound)
	case had != "":
		p, err := t.pipeline(had, true)
		return p, nil, err
	case state != EventPending:
		return p, nil, fmt.Errorf("%w: event %d is %s: %s", ErrConflict, plan.Event, state, reason)
	}
	// What was accepted is what runs, whatever the planner hands back.
	if p.Trigger, err = trigger(body, sum); err != nil {
		return p, nil, err
	}
	if p.Repo != p.Trigger.Repo {
		return p, nil, fmt.Errorf("%w: planned for %s, accepted for %s", ErrConflict, p.Repo, p.Trigger.Repo)
	}
	d, state, err := t.admit(p, plan.Admit)
	if err != nil {
		return p, nil, err
	}
	if !d.Allowed {
		return p, &Refusal{d}, t.settleEvent(plan.Event, state, d.Sentence, "")
	}
	if err := t.putPipeline(plan.Event, &p); err != nil {
		return p, nil, err
	}
	if err := t.settleEvent(plan.Event, EventDone, "", p.ID); err != nil {
		return p, nil, err
	}
	switch {
	case p.Trigger.RetryOf != "":
	case p.Trigger.Kind == pipeline.Push && p.Trigger.RefType() == "branch":
		err = t.supersede(p)
	case p.Trigger.Pull != nil && proposes(p.Trigger.Pull.Action):
		err = t.supersedeRounds(p, plan.Event)
	}
	return p, nil, err
}

// admit is the one gate in front of every pipeline row.
func (t *tx) admit(p pipeline.Pipeline, also func(*rbac.Gate) rbac.Decision) (rbac.Decision, EventState, error) {
	var gone bool
	var why string
	bound, err := t.get("SELECT gone, gone_reason FROM repos WHERE did = ?", []any{p.Repo}, &gone, &why)
	if err != nil {
		return rbac.Decision{}, "", err
	}
	if !bound || gone {
		return rbac.Decision{Code: CodeGone, Sentence: goneSentence(p.Repo, why)}, EventGone, nil
	}
	g, err := t.gate()
	if err != nil {
		return rbac.Decision{}, "", err
	}
	d := g.Admit(rbac.Repo{DID: p.Repo, Owner: p.Owner})
	if d.Allowed && also != nil {
		d = also(g)
	}
	return d, EventRefused, nil
}

func (t *tx) putPipeline(event int64, p *pipeline.Pipeline) error {
	body, err := json.Marshal(p.Trigger)
	if err != nil {
		return err
	}
	statuses := make([]pipeline.Status, len(p.Workflows))
	for i, w := range p.Workflows {
		statuses[i] = w.Born(0, t.now).Status
	}
	p.CreatedAt, p.FinishedAt, p.ApprovedBy = t.now, zero, ""
	if p.Status = pipeline.Summarize(statuses); p.Status.Terminal() {
		p.FinishedAt = t.now
	}
	err = t.exec1(`INSERT INTO pipelines (id, event, repo, owner, kind, ref, sha, body, trust, repo_name, knot, default_branch, title,
		status, note, approved_by, created_at, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?)`,
		string(p.ID), event, p.Repo, p.Owner, string(p.Trigger.Kind), p.Trigger.Ref, p.Trigger.Commit, string(body), int(p.Trust), p.RepoName,
		p.Knot, p.DefaultBranch, p.Title, string(p.Status), clip(p.Note), micros(p.CreatedAt), micros(p.FinishedAt))
	if err != nil {
		return err
	}
	if err := t.change(p.ID, p.Repo, "", -1, p.Status, p.Note, 0); err != nil {
		return err
	}
	for i := range p.Workflows {
		if err := t.putWorkflow(p, i); err != nil {
			return fmt.Errorf("workflow %q: %w", p.Workflows[i].Name, err)
		}
	}
	return t.order(p)
}

func (t *tx) putWorkflow(p *pipeline.Pipeline, i int) error {
	w := &p.Workflows[i]
	w.Pipeline, w.CreatedAt = p.ID, t.now
	w.Attempt, w.Epoch, w.CancelBy = 0, 0, ""
	w.ReadyAt, w.StartedAt, w.FinishedAt, w.LeaseUntil = zero, zero, zero, zero
	why := w.Reason
	if *w = w.Born(t.s.c.HoldFor, t.now); w.Reason == "" {
		w.Reason = why
	}
	if w.Status.Terminal() {
		w.FinishedAt = t.now
	}
	rules, err := encodeRules(w.Rules)
	if err != nil {
		return err
	}
	labels, err := json.Marshal(append([]string{}, w.Labels...))
	if err != nil {
		return err
	}
	if w.Spec == nil {
		w.Spec = []byte{}
	}
	sum := sha256.Sum256(w.Spec)
	err = t.exec1(`INSERT INTO workflows (pipeline, name, position, repo, owner, file, spec, spec_sum, digest, engine, labels, status, reason,
		attempt, epoch, holder, released, lease_until, cancel_by, exit_code, created_at, ready_at, started_at, finished_at, rules, grp, gate, held_until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '', 0, 0, '', ?, ?, ?, 0, ?, ?, ?, ?, ?)`,
		string(p.ID), w.Name, i, p.Repo, p.Owner, w.File, w.Spec, sum[:], w.Digest, w.Engine, string(labels), string(w.Status), clip(w.Reason),
		w.ExitCode, micros(w.CreatedAt), micros(w.ReadyAt), micros(w.FinishedAt), rules, w.Rules.Group, string(w.Gate), micros(w.HeldUntil))
	if err != nil {
		return err
	}
	return t.change(p.ID, p.Repo, w.Name, -1, w.Status, w.Reason, w.ExitCode)
}

// supersede ends what waits of older pushes to the branch of p, where nothing has started yet.
func (t *tx) supersede(p pipeline.Pipeline) error {
	ws, err := t.refs(`SELECT w.pipeline, w.name FROM pipelines p JOIN workflows w ON w.pipeline = p.id
		WHERE p.repo = ? AND p.ref = ? AND p.status IN ('waiting', 'held') AND p.kind = 'push' AND p.id <> ?
		AND w.status IN ('waiting', 'held')
		AND NOT EXISTS (SELECT 1 FROM workflows s WHERE s.pipeline = p.id AND s.started_at > 0)`, p.Repo, p.Trigger.Ref, string(p.ID))
	if err != nil {
		return err
	}
	return t.cancelAll(ws, pipeline.CancelAsked{By: "spindle", As: pipeline.Superseded,
		Reason: fmt.Sprintf("a newer push to %s started pipeline %s", p.Trigger.RefName(), p.ID)})
}
