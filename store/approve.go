package store

import (
	"context"
	"fmt"
	"slices"

	"spindle/pipeline"
	"spindle/rbac"
)

// CodeOwnerOnly refuses the approval of a workflow whose file asks for the repository's owner.
const CodeOwnerOnly = "OwnerOnly"

// Approve lets held workflows of this very pipeline pass the gate that they are held at: those named by only, or all
// that by may let pass. The repository must still be served and admit must agree, both by the policy as of this
// transaction. Code from outside needs somebody else than the account that started the run; what a file asks an
// approval for needs whom it names. Otherwise the error is a *Refusal. ErrNotBlocked: nothing of it is held.
//
// Each approval is kept with the head commit and the digest of the definition that it is for, and counts once: a
// repetition of the run is held again. For code from outside, trust rises from fork to approved, never further.
func (s *Store) Approve(ctx context.Context, id pipeline.ID, by string, only []string, admit func(*rbac.Gate, pipeline.Pipeline) rbac.Decision) error {
	return s.write(ctx, "approve "+string(id), func(t *tx) error {
		p, err := t.pipeline(id, true)
		if err != nil {
			return err
		}
		held, err := t.held(p, only)
		if err != nil {
			return err
		}
		var may []pipeline.Workflow
		var d rbac.Decision
		for _, w := range held {
			if x := mayApprove(p, w, by); x.Allowed {
				may = append(may, w)
			} else {
				d = x
			}
		}
		if len(may) == 0 || len(only) > 0 && len(may) < len(held) {
			return &Refusal{d}
		}
		d, _, err = t.admit(p, func(g *rbac.Gate) rbac.Decision {
			if admit != nil {
				return admit(g, p)
			}
			return g.May(by, rbac.Approve, rbac.Repo{DID: p.Repo, Owner: p.Owner})
		})
		if err != nil {
			return err
		}
		if !d.Allowed {
			return &Refusal{d}
		}
		return t.approve(p, may, by)
	})
}

// held lists the workflows of p among only, or all, that wait for an approval that can still be given.
func (t *tx) held(p pipeline.Pipeline, only []string) ([]pipeline.Workflow, error) {
	for _, name := range only {
		if !slices.ContainsFunc(p.Workflows, func(w pipeline.Workflow) bool { return w.Name == name }) {
			return nil, fmt.Errorf("workflow %q: %w", name, ErrNotFound)
		}
	}
	var held []pipeline.Workflow
	for _, w := range p.Workflows {
		if w.Status == pipeline.Held && !t.now.After(w.HeldUntil) && (len(only) == 0 || slices.Contains(only, w.Name)) {
			held = append(held, w)
		}
	}
	if len(held) == 0 {
		return nil, ErrNotBlocked
	}
	return held, nil
}

// mayApprove decides whether by, who may approve runs of the repository, may let w pass.
func mayApprove(p pipeline.Pipeline, w pipeline.Workflow, by string) rbac.Decision {
	a := w.Rules.Approval
	file := w.Gate == pipeline.GateApproval && a != nil
	switch {
	case by == p.Trigger.Actor && (!file || a.OthersOnly):
		return rbac.Decision{Code: CodeSelfApproval, Sentence: by +
			" started this run and so cannot approve it; the repository's owner or another collaborator can"}
	case file && a.OwnerOnly && by != p.Owner:
		return rbac.Decision{Code: CodeOwnerOnly, Sentence: fmt.Sprintf("the file of %s asks for the approval of the repository's owner, %s", w.Name, p.Owner)}
	}
	return rbac.Decision{Allowed: true}
}

// approve writes down that by approves ws, and lets them pass.
func (t *tx) approve(p pipeline.Pipeline, ws []pipeline.Workflow, by string) error {
	digest := definitions(p.Workflows)
	head := p.Trigger.Commit
	if p.Trigger.Pull != nil {
		head = p.Trigger.Pull.Head
	}
	outside := slices.ContainsFunc(ws, func(w pipeline.Workflow) bool { return w.Gate == pipeline.GateTrust })
	if outside {
		// The rest of the run may have been approved before; the first approval stands for the run.
		if _, err := t.exec(`INSERT INTO approvals (pipeline, repo, source_repo, head, digest, approver, at) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (pipeline) DO NOTHING`, string(p.ID), p.Repo, p.Trigger.CodeRepo(), head, digest, by, micros(t.now)); err != nil {
			return err
		}
		if err := t.exec1("UPDATE pipelines SET approved_by = ?, trust = max(trust, ?) WHERE id = ?",
			by, int(pipeline.TrustApproved), string(p.ID)); err != nil {
			return err
		}
	}
	for _, x := range ws {
		w, err := t.workflow(ref{p.ID, x.Name})
		if err != nil {
			return err
		}
		if w.Gate == pipeline.GateApproval {
			if err := t.exec1("INSERT INTO workflow_approvals (pipeline, workflow, head, digest, approver, at) VALUES (?, ?, ?, ?, ?, ?)",
				string(p.ID), w.Name, head, w.Digest, by, micros(t.now)); err != nil {
				return err
			}
			if err := t.audit(by, "workflow.approve", string(p.ID)+"/"+w.Name, "head "+head+" definition "+w.Digest); err != nil {
				return err
			}
		}
		w, err = t.apply(w, pipeline.Approved{By: by, Hold: t.s.c.HoldFor})
		if err != nil {
			return err
		}
		if w.Gate == pipeline.GateNeeds { // what it needs may have ended while it was held
			if _, err := t.decide(w); err != nil {
				return err
			}
		}
	}
	if !outside {
		return nil
	}
	return t.audit(by, "pipeline.approve", string(p.ID), "head "+head+" definitions "+digest)
}
