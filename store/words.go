package store

import (
	"errors"
	"fmt"
	"time"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/rbac"
	wf "spindle/workflow"
)

// What the store refuses.
var (
	// ErrStale is a write of an attempt that no longer holds the lease.
	ErrStale = pipeline.ErrStale
	// ErrNotFound is a write about something that does not exist.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict is a write that contradicts what is stored, such as a known trigger key with another meaning.
	ErrConflict = errors.New("store: conflict")
	// ErrReplay is a token that was used before.
	ErrReplay = errors.New("store: the token was used before")
	// ErrNotBlocked is an approval of a pipeline in which nothing is held.
	ErrNotBlocked = errors.New("store: nothing in the pipeline waits for an approval")
	// ErrTooLarge is a write above the bounds that the store keeps.
	ErrTooLarge = errors.New("store: too large")
	// ErrLocked is a database in use by another process; the error's text names it.
	ErrLocked = errors.New("store: the database is in use")
	// ErrNewer is a database whose schema this binary does not know.
	ErrNewer = errors.New("store: the database is newer than this binary")
	// ErrCorrupt is a database whose content contradicts itself.
	ErrCorrupt = errors.New("store: the database is damaged")
	// ErrClosed is a call after Close.
	ErrClosed = errors.New("store: closed")
)

// Refusal is a write that the policy in force did not allow.
type Refusal struct{ Decision rbac.Decision }

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("refused (%s): %s", r.Decision.Code, r.Decision.Sentence)
}

// Cursor is how far a source has been read. It never moves back for one source, host and protocol, but when the
// source has begun its numbers anew.
type Cursor struct {
	Source, Host, Protocol string
	Value                  int64
	// Reset forgets the former value: the host no longer knows the numbers that it was given in. 0 then leaves none.
	Reset bool
	// UpdatedAt is when it was last moved. It is set by the store.
	UpdatedAt time.Time
}

// Record is a proven record, or its proven absence.
type Record struct {
	DID, Collection, Rkey string
	// Rev is the repository's revision that the proof was taken from; an older one never replaces a newer.
	Rev, CID string
	CBOR     []byte
	Deleted  bool
}

// RepoBinding says which repository is served here: its DID document, manifest and declaration name each other.
type RepoBinding struct {
	Repo, Owner, Rkey, Name, Knot string
	DefaultBranch                 string
	// Spindle is the spindle that the records name.
	Spindle                     string
	ManifestCID, DeclarationCID string
	// Generation is the network generation of the records: "org" or "sh".
	Generation string
	VerifiedAt time.Time
	// Gone is a repository that is no longer served; nothing starts for it. GoneReason says why as a sentence
	// for people; it is empty for one that chose another spindle.
	Gone       bool
	GoneReason string
	// Paused is why the account of the owner, or the repository's own, is not active: one of rbac.Inactive, or
	// empty. Nothing starts meanwhile. It is read only; Effects.Accounts sets it.
	Paused rbac.Role
}

// Collaborator is an account that may push to a repository, or no longer may.
type Collaborator struct {
	Repo, DID string
	Removed   bool
}

// Member is an account on the allow-list by a record of the spindle's owner or of an admin, or no longer. Records
// of others change nothing.
type Member struct {
	DID     string
	Removed bool
	// Author and Rkey name the record. Without a key the DID stands for it.
	Author, Rkey string
}

// Token is a service token that must not be used twice.
type Token struct {
	Issuer, JTI string
	Expires     time.Time
}

// Recheck is a durable hint that a record may have changed.
type Recheck struct {
	DID, Collection, Rkey string
	// Generation grows with every new hint for the same record.
	Generation int64
	Tries      int
	NotBefore  time.Time
	Reason     string
	// Body is what is to be proven where it is not a record; empty for records.
	Body string
}

// Effects is what one proven input changes; Accept commits all of it or nothing.
type Effects struct {
	Records       []Record
	Repos         []RepoBinding
	Collaborators []Collaborator
	// ReplaceCollaborators gives the complete list of a repository's collaborators, by repository.
	ReplaceCollaborators map[string][]string
	Members              []Member
	// Accounts are what hosts say of accounts.
	Accounts []Account
	// ReplaceMembers gives all members that an author's records name, by author.
	ReplaceMembers map[string][]Member
	// Pull is a change of a pull request. The events that follow from it are made in the transaction.
	Pull  *PullChange
	Event *pipeline.Trigger
	// Move makes a push event hold only while its ref is where it was last seen; see Accepted.Overtaken.
	Move   *RefMove
	Cursor *Cursor
	// Gap is a stretch that the cursor passes over.
	Gap   *Gap
	Token *Token
	// Rechecks are new hints; Settled is a hint that these effects answer. A newer hint for the same record survives.
	Rechecks []Recheck
	Settled  *Recheck
}

// Accepted is what Accept did.
type Accepted struct {
	EventID int64
	// Key is the event's. It is longer than the one that was asked for when a push repeats an older move of its ref.
	Key string
	// Duplicate is an event that was accepted before; Pipeline is what it started, if it has by now.
	Duplicate      bool
	Pipeline       pipeline.ID
	RecordsApplied int
	// Overtaken is set when the event was left out because its ref was moved meanwhile.
	Overtaken bool
	// Stale is set when a record was older than the one stored; then nothing that follows from records
	// (repositories, collaborators, members) was applied.
	Stale bool
}

// EventState is where an accepted trigger stands.
type EventState string

// The states. Pending waits for its plan, Done has a pipeline, the others ended without one.
const (
	EventPending EventState = "pending"
	EventDone    EventState = "done"
	EventSkipped EventState = "skipped"
	EventNoMatch EventState = "nomatch"
	EventRefused EventState = "refused"
	EventGone    EventState = "gone"
)

// Event is an accepted trigger that waits for its plan.
type Event struct {
	ID         int64
	Trigger    pipeline.Trigger
	ReceivedAt time.Time
	Tries      int
	// Lane is what the event waits in: events of one lane are planned in order, and lanes do not wait for each other.
	Lane string
}

// EventView is an accepted trigger as it stands.
type EventView struct {
	Event
	State     EventState
	Reason    string
	Code      string // of a refusal, where it has one; see RefuseEvent
	NotBefore time.Time
	Pipeline  pipeline.ID
}

// Plan is the pipeline that follows from an event.
type Plan struct {
	Event    int64
	Pipeline pipeline.Pipeline // with Workflows
	// Admit decides with the policy of the very transaction; nil adds nothing to the store's own check that the
	// repository is bound, not gone and served.
	Admit func(*rbac.Gate) rbac.Decision
}

// ClaimRequest asks for work.
type ClaimRequest struct {
	Holder string
	// Engines and Labels are what the holder offers; a workflow's labels must all be among them.
	Engines, Labels []string
	TTL             time.Duration
	// PerOwner bounds how many workflows of one owner run at once; 0 is no bound.
	PerOwner int
}

// Claimed is work given to a holder.
type Claimed struct {
	Lease    pipeline.Lease
	Pipeline pipeline.Pipeline // without workflows
	Workflow pipeline.Workflow // with Spec
	// Rkey is the record key of the repository's declaration.
	Rkey string
	// Needs are the results of the workflows that this one waited for, by planned name.
	Needs map[string]wf.Need
	// Before is how the attempt before this one ended; the zero value for the first.
	Before AttemptEnd
}

// AttemptEnd is the end of an attempt.
type AttemptEnd struct {
	Status pipeline.Status
	Reason string
}

// Swept is what a sweep ended.
type Swept struct {
	Requeued, Failed []pipeline.Lease
	// Expired counts workflows that waited too long, for an approval or for a runner.
	Expired int
}

// Query selects pipelines. Empty fields select everything.
type Query struct {
	Repo     string
	Commits  []string
	Kinds    []pipeline.Kind
	Statuses []pipeline.Status
	// Limit is 50 when 0 and at most 500. Before continues a listing below that id.
	Limit  int
	Before pipeline.ID
}

// Stats are figures of the whole spindle.
type Stats struct {
	Running, Waiting, Held  int
	Passed24h, Finished24h  int
	OldestWaiting           time.Time
	PendingEvents, Rechecks int
}

// AuditRow is one line of the audit trail.
type AuditRow struct {
	Seq                           int64
	At                            time.Time
	Actor, Action, Object, Detail string
}

// now is the clock's time as it is stored: microseconds, UTC.
func now(c clock.Clock) time.Time { return c.Now().UTC().Truncate(time.Microsecond) }

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
