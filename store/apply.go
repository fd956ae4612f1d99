package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"spindle/pipeline"
)

var zero time.Time

// workflow is a workflow row with what the product's words do not show.
type workflow struct {
	pipeline.Workflow
	repo, owner, holder string
	released            bool
}

func (w workflow) lease() pipeline.Lease {
	return pipeline.Lease{Pipeline: w.Pipeline, Workflow: w.Name, Attempt: w.Attempt, Epoch: w.Epoch, Holder: w.holder, Until: w.LeaseUntil}
}

const workflowColumns = `pipeline, name, file, digest, engine, labels, status, reason, attempt, epoch, lease_until, cancel_by,
	exit_code, created_at, ready_at, started_at, finished_at, repo, owner, holder, released, rules, gate, held_until`

func scanWorkflow(scan func(...any) error) (w workflow, err error) {
	var labels, rules string
	var lease, created, ready, started, finished, held int64
	err = scan(&w.Pipeline, &w.Name, &w.File, &w.Digest, &w.Engine, &labels, &w.Status, &w.Reason, &w.Attempt, &w.Epoch, &lease,
		&w.CancelBy, &w.ExitCode, &created, &ready, &started, &finished, &w.repo, &w.owner, &w.holder, &w.released,
		&rules, &w.Gate, &held)
	if err != nil {
		return w, err
	}
	w.LeaseUntil, w.CreatedAt, w.ReadyAt = fromMicros(lease), fromMicros(created), fromMicros(ready)
	w.StartedAt, w.FinishedAt, w.HeldUntil = fromMicros(started), fromMicros(finished), fromMicros(held)
	if rules != "" {
		if err := json.Unmarshal([]byte(rules), &w.Rules); err != nil {
			return w, fmt.Errorf("%w: rules of workflow %s/%s", ErrCorrupt, w.Pipeline, w.Name)
		}
	}
	if err := json.Unmarshal([]byte(labels), &w.Labels); err != nil {
		return w, fmt.Errorf("%w: labels of workflow %s/%s", ErrCorrupt, w.Pipeline, w.Name)
	}
	return w, nil
}

// ref names a workflow.
type ref struct {
	pipeline pipeline.ID
	workflow string
}

// refs reads the workflows that q selects.
func (t *tx) refs(q string, args ...any) ([]ref, error) {
	rows, err := t.query(q, args...)
	return collect(rows, err, "select workflows", func(scan func(...any) error) (r ref, err error) {
		return r, scan(&r.pipeline, &r.workflow)
	})
}

func (t *tx) workflow(r ref) (workflow, error) {
	rows, err := t.query("SELECT "+workflowColumns+" FROM workflows WHERE pipeline = ? AND name = ?", string(r.pipeline), r.workflow)
	ws, err := collect(rows, err, "read a workflow", scanWorkflow)
	if err == nil && len(ws) == 0 {
		err = fmt.Errorf("workflow %s/%s: %w", r.pipeline, r.workflow, ErrNotFound)
	}
	if err != nil {
		return workflow{}, err
	}
	return ws[0], nil
}

// Apply applies a fact to a workflow, in one transaction with its attempt row, its steps, the pipeline's
// status and the change numbers. ErrStale is a fact of an attempt that no longer holds the lease.
func (s *Store) Apply(ctx context.Context, id pipeline.ID, name string, f pipeline.Fact) (pipeline.Workflow, error) {
	if _, ok := f.(pipeline.Approved); ok {
		return pipeline.Workflow{}, fmt.Errorf("%w: an approval goes through Approve", ErrConflict)
	}
	if _, ok := f.(pipeline.Leased); ok {
		return pipeline.Workflow{}, fmt.Errorf("%w: a lease goes through Claim", ErrConflict)
	}
	return value(ctx, s, "apply to "+string(id)+"/"+name, func(t *tx) (pipeline.Workflow, error) {
		w, err := t.workflow(ref{id, name})
		if err != nil {
			return pipeline.Workflow{}, err
		}
		if f, err = t.settled(w, f); err != nil {
			return pipeline.Workflow{}, err
		}
		w, err = t.apply(w, f)
		return w.Workflow, err
	})
}

// apply is the only place that changes a workflow's status.
func (t *tx) apply(before workflow, f pipeline.Fact) (workflow, error) {
	after := before
	var err error
	if after.Workflow, err = pipeline.Apply(before.Workflow, f, t.now); err != nil {
		return before, err
	}
	after.Reason = clip(after.Reason)
	if l, ok := f.(pipeline.Leased); ok {
		after.holder, after.released = l.Holder, false
	}
	err = t.exec1(`UPDATE workflows SET status = ?, reason = ?, attempt = ?, epoch = ?, holder = ?, released = ?, lease_until = ?,
		cancel_by = ?, exit_code = ?, ready_at = ?, started_at = ?, finished_at = ?, gate = ?, held_until = ? WHERE pipeline = ? AND name = ? AND epoch = ? AND status = ?`,
		string(after.Status), after.Reason, after.Attempt, after.Epoch, after.holder, after.released, micros(after.LeaseUntil), after.CancelBy,
		after.ExitCode, micros(after.ReadyAt), micros(after.StartedAt), micros(after.FinishedAt),
		string(after.Gate), micros(after.HeldUntil), string(after.Pipeline), after.Name, before.Epoch, string(before.Status))
	if err != nil {
		return before, err
	}
	switch {
	case after.Attempt > before.Attempt:
		err = t.exec1(`INSERT INTO attempts (pipeline, workflow, attempt, epoch, holder, released, started_at, ended_at, outcome, exit_code)
			VALUES (?, ?, ?, ?, ?, 0, ?, 0, '', 0)`,
			string(after.Pipeline), after.Name, after.Attempt, after.Epoch, after.holder, micros(t.now))
	case before.Status.Active() && !after.Status.Active():
		err = t.endAttempt(after, f)
	}
	if err != nil {
		return before, err
	}
	if after.Status != before.Status || after.Reason != before.Reason || after.CancelBy != before.CancelBy {
		if err := t.change(after.Pipeline, after.repo, after.Name, -1, after.Status, after.Reason, after.ExitCode); err != nil {
			return before, err
		}
	}
	if err := t.ordered(before, &after); err != nil {
		return before, err
	}
	if after.Status != before.Status {
		err = t.sumUp(after.Pipeline, after.repo)
	}
	return after, err
}

// endAttempt closes the attempt row and the steps that it leaves open, after f ended the attempt.
func (t *tx) endAttempt(w workflow, f pipeline.Fact) error {
	outcome, exit := w.Status, w.ExitCode
	if !outcome.Terminal() { // it waits again
		outcome = pipeline.Error
		if f, ok := f.(pipeline.Finished); ok {
			outcome, exit = f.Status, f.ExitCode
		}
	}
	err := t.exec1("UPDATE attempts SET ended_at = ?, outcome = ?, exit_code = ?, reason = ? WHERE pipeline = ? AND workflow = ? AND attempt = ?",
		micros(t.now), string(outcome), exit, w.Reason, string(w.Pipeline), w.Name, w.Attempt)
	if err != nil {
		return err
	}
	rows, err := t.query(`SELECT idx FROM steps WHERE pipeline = ? AND workflow = ? AND attempt = ?
		AND status IN ('waiting', 'preparing', 'running')`, string(w.Pipeline), w.Name, w.Attempt)
	open, err := collect(rows, err, "read open steps", func(scan func(...any) error) (i int, err error) { return i, scan(&i) })
	if err != nil {
		return err
	}
	if outcome == pipeline.Passed { // a passed attempt has no business with open steps; they did not pass
		outcome = pipeline.Skipped
	}
	for _, i := range open {
		err := t.exec1("UPDATE steps SET status = ?, reason = ?, finished_at = ? WHERE pipeline = ? AND workflow = ? AND attempt = ? AND idx = ?",
			string(outcome), w.Reason, micros(t.now), string(w.Pipeline), w.Name, w.Attempt, i)
		if err != nil {
			return err
		}
		if err := t.change(w.Pipeline, w.repo, w.Name, i, outcome, w.Reason, 0); err != nil {
			return err
		}
	}
	return nil
}

// sumUp brings the pipeline's status in line with its workflows.
func (t *tx) sumUp(id pipeline.ID, repo string) error {
	var before pipeline.Status
	var note string
	if _, err := t.get("SELECT status, note FROM pipelines WHERE id = ?", []any{string(id)}, &before, &note); err != nil {
		return err
	}
	rows, err := t.query("SELECT status FROM workflows WHERE pipeline = ?", string(id))
	all, err := collect(rows, err, "read statuses", func(scan func(...any) error) (s pipeline.Status, err error) { return s, scan(&s) })
	if err != nil {
		return err
	}
	after := pipeline.Summarize(all)
	if after == before {
		return nil
	}
	finished := zero
	if after.Terminal() {
		finished = t.now
	}
	if err := t.exec1("UPDATE pipelines SET status = ?, finished_at = ? WHERE id = ?", string(after), micros(finished), string(id)); err != nil {
		return err
	}
	return t.change(id, repo, "", -1, after, note, 0)
}

// StartStep writes the start of a step of the attempt that holds l. The first one makes the workflow running.
func (s *Store) StartStep(ctx context.Context, l pipeline.Lease, st pipeline.Step) error {
	return s.step(ctx, "start", l, st, func(t *tx, w workflow) error {
		if w.Status == pipeline.Preparing {
			if _, err := t.apply(w, pipeline.Began{Epoch: l.Epoch}); err != nil {
				return err
			}
		}
		if st.Status == "" {
			st.Status = pipeline.Running
		}
		// A step that is skipped never began.
		if st.StartedAt.IsZero() && !st.Status.Terminal() {
			st.StartedAt = t.now
		}
		return t.putStep(w, st)
	})
}

// EndStep writes the end of a step of the attempt that holds l. A step that never started may end too.
func (s *Store) EndStep(ctx context.Context, l pipeline.Lease, st pipeline.Step) error {
	if !st.Status.Terminal() {
		return fmt.Errorf("%w: a step cannot end as %q", ErrConflict, st.Status)
	}
	return s.step(ctx, "end", l, st, func(t *tx, w workflow) error {
		var had pipeline.Status
		known, err := t.get("SELECT status FROM steps WHERE pipeline = ? AND workflow = ? AND attempt = ? AND idx = ?",
			[]any{string(w.Pipeline), w.Name, w.Attempt, st.Index}, &had)
		if err != nil {
			return err
		}
		if known && had.Terminal() {
			if had == st.Status {
				return nil
			}
			return fmt.Errorf("%w: the step has ended as %s", ErrConflict, had)
		}
		if st.FinishedAt.IsZero() {
			st.FinishedAt = t.now
		}
		return t.putStep(w, st)
	})
}

func (s *Store) step(ctx context.Context, verb string, l pipeline.Lease, st pipeline.Step, fn func(*tx, workflow) error) error {
	return s.write(ctx, fmt.Sprintf("%s step %d of %s/%s", verb, st.Index, l.Pipeline, l.Workflow), func(t *tx) error {
		w, err := t.leased(l)
		if err != nil {
			return err
		}
		return fn(t, w)
	})
}

// putStep stores a step. A start that comes again does not undo an end.
func (t *tx) putStep(w workflow, st pipeline.Step) error {
	if len(st.Name) > maxKey || len(st.Command) > maxTrigger {
		return fmt.Errorf("%w: the text of step %d", ErrTooLarge, st.Index)
	}
	n, err := t.exec(`INSERT INTO steps (pipeline, workflow, attempt, idx, name, command, kind, status, exit_code, reason, started_at, finished_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (pipeline, workflow, attempt, idx) DO UPDATE SET status = excluded.status, exit_code = excluded.exit_code,
		reason = excluded.reason, finished_at = excluded.finished_at WHERE steps.finished_at = 0`,
		string(w.Pipeline), w.Name, w.Attempt, st.Index, st.Name, st.Command, string(st.Kind), string(st.Status), st.ExitCode, clip(st.Reason),
		micros(st.StartedAt), micros(st.FinishedAt))
	if err != nil || n == 0 {
		return err
	}
	return t.change(w.Pipeline, w.repo, w.Name, st.Index, st.Status, clip(st.Reason), st.ExitCode)
}

// leased reads the workflow of l and refuses a lease that is not the current one.
func (t *tx) leased(l pipeline.Lease) (workflow, error) {
	w, err := t.workflow(ref{l.Pipeline, l.Workflow})
	if err != nil {
		return w, err
	}
	if !w.Status.Active() || w.Epoch != l.Epoch || w.holder != l.Holder {
		return w, fmt.Errorf("%w: epoch %d of %q, now %d and %s", ErrStale, l.Epoch, l.Holder, w.Epoch, w.Status)
	}
	return w, nil
}
