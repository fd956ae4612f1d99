package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"spindle/pipeline"
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

// cancelAll asks for the end of all of rs.
func (t *tx) cancelAll(rs []ref, f pipeline.CancelAsked) error {
	_, err := t.cancelEach(rs, f)
	return err
}

// cancelEach is cancelAll that counts. What the end of one of them ends meanwhile is no fault.
func (t *tx) cancelEach(rs []ref, f pipeline.CancelAsked) (n int, err error) {
	// Those that wait for others among rs are to end because of this wish, not because of its effects.
	t.ending = make(map[ref]bool, len(rs))
	for _, r := range rs {
		t.ending[r] = true
	}
	defer func() { t.ending = nil }()
	for _, r := range rs {
		w, err := t.workflow(r)
		if err != nil {
			return n, err
		}
		if w.Status.Terminal() {
			continue
		}
		if _, err := t.apply(w, f); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
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
