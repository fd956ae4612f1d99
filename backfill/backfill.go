package backfill

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"spindle/identity"
	"spindle/internal/clock"
	"spindle/knot"
	"spindle/store"
)

// Store keeps the states of readings and where refs are believed to be.
type Store interface {
	Began(ctx context.Context) (time.Time, error)
	WantAll(ctx context.Context, why string) (int, error)
	WantNew(ctx context.Context) (int, error)
	ResumeBackfills(ctx context.Context) error
	DueBackfills(ctx context.Context, limit int, but []string) ([]store.Backfill, error)
	CountBackfills(ctx context.Context) (store.BackfillCount, error)
	Troubled(ctx context.Context, limit int) ([]store.Backfill, error)
	BeginBackfill(ctx context.Context, b store.Backfill, host string) error
	ReleaseBackfill(ctx context.Context, b store.Backfill, host string) error
	PostponeBackfill(ctx context.Context, b store.Backfill, reason string, until time.Time, tries int) error
	RecordsBefore(ctx context.Context, did, rev string, after store.RecordKey, limit int) ([]store.RecordKey, error)
	Repos(ctx context.Context) ([]store.RepoBinding, error)
	Look(ctx context.Context, repo string) (store.Look, error)
	Sight(ctx context.Context, repo string, l store.Look, refs, gone []store.Ref) error
	Unsighted(ctx context.Context) ([]store.RepoBinding, error)
	Changed() <-chan struct{}
}

// Reader reads records with their proofs.
type Reader interface {
	Host(ctx context.Context, did string, knot bool) (string, error)
	LatestRev(ctx context.Context, did, host string) (string, error)
	Repo(ctx context.Context, did, host string) (*identity.Repo, error)
	Each(ctx context.Context, did, host string, collections []string, yield func([]identity.Proven) error) error
}

// Knots lists the refs of repositories.
type Knots interface {
	Locate(ctx context.Context, repo string) (knot.Source, error)
	Tips(ctx context.Context, src knot.Source) ([]knot.Ref, error)
}

// Intake takes what was found through the code that live events go through.
type Intake interface {
	// Replay commits the effects of the records that keys name, whose proofs travel with ctx, together with step.
	// Triggers of records older than since are left out; the others are marked late.
	Replay(ctx context.Context, step store.BackfillStep, keys []store.RecordKey, since time.Time) error
	// Found takes the move of a ref that nobody told of, unless the ref is no longer where expect says, and tells
	// whether that was new.
	Found(ctx context.Context, repo, ref, old, commit, expect string) (taken bool, err error)
}

// Config is what a Backfill needs. Fields without a default are required.
type Config struct {
	Store  Store
	Reader Reader
	Knots  Knots
	Intake Intake
	Clock  clock.Clock
	Log    *slog.Logger
	// Collections are those of accounts that matter.
	Collections []string
	// Binding is the record by which a repository is bound anew, with all that hangs on it.
	Binding store.RecordKey
	// Health is told of the component "backfill"; Metrics counts. Both may be nil.
	Health  func(component string, ok bool, detail string)
	Metrics *Metrics
	// Workers is how many accounts are read at a time, PerHost how many of them at one host. Defaults 12 and 4.
	Workers, PerHost int
	// Batch is how many records one transaction takes. Default 200.
	Batch int
	// Every is how often all accounts are asked for anew (default 24 h), Looks how often all repositories are looked at
	// (default 1 h). Both vary by a fifth.
	Every, Looks time.Duration
	// LateAge bounds how old what is found may be and still start something. Default 7 days.
	LateAge time.Duration
	// Grace is how long a ref must be elsewhere before it counts: the notice of a push may be on its way. Default 10 s;
	// negative is none.
	Grace time.Duration
}

// Backfill finds what was missed. Make it with New and call Run once.
type Backfill struct {
	c Config

	wake  chan struct{} // more may be due; has room for one
	looks chan struct{} // all repositories are to be looked at; has room for one
	since time.Time     // the first start of all; set by Run before anything else

	mu    sync.Mutex
	busy  map[string]bool      // DIDs being read
	seats map[string]int       // readings at each host
	rest  map[string]time.Time // hosts that are left alone, with the end of it
	round Round
}

// Round is how far the looks at repositories are.
type Round struct {
	Repos, Looked, Failed, Late int
	Began, Ended                time.Time
}

// New returns a Backfill.
func New(c Config) *Backfill {
	def := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	def(&c.Every, 24*time.Hour)
	def(&c.Looks, time.Hour)
	def(&c.LateAge, 7*24*time.Hour)
	def(&c.Grace, 10*time.Second)
	if c.Batch < 1 {
		c.Batch = 200
	}
	if c.Workers < 1 {
		c.Workers = 12
	}
	if c.PerHost < 1 {
		c.PerHost = 4
	}
	if c.Health == nil {
		c.Health = func(string, bool, string) {}
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Backfill{
		c: c, wake: make(chan struct{}, 1), looks: make(chan struct{}, 1),
		busy: map[string]bool{}, seats: map[string]int{}, rest: map[string]time.Time{},
	}
}

// Run catches up until ctx ends, and returns when nothing of it goes on any more.
func (b *Backfill) Run(ctx context.Context) error {
	var err error
	if b.since, err = b.c.Store.Began(ctx); err != nil {
		return ended(ctx, err)
	}
	if err := b.c.Store.ResumeBackfills(ctx); err != nil {
		return ended(ctx, err)
	}
	if err := b.all(ctx, "start"); err != nil {
		return ended(ctx, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.readings(ctx) })
	wg.Go(func() { b.lookLoop(ctx) })
	wg.Go(func() { b.newcomers(ctx) })
	wg.Go(func() { b.periodic(ctx) })
	wg.Go(func() { b.progress(ctx) })
	wg.Wait()
	return nil
}

// ended is err unless the end of ctx explains it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Gap asks for everything after a stretch that a stream did not tell. It returns once that is durable; a kill after it
// loses nothing, since each start asks for everything as well.
func (b *Backfill) Gap(ctx context.Context, _, _ string, _, _ int64, _ string) error {
	return b.all(ctx, "gap")
}

// all asks for the records of everybody and for a look at all repositories.
func (b *Backfill) all(ctx context.Context, why string) error {
	n, err := b.c.Store.WantAll(ctx, why)
	if err != nil {
		return err
	}
	b.c.Log.Info("all followed accounts are read anew", "accounts", n, "why", why)
	poke(b.wake)
	poke(b.looks)
	return nil
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newcomers asks for the records of who is followed since a moment ago, and looks at repositories that are new. What
// made them so has committed, and rung.
func (b *Backfill) newcomers(ctx context.Context) {
	for ctx.Err() == nil {
		rang := b.c.Store.Changed()
		n, err := b.c.Store.WantNew(ctx)
		if err != nil && ctx.Err() == nil {
			b.c.Log.Error("look for newly followed accounts", "err", err)
		}
		if n > 0 {
			poke(b.wake)
		}
		fresh, err := b.c.Store.Unsighted(ctx)
		if err != nil && ctx.Err() == nil {
			b.c.Log.Error("look for new repositories", "err", err)
		}
		failed := false
		for _, r := range fresh {
			if _, err := b.look(ctx, r.Repo, nil); err != nil && ctx.Err() == nil {
				b.c.Log.Info("a new repository cannot be looked at yet", "repo", r.Repo, "err", err)
				failed = true
			}
		}
		wait := newcomersEvery
		if failed {
			wait = newcomersAgain
		}
		if b.c.Clock.Sleep(ctx, wait) != nil {
			return
		}
		select {
		case <-rang:
		case <-ctx.Done():
		}
	}
}

const (
	newcomersEvery = 2 * time.Second
	newcomersAgain = time.Minute
)

// periodic asks for everybody's records now and then: a stream may have left out what it never tells.
func (b *Backfill) periodic(ctx context.Context) {
	for b.c.Clock.Sleep(ctx, vary(b.c.Every)) == nil {
		if _, err := b.c.Store.WantAll(ctx, "periodic"); err != nil && ctx.Err() == nil {
			b.c.Log.Error("ask for the records of everybody", "err", err)
		}
		poke(b.wake)
	}
}
