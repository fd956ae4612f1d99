package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"spindle/rbac"
)

// maxBatch bounds how many writes share one commit.
const maxBatch = 256

// writer owns the one connection that writes.
type writer struct {
	s     *Store
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// gate is the gate of the policy version in the open transaction, or nil.
	gate *rbac.Gate

	crash crashes

	queue chan *op
	stop  chan struct{} // closed by close: nothing more is taken in
	done  chan struct{} // closed when the goroutine is gone
	once  sync.Once
}

// op is one queued write.
type op struct {
	ctx  context.Context
	name string
	run  func(*tx) error
	err  error
	done chan struct{} // closed once err stands
}

// tx is one write inside the open transaction.
type tx struct {
	s   *Store
	w   *writer
	now time.Time
	// rings tells that somebody may be waiting for what was written.
	rings bool
	// repoliced tells that the write changed the policy.
	repoliced bool
	policy    int64 // the policy version after the write, if repoliced
	// ending are workflows that are about to be ended by one wish.
	ending map[ref]bool
}

func newWriter(ctx context.Context, s *Store, db *sql.DB) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: open the writer's connection: %w", err)
	}
	w := &writer{
		s: s, db: db, conn: conn, stmts: map[string]*sql.Stmt{},
		queue: make(chan *op, maxBatch), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go w.loop()
	return w, nil
}

// write runs fn in a transaction and returns once it is durable, or failed. When ctx ends first the outcome is
// unknown; every write can be repeated.
func (s *Store) write(ctx context.Context, name string, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	o := &op{ctx: ctx, name: name, run: fn, done: make(chan struct{})}
	select {
	case <-s.w.stop:
		return ErrClosed
	default:
	}
	select {
	case s.w.queue <- o:
	case <-ctx.Done():
		return fmt.Errorf("store: %s: %w", name, ctx.Err())
	case <-s.w.stop:
		return ErrClosed
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return fmt.Errorf("store: %s: %w", name, ctx.Err())
	case <-s.w.done:
		select {
		case <-o.done:
		default:
			return ErrClosed
		}
	}
	if o.err != nil {
		return fmt.Errorf("store: %s: %w", name, damaged(o.err))
	}
	return nil
}

// value is write for a function that returns something.
func value[T any](ctx context.Context, s *Store, name string, fn func(*tx) (T, error)) (T, error) {
	// The result travels apart from the caller's variables: a caller whose context ends no longer waits for it.
	out := new(T)
	err := s.write(ctx, name, func(t *tx) error {
		v, err := fn(t)
		*out = v
		return err
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return *out, nil
}

func (w *writer) loop() {
	defer close(w.done)
	for {
		select {
		case o := <-w.queue:
			w.batch(w.gather(o))
		case <-w.stop:
			for {
				select {
				case o := <-w.queue:
					w.batch(w.gather(o))
				default:
					return
				}
			}
		}
	}
}

// gather takes what is queued behind o without waiting: while one commit syncs, the next batch collects.
func (w *writer) gather(o *op) []*op {
	ops := []*op{o}
	for len(ops) < maxBatch {
		select {
		case o := <-w.queue:
			ops = append(ops, o)
		default:
			return ops
		}
	}
	return ops
}

func (w *writer) batch(ops []*op) {
	began := time.Now() // for a duration only
	txs := make([]*tx, len(ops))
	err := w.raw("BEGIN IMMEDIATE")
	if err == nil {
		for i, o := range ops {
			if o.err = o.ctx.Err(); o.err != nil {
				continue
			}
			txs[i] = &tx{s: w.s, w: w, now: now(w.s.c.Clock)}
			if err = w.one(o, txs[i], len(ops) > 1); err != nil {
				break
			}
		}
		was := w.s.policy.Load()
		if err == nil {
			w.crashes("before", ops)
			// Told before the commit: once its effects can be seen, no gate of the former policy is handed out.
			w.publish(ops, txs)
			err = w.raw("COMMIT")
		}
		if err != nil {
			w.s.policy.Store(was)
			// SQLite may have rolled back by itself; then there is nothing to roll back.
			_ = w.raw("ROLLBACK")
			w.gate = nil
		}
	}
	if err == nil {
		w.crashes("after", ops)
	}
	rings := false
	for i, o := range ops {
		if o.err == nil {
			o.err = err
		}
		if o.err == nil && txs[i] != nil {
			rings = rings || txs[i].rings
		}
		close(o.done)
	}
	if rings {
		w.s.bell.ring()
	}
	if err == nil && w.s.c.Committed != nil {
		w.s.c.Committed(len(ops), time.Since(began))
	}
}

// publish makes the policy of a batch the one that gates are asked for.
func (w *writer) publish(ops []*op, txs []*tx) {
	for i, o := range ops {
		if o.err == nil && txs[i] != nil && txs[i].repoliced {
			w.s.policy.Store(txs[i].policy)
		}
	}
}

// crashes is where the process may be made to die, in a build for that: before a commit, or after it and before anybody
// is answered.
func (w *writer) crashes(when string, ops []*op) {
	if !crashing {
		return
	}
	for _, o := range ops {
		w.crash.at(when, o)
	}
}

// one runs a write inside the open transaction. What it returns is a fault of the transaction as a whole; a
// fault of the write alone stands in o.err, and its effects are rolled back.
func (w *writer) one(o *op, t *tx, shared bool) error {
	if !shared {
		if o.err = o.run(t); o.err != nil {
			w.forget(t)
			return o.err
		}
		return nil
	}
	if err := w.raw("SAVEPOINT one"); err != nil {
		return err
	}
	if o.err = o.run(t); o.err != nil {
		w.forget(t)
		if err := w.raw("ROLLBACK TO one"); err != nil {
			return errors.Join(o.err, err)
		}
	}
	return w.raw("RELEASE one")
}

// forget drops the gate of a policy that is rolled back: its version number will be given again.
func (w *writer) forget(t *tx) {
	if t.repoliced {
		w.gate = nil
	}
}

func (w *writer) raw(q string) error {
	st, err := w.stmt(q)
	if err != nil {
		return err
	}
	_, err = st.ExecContext(context.Background())
	return err
}

// stmt prepares q once for the life of the connection. A context never reaches SQLite here: interrupting one
// write would roll back the writes that share its transaction.
func (w *writer) stmt(q string) (*sql.Stmt, error) {
	if st := w.stmts[q]; st != nil {
		return st, nil
	}
	st, err := w.conn.PrepareContext(context.Background(), q)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", q, err)
	}
	w.stmts[q] = st
	return st, nil
}

func (w *writer) close() error {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	for _, st := range w.stmts {
		_ = st.Close()
	}
	return errors.Join(w.conn.Close(), w.db.Close())
}

func (t *tx) exec(q string, args ...any) (int64, error) {
	st, err := t.w.stmt(q)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// exec1 is exec for a statement that must change exactly one row.
func (t *tx) exec1(q string, args ...any) error {
	n, err := t.exec(q, args...)
	if err == nil && n != 1 {
		err = ErrNotFound
	}
	return err
}

func (t *tx) insert(q string, args ...any) (id int64, err error) {
	st, err := t.w.stmt(q)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

func (t *tx) query(q string, args ...any) (*sql.Rows, error) {
	st, err := t.w.stmt(q)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(context.Background(), args...)
}

// get reads one row and tells whether there is one.
func (t *tx) get(q string, args []any, dest ...any) (bool, error) {
	st, err := t.w.stmt(q)
	if err != nil {
		return false, err
	}
	return found(st.QueryRowContext(context.Background(), args...).Scan(dest...))
}

func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// damaged marks what SQLite itself calls corruption.
func damaged(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && !errors.Is(err, ErrCorrupt) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w; restore a backup", ErrCorrupt, err)
		}
	}
	return err
}

// bell tells any number of waiters that something changed.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

func (b *bell) reset() { b.c = make(chan struct{}) }

func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}

// Changed is closed after the next commit that somebody may be waiting for. Take it before reading and wait on
// it afterwards; then no change is missed.
func (s *Store) Changed() <-chan struct{} { return s.bell.wait() }
