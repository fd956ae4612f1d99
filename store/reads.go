package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"spindle/pipeline"
)

// readers bounds the connections that read at a time.
const readers = 8

// reader reads beside the writer, on connections that cannot write.
type reader struct {
	db    *sql.DB
	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func newReader(path string) (*reader, error) {
	db, err := sql.Open("sqlite", dsn(path, "ro", "query_only(1)", "busy_timeout(5000)", "trusted_schema(0)"))
	if err != nil {
		return nil, fmt.Errorf("store: open for reading: %w", err)
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return &reader{db: db, stmts: map[string]*sql.Stmt{}}, nil
}

func (r *reader) stmt(ctx context.Context, q string) (*sql.Stmt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st := r.stmts[q]; st != nil {
		return st, nil
	}
	st, err := r.db.PrepareContext(ctx, q)
	if err != nil {
		return nil, err
	}
	r.stmts[q] = st
	return st, nil
}

func (r *reader) query(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	st, err := r.stmt(ctx, q)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

func (r *reader) get(ctx context.Context, q string, args []any, dest ...any) (bool, error) {
	st, err := r.stmt(ctx, q)
	if err != nil {
		return false, fmt.Errorf("store: read: %w", damaged(err))
	}
	ok, err := found(st.QueryRowContext(ctx, args...).Scan(dest...))
	if err != nil {
		err = fmt.Errorf("store: read: %w", damaged(err))
	}
	return ok, err
}

func (r *reader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range r.stmts {
		_ = st.Close()
	}
	return r.db.Close()
}

// collect reads all rows, closes them, and wraps what went wrong.
func collect[T any](rows *sql.Rows, err error, what string, scan func(func(...any) error) (T, error)) ([]T, error) {
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", what, damaged(err))
	}
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		v, err := scan(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("store: %s: %w", what, damaged(err))
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %s: %w", what, damaged(err))
	}
	return out, nil
}

// querier is what the writer's transaction and the readers' connections have in common.
type querier func(q string, args ...any) (*sql.Rows, error)

const pipelineColumns = `id, repo, owner, body, trust, repo_name, knot, default_branch, title, status, note, approved_by, created_at, finished_at`

func scanPipeline(scan func(...any) error) (p pipeline.Pipeline, err error) {
	var body string
	var created, finished int64
	err = scan(&p.ID, &p.Repo, &p.Owner, &body, &p.Trust, &p.RepoName, &p.Knot, &p.DefaultBranch, &p.Title, &p.Status, &p.Note,
		&p.ApprovedBy, &created, &finished)
	if err != nil {
		return p, err
	}
	p.CreatedAt, p.FinishedAt = fromMicros(created), fromMicros(finished)
	p.Trigger, err = trigger(body, nil)
	return p, err
}

func (t *tx) pipeline(id pipeline.ID, workflows bool) (pipeline.Pipeline, error) {
	ps, err := pipelines(t.query, workflows, "WHERE id = ?", string(id))
	if err == nil && len(ps) == 0 {
		err = fmt.Errorf("pipeline %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return pipeline.Pipeline{}, err
	}
	return ps[0], nil
}

func pipelines(query querier, workflows bool, where string, args ...any) ([]pipeline.Pipeline, error) {
	rows, err := query("SELECT "+pipelineColumns+" FROM pipelines "+where, args...)
	ps, err := collect(rows, err, "read pipelines", scanPipeline)
	if err != nil || !workflows || len(ps) == 0 {
		return ps, err
	}
	at := make(map[pipeline.ID]*pipeline.Pipeline, len(ps))
	ids := make([]pipeline.ID, len(ps))
	for i := range ps {
		at[ps[i].ID], ids[i] = &ps[i], ps[i].ID
	}
	rows, err = query("SELECT "+workflowColumns+` FROM workflows WHERE pipeline IN (SELECT value FROM json_each(?))
		ORDER BY pipeline, position`, list(ids))
	ws, err := collect(rows, err, "read workflows", scanWorkflow)
	for _, w := range ws {
		p := at[w.Pipeline]
		p.Workflows = append(p.Workflows, w.Workflow)
	}
	return ps, err
}

// Pipelines lists what q selects, newest first, with workflows but without steps, and how many there are
// regardless of Limit and Before.
func (s *Store) Pipelines(ctx context.Context, q Query) (ps []pipeline.Pipeline, total int, err error) {
	var where []string
	var args []any
	add := func(cond string, arg any) {
		where = append(where, cond)
		args = append(args, arg)
	}
	if q.Repo != "" {
		add("repo = ?", q.Repo)
	}
	if len(q.Commits) > 0 {
		add("sha IN (SELECT value FROM json_each(?))", list(q.Commits))
	}
	if len(q.Kinds) > 0 {
		add("kind IN (SELECT value FROM json_each(?))", list(q.Kinds))
	}
	if len(q.Statuses) > 0 {
		add("status IN (SELECT value FROM json_each(?))", list(q.Statuses))
	}
	clause := func() string {
		if len(where) == 0 {
			return ""
		}
		return "WHERE " + strings.Join(where, " AND ")
	}
	err = s.snapshot(ctx, func(query querier) error {
		rows, err := query("SELECT count(*) FROM pipelines "+clause(), args...)
		ns, err := collect(rows, err, "count pipelines", func(scan func(...any) error) (n int, err error) { return n, scan(&n) })
		if err != nil {
			return err
		}
		total = ns[0]
		if q.Before != "" {
			add("id < ?", string(q.Before))
		}
		limit := q.Limit
		if limit <= 0 {
			limit = 50
		}
		ps, err = pipelines(query, true, clause()+" ORDER BY id DESC LIMIT ?", append(args, min(limit, 500))...)
		return err
	})
	return ps, total, err
}

// Pipeline is one pipeline with its workflows and the steps of their newest attempts.
func (s *Store) Pipeline(ctx context.Context, id pipeline.ID) (p pipeline.Pipeline, ok bool, err error) {
	err = s.snapshot(ctx, func(query querier) error {
		ps, err := pipelines(query, true, "WHERE id = ?", string(id))
		if err != nil || len(ps) == 0 {
			return err
		}
		p, ok = ps[0], true
		rows, err := query(`SELECT s.workflow, s.idx, s.name, s.command, s.kind, s.status, s.exit_code, s.reason, s.started_at, s.finished_at
			FROM steps s JOIN workflows w ON w.pipeline = s.pipeline AND w.name = s.workflow AND w.attempt = s.attempt
			WHERE s.pipeline = ? ORDER BY s.workflow, s.idx`, string(id))
		type named struct {
			workflow string
			step     pipeline.Step
		}
		steps, err := collect(rows, err, "read steps", func(scan func(...any) error) (n named, err error) {
			var started, finished int64
			st := &n.step
			err = scan(&n.workflow, &st.Index, &st.Name, &st.Command, &st.Kind, &st.Status, &st.ExitCode, &st.Reason, &started, &finished)
			st.StartedAt, st.FinishedAt = fromMicros(started), fromMicros(finished)
			return n, err
		})
		for _, n := range steps {
			for i := range p.Workflows {
				if p.Workflows[i].Name == n.workflow {
					p.Workflows[i].Steps = append(p.Workflows[i].Steps, n.step)
				}
			}
		}
		return err
	})
	return p, ok, err
}

// snapshot runs fn over one state of the database, so that a total and its page, or a workflow and its steps,
// agree.
func (s *Store) snapshot(ctx context.Context, fn func(querier) error) (err error) {
	tx, err := s.r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("store: begin to read: %w", err)
	}
	defer func() {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			err = errors.Join(err, rerr)
		}
	}()
	return fn(func(q string, args ...any) (*sql.Rows, error) { return tx.QueryContext(ctx, q, args...) })
}

const repoColumns = `did, owner, rkey, name, knot, default_branch, spindle, manifest_cid, declaration_cid, generation, verified_at, gone, gone_reason,
	coalesce((SELECT a.status FROM accounts a WHERE a.did IN (repos.owner, repos.did) AND a.status <> 'active' LIMIT 1), '')`

func scanRepo(scan func(...any) error) (b RepoBinding, err error) {
	var at int64
	err = scan(&b.Repo, &b.Owner, &b.Rkey, &b.Name, &b.Knot, &b.DefaultBranch, &b.Spindle, &b.ManifestCID, &b.DeclarationCID, &b.Generation, &at, &b.Gone,
		&b.GoneReason, &b.Paused)
	b.VerifiedAt = fromMicros(at)
	return b, err
}

// Repo is the binding of one repository, also when it is gone.
func (s *Store) Repo(ctx context.Context, did string) (RepoBinding, bool, error) {
	rows, err := s.r.query(ctx, "SELECT "+repoColumns+" FROM repos WHERE did = ?", did)
	bs, err := collect(rows, err, "read repository "+did, scanRepo)
	if err != nil || len(bs) == 0 {
		return RepoBinding{}, false, err
	}
	return bs[0], true, nil
}

// Repos lists every binding by repository, gone ones included.
func (s *Store) Repos(ctx context.Context) ([]RepoBinding, error) {
	rows, err := s.r.query(ctx, "SELECT "+repoColumns+" FROM repos ORDER BY did")
	return collect(rows, err, "read the repositories", scanRepo)
}

// Record is what was last proven of a record; Deleted is a proven absence.
func (s *Store) Record(ctx context.Context, did, collection, rkey string) (Record, bool, error) {
	r := Record{DID: did, Collection: collection, Rkey: rkey}
	ok, err := s.r.get(ctx, "SELECT rev, cid, cbor, deleted FROM records WHERE did = ? AND collection = ? AND rkey = ?",
		[]any{did, collection, rkey}, &r.Rev, &r.CID, &r.CBOR, &r.Deleted)
	if err != nil || !ok {
		return Record{}, false, err
	}
	return r, true, nil
}

// Cursor is how far a source has been read.
func (s *Store) Cursor(ctx context.Context, source, host, protocol string) (Cursor, bool, error) {
	c := Cursor{Source: source, Host: host, Protocol: protocol}
	var at int64
	ok, err := s.r.get(ctx, "SELECT value, updated_at FROM cursors WHERE source = ? AND host = ? AND protocol = ?",
		[]any{source, host, protocol}, &c.Value, &at)
	c.UpdatedAt = fromMicros(at)
	return c, ok, err
}

// Stats are figures of the whole spindle, of one moment.
func (s *Store) Stats(ctx context.Context) (st Stats, err error) {
	day := micros(now(s.c.Clock).Add(-24 * time.Hour))
	var oldest int64
	_, err = s.r.get(ctx, `SELECT
		(SELECT count(*) FROM workflows WHERE status IN ('preparing', 'running')),
		(SELECT count(*) FROM workflows WHERE status = 'waiting'),
		(SELECT count(*) FROM workflows WHERE status = 'held'),
		(SELECT count(*) FROM workflows WHERE finished_at >= ?1 AND finished_at > 0 AND status = 'passed'),
		(SELECT count(*) FROM workflows WHERE finished_at >= ?1 AND finished_at > 0),
		(SELECT coalesce(min(ready_at), 0) FROM workflows WHERE status = 'waiting' AND ready_at > 0),
		(SELECT count(*) FROM events WHERE state = 'pending'),
		(SELECT count(*) FROM rechecks)`, []any{day},
		&st.Running, &st.Waiting, &st.Held, &st.Passed24h, &st.Finished24h, &oldest, &st.PendingEvents, &st.Rechecks)
	st.OldestWaiting = fromMicros(oldest)
	return st, err
}
