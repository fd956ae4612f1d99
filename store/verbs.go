package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"spindle/pipeline"
	"spindle/rbac"
)

// CodeSelfApproval refuses an approval by the account that started the run.
const CodeSelfApproval = "SelfApproval"

// Cancel asks for the end of the named workflows of a pipeline, or of all for nil: what waits ends at once as
// as (Cancelled, Superseded, Refused or Expired), what runs is told with the renewal of its lease. It tells
// how many workflows it reached; those that have ended are not among them.
func (s *Store) Cancel(ctx context.Context, id pipeline.ID, workflows []string, by, reason string, as pipeline.Status) (int, error) {
	return value(ctx, s, "cancel "+string(id), func(t *tx) (int, error) {
		p, err := t.pipeline(id, true)
		if err != nil {
			return 0, err
		}
		var rs []ref
		for _, w := range p.Workflows {
			if !w.Status.Terminal() && w.CancelBy == "" && (workflows == nil || slices.Contains(workflows, w.Name)) {
				rs = append(rs, ref{id, w.Name})
			}
		}
		for _, name := range workflows {
			if !slices.ContainsFunc(p.Workflows, func(w pipeline.Workflow) bool { return w.Name == name }) {
				return 0, fmt.Errorf("workflow %q: %w", name, ErrNotFound)
			}
		}
		if len(rs) == 0 {
			return 0, nil
		}
		if err := t.cancelAll(rs, pipeline.CancelAsked{By: by, Reason: reason, As: as}); err != nil {
			return 0, err
		}
		return len(rs), t.audit(by, "pipeline.cancel", string(id), reason)
	})
}

func (t *tx) cancelAll(rs []ref, f pipeline.CancelAsked) error {
	for _, r := range rs {
		w, err := t.workflow(r)
		if err != nil {
			return err
		}
		if _, err := t.apply(w, f); err != nil {
			return err
		}
	}
	return nil
}

// Approve lets the held workflows of this very pipeline start. The repository must still be served, admit must
// agree, both by the policy as of this transaction, and by must not be the account that started the run;
// otherwise the error is a *Refusal. ErrNotBlocked: nothing is held. The approval is kept with the head
// commit and a digest of the workflow definitions that it covers. Trust rises from fork to approved, never further.
func (s *Store) Approve(ctx context.Context, id pipeline.ID, by string, admit func(*rbac.Gate, pipeline.Pipeline) rbac.Decision) error {
	return s.write(ctx, "approve "+string(id), func(t *tx) error {
		p, err := t.pipeline(id, true)
		if err != nil {
			return err
		}
		var held []ref
		for _, w := range p.Workflows {
			if w.Status == pipeline.Held {
				held = append(held, ref{id, w.Name})
			}
		}
		if len(held) == 0 {
			return ErrNotBlocked
		}
		if by == p.Trigger.Actor {
			return &Refusal{rbac.Decision{Code: CodeSelfApproval, Sentence: by +
				" started this run and so cannot approve it; the repository's owner or another collaborator can"}}
		}
		d, _, err := t.admit(p, func(g *rbac.Gate) rbac.Decision {
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
		digest := definitions(p.Workflows)
		head := p.Trigger.Commit
		if p.Trigger.Pull != nil {
			head = p.Trigger.Pull.Head
		}
		if err := t.exec1("INSERT INTO approvals (pipeline, repo, source_repo, head, digest, approver, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			string(id), p.Repo, p.Trigger.CodeRepo(), head, digest, by, micros(t.now)); err != nil {
			return err
		}
		if err := t.exec1("UPDATE pipelines SET approved_by = ?, trust = max(trust, ?) WHERE id = ?",
			by, int(pipeline.TrustApproved), string(id)); err != nil {
			return err
		}
		for _, r := range held {
			w, err := t.workflow(r)
			if err != nil {
				return err
			}
			if _, err := t.apply(w, pipeline.Approved{By: by}); err != nil {
				return err
			}
		}
		return t.audit(by, "pipeline.approve", string(id), "head "+head+" definitions "+digest)
	})
}

// definitions digests the workflow definitions of a run, in hex.
func definitions(ws []pipeline.Workflow) string {
	lines := make([]string, len(ws))
	for i, w := range ws {
		lines[i] = fmt.Sprintf("%q %q %q\n", w.Name, w.File, w.Digest)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}
