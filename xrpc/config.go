package xrpc

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// Config is what a Server is made of. The interfaces are required unless their comment says otherwise.
type Config struct {
	Pipelines   Pipelines
	Repos       Repos
	Policy      Policy
	Verbs       Verbs
	Retries     Retries
	Definitions Definitions
	Secrets     Secrets
	Logs        Logs
	Ingest      Ingest
	Tokens      Tokens
	Knots       Knots

	// Owner is the DID that sh.tangled.owner tells. Empty: OwnerNotFound.
	Owner string
	// Documents tells what is served beside the calls, by path. A nil body is not found.
	Documents []Document
	// Ready tells in a sentence fit for strangers why the server cannot do its work, or "". Nil: always ready.
	Ready func(ctx context.Context) string
	// Draining tells whether new work is refused because the server is about to stop. Nil: never.
	Draining func() bool

	// Origins are the web origins (https://app.example.com) that a browser may call from. "*" allows all of
	// them, which is safe in so far as nothing here goes by cookies. Empty: the server's own only.
	Origins []string
	// Proxies are the networks of reverse proxies whose X-Forwarded-For is believed. Empty: none.
	Proxies []netip.Prefix

	Limits Limits

	Clock   clock.Clock           // nil: the machine's
	Log     *slog.Logger          // nil: nothing is logged
	Metrics prometheus.Registerer // nil: counted for nobody
}

// Limits bound what callers may ask for. A zero field has the default that its comment names; a negative
// one is refused by New.
type Limits struct {
	// PerAddress is how many calls a second an address may make (20), in bursts of AddressBurst (100). An
	// address is one IPv4 address or an IPv6 /64.
	PerAddress   float64
	AddressBurst int
	// PerCaller is the same for a verified DID (10 and 50).
	PerCaller   float64
	CallerBurst int
	// Failures is how many refused tokens of issuers that are not known here an address may send in a minute (30).
	// After that, tokens of known issuers still count, and those of others are not looked at.
	Failures int
	// Remembered bounds how many addresses and callers are told apart (16384 each).
	Remembered int
	// Streams caps open streams in all (512), StreamsPerAddress those of one address (16).
	Streams           int
	StreamsPerAddress int
	// Ping is the interval of pings on a stream (30 s), Write the deadline of one write (10 s).
	Ping, Write time.Duration
	// Call bounds how long a call may take, streams apart (30 s).
	Call time.Duration
	// Page is how many changes are read at once for a stream (256).
	Page int
}

// maxBody is the largest body that a call may have, in bytes.
const maxBody = 1 << 20

// Document is one fixed document beside the calls, such as /.well-known/did.json.
type Document struct {
	Path        string
	ContentType string        // empty: application/json
	MaxAge      time.Duration // how long it may be cached; 0: not at all
	Body        func() []byte
}

// Pipelines reads what was planned and how it stands; *store.Store is one. Changed is closed by the next
// change and replaced, so take it before reading and wait on it after.
type Pipelines interface {
	Pipelines(ctx context.Context, q store.Query) ([]pipeline.Pipeline, int, error)
	Pipeline(ctx context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error)
	Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error)
	LastChange(ctx context.Context) (int64, error)
	Changed() <-chan struct{}
}

// Repos reads the repositories served here; *store.Store is one.
type Repos interface {
	Repo(ctx context.Context, did string) (store.RepoBinding, bool, error)
	Repos(ctx context.Context) ([]store.RepoBinding, error)
}

// Policy gives the policy in force; *store.Store is one.
type Policy interface {
	Gate(ctx context.Context) (*rbac.Gate, error)
}

// Verbs changes pipelines; *store.Store is one. Both check the policy again in their transaction.
type Verbs interface {
	Cancel(ctx context.Context, id pipeline.ID, workflows []string, by, reason string, as pipeline.Status) (int, error)
	Approve(ctx context.Context, id pipeline.ID, by string, only []string, admit func(*rbac.Gate, pipeline.Pipeline) rbac.Decision) error
}

// Retries starts an ended pipeline again from its stored specs. Workflows that are nil mean all of them.
type Retries interface {
	Retry(ctx context.Context, old pipeline.Pipeline, workflows []string, by string) (pipeline.ID, error)
}

// Definition is one workflow file as a repository has it at a commit.
type Definition struct {
	Name, Title, Path string
	Commit, Hash      string
	Engine            string
	Triggers          []string
	Next              []time.Time // when its time tables are due
	Diagnostics       []Diagnostic
}

// Diagnostic is one finding in a workflow file. Line and Column are from 1, or 0 when unknown.
type Diagnostic struct {
	Severity, Code, Message, Hint string
	Line, Column                  int
}

// Definitions lists the workflow files of a repository at a ref or commit; "HEAD" is the default branch.
// Errors for the caller are Refusals such as RefNotFound and UpstreamFailure.
type Definitions interface {
	Definitions(ctx context.Context, repo store.RepoBinding, ref string) ([]Definition, error)
}

// Secret is what may be told of a secret.
type Secret struct {
	Name      string
	CreatedAt time.Time
	CreatedBy string
}

// Secrets keeps the secrets of repositories. Delete tells whether there was one of that name.
type Secrets interface {
	Put(ctx context.Context, repo, name, value, by string) error
	List(ctx context.Context, repo string) ([]Secret, error)
	Delete(ctx context.Context, repo, name, by string) (bool, error)
}

// Logs opens the log of one attempt at the line with number from, which counts from 0.
type Logs interface {
	Follow(ctx context.Context, id pipeline.ID, workflow string, attempt int, from int64) (LogReader, error)
}

// LogReader gives one line after the other. Next waits for the next line and returns io.EOF once the attempt
// has ended and its last line was given. A reader is used by one goroutine.
type LogReader interface {
	Next(ctx context.Context) (LogLine, error)
	Close() error
}

// LogLine is one line of a log as it is stored and as the older log stream sends it.
type LogLine struct {
	Kind    string    `json:"kind"` // control or data
	Content string    `json:"content"`
	Time    time.Time `json:"time"`
	StepID  int       `json:"step_id"`
	// Stream is stdout or stderr, on data.
	Stream string `json:"stream,omitempty"`
	// The others are on control: start or end; system or user; what runs; on an end how it ended.
	StepStatus  string          `json:"step_status,omitempty"`
	StepKind    string          `json:"step_kind,omitempty"`
	StepCommand string          `json:"step_command,omitempty"`
	StepOutcome pipeline.Status `json:"step_outcome,omitempty"`
	ExitCode    *int            `json:"exit_code,omitempty"`
}

// The words of LogLine.
const (
	lineControl = "control"
	lineData    = "data"
	stepStart   = "start"
	stepEnd     = "end"
)

// Push is one ref that a knot says was moved. Caller is the verified DID that said so.
type Push struct {
	Repo, Ref, Old, New string
	Actor               string
	Options             []string
	Caller              string
}

// Manual is a run that Caller asks for, who may push to the repository.
type Manual struct {
	Repo, Commit, Ref string
	Inputs            []pipeline.Input
	Workflows         []string
	Caller            string
}

// Notified is what came of an event. It is durable when it is returned.
type Notified struct {
	Pipelines []pipeline.ID
	// Message is for the person who caused the event; a knot prints it.
	Message string
}

// Ingest takes events. It returns once the event is kept for good.
type Ingest interface {
	NotifyPush(ctx context.Context, p Push) (Notified, error)
	NotifyManual(ctx context.Context, m Manual) (Notified, error)
}

// Tokens verifies a service token for one method, once, and tells who it speaks for. Its errors are those of
// identity.Verifier.
type Tokens interface {
	Verify(ctx context.Context, bearer, lxm string) (caller string, err error)
	// Issuer is who says to have signed the token, after every check that asks nobody. Its errors are those of
	// Verify.
	Issuer(bearer, lxm string) (did string, err error)
}

// Knots tells the did:web of the knot that the DID document of a repository names.
type Knots interface {
	KnotDID(ctx context.Context, repo string) (string, error)
}
