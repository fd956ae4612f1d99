package store

import (
	"context"

	"spindle/pipeline"
)

// change gives the next number to a change of a pipeline, a workflow or a step.
func (t *tx) change(id pipeline.ID, repo, workflow string, step int, s pipeline.Status, reason string, exit int) error {
	t.rings = true
	_, err := t.exec("INSERT INTO changes (pipeline, repo, workflow, step, status, reason, exit_code, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		string(id), repo, workflow, step, string(s), clip(reason), exit, micros(t.now))
	return err
}

// Changes lists changes with a number above after, in order, at most limit.
func (s *Store) Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error) {
	rows, err := s.r.query(ctx, `SELECT number, pipeline, repo, workflow, step, status, reason, exit_code, at FROM changes
		WHERE number > ? ORDER BY number LIMIT ?`, after, limit)
	return collect(rows, err, "read the changes", func(scan func(...any) error) (c pipeline.Change, err error) {
		var at int64
		err = scan(&c.Number, &c.Pipeline, &c.Repo, &c.Workflow, &c.Step, &c.Status, &c.Reason, &c.ExitCode, &at)
		c.At = fromMicros(at)
		return c, err
	})
}

// LastChange is the number of the newest change, 0 when there is none.
func (s *Store) LastChange(ctx context.Context) (n int64, err error) {
	_, err = s.r.get(ctx, "SELECT coalesce(max(number), 0) FROM changes", nil, &n)
	return n, err
}
