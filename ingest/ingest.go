package ingest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/lexicon"

	"spindle/identity"
	"spindle/internal/clock"
	"spindle/knot"
	"spindle/lexicons"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// Store is where hints, events and their effects go.
type Store interface {
	Accept(ctx context.Context, e store.Effects) (store.Accepted, error)
	Cursor(ctx context.Context, source, host, protocol string) (store.Cursor, bool, error)
	DueRechecks(ctx context.Context, limit int) ([]store.Recheck, error)
	PostponeRecheck(ctx context.Context, r store.Recheck, reason string, until time.Time) error
	Repo(ctx context.Context, did string) (store.RepoBinding, bool, error)
	Repos(ctx context.Context) ([]store.RepoBinding, error)
	Gate(ctx context.Context) (*rbac.Gate, error)
	EventByKey(ctx context.Context, key string) (store.EventView, bool, error)
	Pipeline(ctx context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error)
	Pipelines(ctx context.Context, q store.Query) ([]pipeline.Pipeline, int, error)
	Account(ctx context.Context, did string) (store.Account, bool, error)
	Changed() <-chan struct{}
	ApplyBackfill(ctx context.Context, step store.BackfillStep, effects []store.Effects) (conflicts int, err error)
	Sighted(ctx context.Context, repo string) (time.Time, error)
	OpenGaps(ctx context.Context) ([]store.Gap, error)
	CloseGap(ctx context.Context, g store.Gap) (bool, error)
	RepoNamed(ctx context.Context, knot, owner, name string) (store.RepoBinding, bool, error)
	ForgetCursor(ctx context.Context, source, host, protocol string) error
	Pull(ctx context.Context, ticket string) (store.Pull, bool, error)
	RoundTicket(ctx context.Context, uri string) (string, bool, error)
	Granters(ctx context.Context) ([]string, error)
	Grants(ctx context.Context, author string) (map[string]string, error)
}

// Prover fetches signed proofs of records.
type Prover interface {
	Record(ctx context.Context, did, collection, rkey string) (identity.Proven, error)
	// List proves the records of a collection, at most limit; host "" means the account's own server.
	List(ctx context.Context, did, host, collection string, limit int) ([]identity.Proven, error)
	// Account asks anew what became of an account.
	Account(ctx context.Context, did string) (identity.Account, error)
	// Refresh reads did's document anew.
	Refresh(ctx context.Context, did string) error
	// RecordFrom takes the proof from a CAR that somebody sent, whom nobody has to believe.
	RecordFrom(ctx context.Context, car []byte, did, collection, rkey string) (identity.Proven, error)
}

// Gaps makes up for what a record stream did not tell.
type Gaps interface {
	// Gap looks up what may have been missed and returns once that is done. from and to are in the numbers of the
	// source's protocol, and 0 where unknown. It is called again until it returns nil, also after a restart.
	Gap(ctx context.Context, source, host string, from, to int64, reason string) error
}

// Knots binds repositories and answers questions about their refs.
type Knots interface {
	Bind(ctx context.Context, repo string) (knot.Binding, error)
	Collaborators(ctx context.Context, repo string) ([]string, error)
	Locate(ctx context.Context, repo string) (knot.Source, error)
	RefContains(ctx context.Context, src knot.Source, ref, sha string) (bool, error)
	RefHolds(ctx context.Context, src knot.Source, ref, sha string) (bool, error)
	ResolveRef(ctx context.Context, src knot.Source, ref string) (string, error)
}

// Config is what an Ingest needs. All fields are required but OnlyFollowed, Gaps, Provers, Patience and Moved.
type Config struct {
	Store  Store
	Prover Prover
	Knots  Knots
	// Signatures checks the pushes that a knot's stream has signed.
	Signatures Signatures
	// Hostname is this spindle's; a repository chooses it by this name or by did:web:<name>.
	Hostname string
	// PublicURL is where people find the pages, without a slash at its end.
	PublicURL string
	// Dial opens connections to record streams.
	Dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	Clock clock.Clock
	Log   *slog.Logger
	// Count counts what was refused, by a short fixed name.
	Count func(what string)
	// Health is told of the state of a component.
	Health func(component string, ok bool, detail string)
	// Moved is told of an account whose handle, key or host may be new; nil means that nobody is.
	Moved func(did string)
	// OnlyFollowed takes from the streams no record of other accounts at all: pull requests of strangers and
	// repositories that choose this server anew are then not heard of.
	OnlyFollowed bool
	// Gaps is asked to make up for what was missed; nil has what is known here looked up again.
	Gaps Gaps
	// Provers is how many records are proven at a time; below 1 means 8.
	Provers int
	// Patience is how long a call waits for what came of its event; 0 means 4 s.
	Patience time.Duration
}

// Ingest turns the outside into events. Make it with New. Follow, Prove and CatchUp run until their
// context ends; Push, Manual and Retry answer calls.
type Ingest struct {
	c        Config
	wake     chan struct{} // has room for one
	followed followed
	away     away
	gaps     chan struct{} // has room for one
	heads    chan struct{} // places to ask where a branch of a pull request is
	proofs   *proofs
	stats    stats
	catalog  func() (*lexicon.BaseCatalog, error)
}

// New returns an Ingest.
func New(c Config) *Ingest {
	if c.Provers < 1 {
		c.Provers = 8
	}
	if c.Moved == nil {
		c.Moved = func(string) {}
	}
	if c.Patience <= 0 {
		c.Patience = 4 * time.Second
	}
	in := &Ingest{
		wake: make(chan struct{}, 1), gaps: make(chan struct{}, 1), proofs: newProofs(), heads: make(chan struct{}, headsAtOnce),
		catalog: sync.OnceValues(lexicons.NewCatalog),
	}
	c.Prover = framed{Prover: c.Prover, proofs: in.proofs, clock: c.Clock, count: c.Count}
	if c.Gaps == nil {
		c.Gaps = known{in}
	}
	in.c = c
	return in
}

func (in *Ingest) wakeProvers() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}
