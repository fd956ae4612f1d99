package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/rbac"
)

// Config configures a store.
type Config struct {
	// Path is the database file. Its folder is made (0700) when missing; the file is created with mode 0600.
	Path  string
	Clock clock.Clock
	Log   *slog.Logger
	// Admission, Owner and Admins are the configured policy; roles that the configuration no longer names go.
	Admission rbac.Admission
	Owner     string
	Admins    []string
	// AuditKey keys the audit trail's hash chain; it should live outside the database. Empty still chains.
	AuditKey []byte
	// LeaseMargin is how long after its end a lease is left alone; 0 is 5 s.
	LeaseMargin time.Duration
	// HoldFor is how long a workflow may wait for an approval (0: 72 h), WaitFor for a runner (0: 24 h).
	HoldFor, WaitFor time.Duration
	// MaxAttempts bounds the executions of one workflow; 0 is 3.
	MaxAttempts int
	// Committed, if set, is told of each commit: how many writes it held and how long it took.
	Committed func(writes int, took time.Duration)
}

type Store struct{}

var errX = errors.ErrUnsupported

func Open(ctx context.Context, c Config) (*Store, error) { return nil, errX }
func (s *Store) Close() error                            { return errX }
func (s *Store) Ping(ctx context.Context) error          { return errX }

func (s *Store) Cursor(ctx context.Context, source, host, protocol string) (Cursor, bool, error) {
	return Cursor{}, false, errX
}
func (s *Store) SaveCursor(ctx context.Context, c Cursor) error             { return errX }
func (s *Store) Accept(ctx context.Context, e Effects) (Accepted, error)    { return Accepted{}, errX }
func (s *Store) NextEvents(ctx context.Context, limit int) ([]Event, error) { return nil, errX }
func (s *Store) PostponeEvent(ctx context.Context, id int64, reason string, until time.Time) error {
	return errX
}
func (s *Store) SettleEvent(ctx context.Context, id int64, state EventState, reason string) error {
	return errX
}
func (s *Store) EventByKey(ctx context.Context, key string) (EventView, bool, error) {
	return EventView{}, false, errX
}
func (s *Store) Repo(ctx context.Context, did string) (RepoBinding, bool, error) {
	return RepoBinding{}, false, errX
}
func (s *Store) Repos(ctx context.Context) ([]RepoBinding, error) { return nil, errX }
func (s *Store) Record(ctx context.Context, did, collection, rkey string) (Record, bool, error) {
	return Record{}, false, errX
}
func (s *Store) DueRechecks(ctx context.Context, limit int) ([]Recheck, error) { return nil, errX }
func (s *Store) PostponeRecheck(ctx context.Context, r Recheck, reason string, until time.Time) error {
	return errX
}
func (s *Store) CountRechecks(ctx context.Context) (int, error) { return 0, errX }
func (s *Store) Gate(ctx context.Context) (*rbac.Gate, error)   { return nil, errX }

func (s *Store) Enqueue(ctx context.Context, p Plan) (pipeline.Pipeline, error) {
	return pipeline.Pipeline{}, errX
}
func (s *Store) Claim(ctx context.Context, r ClaimRequest) (*Claimed, error) { return nil, errX }
func (s *Store) Renew(ctx context.Context, l pipeline.Lease, ttl time.Duration) (cancelBy string, until time.Time, err error) {
	return "", time.Time{}, errX
}
func (s *Store) Apply(ctx context.Context, id pipeline.ID, workflow string, f pipeline.Fact) (pipeline.Workflow, error) {
	return pipeline.Workflow{}, errX
}
func (s *Store) StartStep(ctx context.Context, l pipeline.Lease, st pipeline.Step) error { return errX }
func (s *Store) EndStep(ctx context.Context, l pipeline.Lease, st pipeline.Step) error   { return errX }
func (s *Store) MarkReleased(ctx context.Context, l pipeline.Lease) error                { return errX }
func (s *Store) Recover(ctx context.Context, holderPrefix string) (requeued, failed []pipeline.Lease, err error) {
	return nil, nil, errX
}
func (s *Store) Expired(ctx context.Context) (Swept, error) { return Swept{}, errX }

func (s *Store) Cancel(ctx context.Context, id pipeline.ID, workflows []string, by, reason string, as pipeline.Status) (int, error) {
	return 0, errX
}
func (s *Store) Approve(ctx context.Context, id pipeline.ID, by string, admit func(*rbac.Gate, pipeline.Pipeline) rbac.Decision) error {
	return errX
}
func (s *Store) Ban(ctx context.Context, did, by string) error      { return errX }
func (s *Store) Unban(ctx context.Context, did, by string) error    { return errX }
func (s *Store) Allow(ctx context.Context, did, by string) error    { return errX }
func (s *Store) Disallow(ctx context.Context, did, by string) error { return errX }

func (s *Store) Pipelines(ctx context.Context, q Query) ([]pipeline.Pipeline, int, error) {
	return nil, 0, errX
}
func (s *Store) Pipeline(ctx context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error) {
	return pipeline.Pipeline{}, false, errX
}
func (s *Store) Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error) {
	return nil, errX
}
func (s *Store) LastChange(ctx context.Context) (int64, error) { return 0, errX }
func (s *Store) Changed() <-chan struct{}                      { return nil }
func (s *Store) Stats(ctx context.Context) (Stats, error)      { return Stats{}, errX }

func (s *Store) OwnerEpoch(ctx context.Context, repo string) (owner string, epoch int64, err error) {
	return "", 0, errX
}
func (s *Store) PutSecret(ctx context.Context, x SealedSecret) error { return errX }
func (s *Store) ListSecrets(ctx context.Context, repo string) ([]SealedSecret, error) {
	return nil, errX
}
func (s *Store) DeleteSecret(ctx context.Context, repo, name, by string) error      { return errX }
func (s *Store) SecretsOf(ctx context.Context, repo string) ([]SealedSecret, error) { return nil, errX }

func (s *Store) UseToken(ctx context.Context, iss, jti string, exp time.Time) (fresh bool, err error) {
	return false, errX
}
func (s *Store) Audit(ctx context.Context, r AuditRow) error                  { return errX }
func (s *Store) AuditTail(ctx context.Context, limit int) ([]AuditRow, error) { return nil, errX }
func (s *Store) AuditVerify(ctx context.Context) error                        { return errX }
