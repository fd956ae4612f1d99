package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the SQLite driver, without cgo

	"spindle/internal/clock"
	"spindle/internal/flock"
	"spindle/rbac"
)

// minSQLite is the first version without the race that could lose committed WAL pages
// (https://sqlite.org/wal.html#walresetbug).
const minSQLite = "3.51.3"

//go:embed migrations/*.sql
var migrations embed.FS

// Config configures a store.
type Config struct {
	// Path is the database file. Its folder is made (0700) when missing; the file is created with mode 0600.
	Path string
	// Clock is where times come from; nil is the machine's clock.
	Clock clock.Clock
	// Log takes what an operator should know; nil drops it.
	Log *slog.Logger
	// Admission is whom the spindle serves; empty is rbac.Closed.
	Admission rbac.Admission
	// Owner is the DID of the spindle's owner (required) and Admins those of its admins. Roles that the
	// configuration no longer names are taken away.
	Owner  string
	Admins []string
	// Members are whom closed admission lets in, Banned whom nothing is done for, accounts and repositories alike.
	// Who is named twice has the role that is named first here: owner, admin, member, banned.
	Members, Banned []string
	// AuditKey keys the audit trail's hash chain and should live outside the database. Empty still chains.
	AuditKey []byte
	// LeaseMargin is how long after its end a lease is left alone, since the holder's clock may differ; 0 is 5 s.
	LeaseMargin time.Duration
	// HoldFor is how long a workflow may wait for an approval (0: 72 h), WaitFor for a runner (0: 24 h).
	HoldFor, WaitFor time.Duration
	// MaxAttempts bounds the executions of one workflow; 0 is 3.
	MaxAttempts int
	// Committed, if set, is told of each commit: how many writes it held and how long it took. It must not block.
	Committed func(writes int, took time.Duration)
}

// Store is an open database. It is safe for concurrent use. Make it with Open.
type Store struct {
	c       Config
	log     *slog.Logger
	lock    *flock.Lock
	w       *writer
	r       *reader
	bell    bell
	policy  atomic.Int64 // version of the policy last committed
	gate    atomic.Pointer[rbac.Gate]
	closing sync.Once
}

// Open opens or creates the database of c. The errors that a person can mend are ErrLocked, ErrNewer and
// ErrCorrupt.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("store: make the folder: %w", err)
	}
	lk, err := flock.Take(c.Path+".lock", now(c.Clock))
	var held *flock.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w: %s is used by %s; stop that one first, or give this one its own database", ErrLocked, c.Path, held.Holder)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{c: c, log: c.Log, lock: lk}
	s.bell.reset()
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(damaged(err), s.shut(), lk.Release())
	}
	return s, nil
}

func (c *Config) complete() error {
	if c.Path == "" {
		return errors.New("store: Path is empty")
	}
	if c.Owner == "" {
		return errors.New("store: Owner is empty")
	}
	abs, err := filepath.Abs(c.Path)
	if err != nil {
		return fmt.Errorf("store: resolve the path: %w", err)
	}
	c.Path = abs
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Admission == "" {
		c.Admission = rbac.Closed
	}
	if c.LeaseMargin == 0 {
		c.LeaseMargin = 5 * time.Second
	}
	if c.HoldFor == 0 {
		c.HoldFor = 72 * time.Hour
	}
	if c.WaitFor == 0 {
		c.WaitFor = 24 * time.Hour
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 3
	}
	if c.LeaseMargin < 0 || c.HoldFor < 0 || c.WaitFor < 0 || c.MaxAttempts < 0 {
		return errors.New("store: a duration or count in the configuration is negative")
	}
	return nil
}

func (s *Store) open(ctx context.Context) error {
	f, err := os.OpenFile(s.c.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("store: create the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("store: create the database: %w", err)
	}
	db, err := sql.Open("sqlite", dsn(s.c.Path, "rw",
		"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "busy_timeout(5000)", "trusted_schema(0)"))
	if err != nil {
		return fmt.Errorf("store: open: %w", err)
	}
	db.SetMaxOpenConns(1)
	if err := prepare(ctx, db); err != nil {
		return errors.Join(err, db.Close())
	}
	s.w, err = newWriter(ctx, s, db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.r, err = newReader(s.c.Path)
	if err != nil {
		return err
	}
	return s.settle(ctx)
}

// prepare checks the file and brings its schema up.
func prepare(ctx context.Context, db *sql.DB) error {
	var have, mode string
	var sync, keys int
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&have); err != nil {
		return fmt.Errorf("store: ask for SQLite's version: %w", err)
	}
	v, err := version.NewVersion(have)
	if err != nil || v.LessThan(version.Must(version.NewVersion(minSQLite))) {
		return fmt.Errorf("store: SQLite is %s, need at least %s; build spindle with a newer modernc.org/sqlite", have, minSQLite)
	}
	for q, dest := range map[string]any{"PRAGMA journal_mode": &mode, "PRAGMA synchronous": &sync, "PRAGMA foreign_keys": &keys} {
		if err := db.QueryRowContext(ctx, q).Scan(dest); err != nil {
			return fmt.Errorf("store: %s: %w", q, err)
		}
	}
	if mode != "wal" || sync != 2 || keys != 1 {
		return fmt.Errorf("store: SQLite runs with journal %s, synchronous %d, foreign keys %d; want wal, 2, 1 (a network file system cannot hold the database)", mode, sync, keys)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("store: migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("store: read the migrations: %w", err)
	}
	at, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("store: read the schema's version: %w", err)
	}
	if at > target {
		return fmt.Errorf("%w: its schema is %d, this binary knows up to %d; install the newer spindle again or restore a backup", ErrNewer, at, target)
	}
	if at > 0 {
		if err := check(ctx, db); err != nil {
			return err
		}
	}
	if at < target {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("store: bring the schema from %d to %d: %w", at, target, err)
		}
	}
	return nil
}

// check reads the whole database once if it was not closed properly, so that damage is found before it is served.
func check(ctx context.Context, db *sql.DB) error {
	var clean int
	if err := db.QueryRowContext(ctx, "SELECT clean FROM state WHERE id = 1").Scan(&clean); err != nil {
		return fmt.Errorf("store: read the state row: %w", err)
	}
	if clean == 1 {
		return nil
	}
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return fmt.Errorf("store: check the database: %w", err)
	}
	if found != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, found)
	}
	var table string
	err := db.QueryRowContext(ctx, `SELECT "table" FROM pragma_foreign_key_check LIMIT 1`).Scan(&table)
	if err == nil {
		return fmt.Errorf("%w: a row of table %s points at nothing", ErrCorrupt, table)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("store: check the references: %w", err)
	}
	return nil
}

// settle brings the configured roles and the policy in line and marks the database as in use.
func (s *Store) settle(ctx context.Context) error {
	return s.write(ctx, "settle at start", func(t *tx) error {
		if err := t.exec1("UPDATE state SET clean = 0 WHERE id = 1"); err != nil {
			return err
		}
		if err := t.configure(s.c); err != nil {
			return err
		}
		if err := t.repairPolicy(); err != nil {
			return err
		}
		if err := t.auditVerify(); err != nil {
			return err
		}
		_, err := t.gate()
		return err
	})
}

// Close finishes what is queued, marks the database as properly closed and releases it.
func (s *Store) Close() error {
	err := ErrClosed
	s.closing.Do(func() {
		// The caller's context has usually ended by now; this write is short and must not be skipped.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = s.write(ctx, "close", func(t *tx) error { return t.exec1("UPDATE state SET clean = 1 WHERE id = 1") })
		err = errors.Join(err, s.shut(), s.lock.Release())
	})
	return err
}

func (s *Store) shut() error {
	var errs []error
	if s.r != nil {
		errs = append(errs, s.r.close())
	}
	if s.w != nil {
		errs = append(errs, s.w.close())
	}
	return errors.Join(errs...)
}

// Ping proves that the database can be written: it commits a row.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, "ping", func(t *tx) error {
		return t.exec1("UPDATE state SET pinged_at = ? WHERE id = 1", micros(t.now))
	})
}

func dsn(path, mode string, pragmas ...string) string {
	u := url.URL{Scheme: "file", Path: path}
	q := url.Values{"mode": {mode}, "_pragma": pragmas}
	u.RawQuery = q.Encode()
	return u.String()
}
