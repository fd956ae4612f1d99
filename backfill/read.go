package backfill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"spindle/identity"
	"spindle/store"
)

const (
	// batchBytes bounds what one transaction takes of a reading, beside Config.Batch.
	batchBytes = 1 << 20
	// idleMost is the longest wait for the time of a waiting reading.
	idleMost = time.Second
	// Back-off after a failure: the first wait and the longest.
	firstWait = 5 * time.Second
	mostWait  = time.Hour
)

// vary is d, a fifth more or less.
func vary(d time.Duration) time.Duration { return d - d/5 + rand.N(max(2*d/5, 1)) }

// readings reads whoever is due until ctx ends, a few at a time, and waits for them.
func (b *Backfill) readings(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	seats := make(chan struct{}, b.c.Workers)
	for ctx.Err() == nil {
		due, err := b.c.Store.DueBackfills(ctx, 4*b.c.Workers, b.full())
		if err != nil && ctx.Err() == nil {
			b.c.Log.Error("read whose records are due", "err", err)
		}
		started := false
		for _, row := range due {
			select {
			case seats <- struct{}{}:
			case <-ctx.Done():
				return
			}
			if !b.take(row.DID) {
				<-seats
				continue
			}
			started = true
			wg.Go(func() {
				defer func() {
					b.give(row.DID)
					<-seats
					poke(b.wake)
				}()
				b.Read(ctx, row)
			})
		}
		if started {
			continue
		}
		idle, cancel := context.WithTimeout(ctx, idleMost)
		select {
		case <-b.wake:
		case <-idle.Done():
		}
		cancel()
	}
}

func (b *Backfill) take(did string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy[did] {
		return false
	}
	b.busy[did] = true
	return true
}

func (b *Backfill) give(did string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.busy, did)
}

// full lists the hosts that nobody goes to now.
func (b *Backfill) full() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.c.Clock.Now()
	var out []string
	for h, until := range b.rest {
		if until.After(now) {
			out = append(out, h)
		} else {
			delete(b.rest, h)
		}
	}
	for h, n := range b.seats {
		if n >= b.c.PerHost {
			out = append(out, h)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// enter takes a place at host; false when there is none.
func (b *Backfill) enter(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seats[host] >= b.c.PerHost || b.rest[host].After(b.c.Clock.Now()) {
		return false
	}
	b.seats[host]++
	return true
}

func (b *Backfill) leave(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seats[host]--; b.seats[host] <= 0 {
		delete(b.seats, host)
	}
}

func (b *Backfill) alone(host string, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest[host] = until
}

// Read reads the records of one DID now, and notes how that ended. Run does so for all that are due.
func (b *Backfill) Read(ctx context.Context, row store.Backfill) {
	log := b.c.Log.With("did", row.DID)
	host, err := b.c.Reader.Host(ctx, row.DID, row.Kind == store.BackfillRepo)
	if err == nil {
		if !b.enter(host) {
			if err := b.c.Store.ReleaseBackfill(ctx, row, host); err != nil && ctx.Err() == nil {
				log.Error("put off a reading", "err", err)
			}
			return
		}
		defer b.leave(host)
		err = b.read(ctx, row, host)
	}
	if err == nil {
		return
	}
	if ctx.Err() != nil {
		return // wanted again at the next start
	}
	now := b.c.Clock.Now()
	var busy *identity.HostBusyError
	until, tries, outcome := time.Time{}, 0, "refused"
	switch {
	case errors.As(err, &busy):
		// Not a failure of this account, and true of all others there.
		until, tries, outcome = now.Add(busy.Wait), row.Tries, "rest"
		b.alone(host, until)
	case !refusal(err):
		wait := min(firstWait<<min(row.Tries, 12), mostWait)
		until, tries, outcome = now.Add(wait/2+rand.N(wait/2)), row.Tries+1, "waiting"
		log.Info("records cannot be read yet", "host", host, "again_at", until, "err", err)
	default:
		log.Warn("records are refused", "host", host, "err", err)
	}
	b.c.Metrics.ended.WithLabelValues(outcome).Inc()
	if err := b.c.Store.PostponeBackfill(ctx, row, err.Error(), until, tries); err != nil && ctx.Err() == nil {
		log.Error("postpone a reading", "err", err)
	}
}

// errBack is a host that shows an older state than it did before.
var errBack = errors.New("backfill: the host went back to an older revision")

// refusal tells whether asking again would bring the same: what is signed or shown is wrong, or an account is not
// there. Everything else, our own disk included, may be better later.
func refusal(err error) bool {
	if identity.Temporary(err) {
		return false
	}
	for _, e := range []error{
		errBack, identity.ErrBadDID, identity.ErrNotFound, identity.ErrBadDocument, identity.ErrUnproven, identity.ErrProof,
		identity.ErrSignature, identity.ErrFutureRev, identity.ErrTooBig,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// read reads what row asks for.
func (b *Backfill) read(ctx context.Context, row store.Backfill, host string) error {
	visit, leave := identity.Visit(ctx)
	defer leave()
	if err := b.c.Store.BeginBackfill(ctx, row, host); err != nil {
		return err
	}
	step := store.BackfillStep{DID: row.DID, Wish: row.Wish, Done: true}
	if row.Rev != "" || row.Kind == store.BackfillRepo {
		// One small request tells that nothing has changed.
		rev, err := b.c.Reader.LatestRev(visit, row.DID, host)
		if err != nil && !errors.Is(err, identity.ErrUnsupported) {
			return err
		}
		switch {
		case rev != "" && rev < row.Rev:
			return fmt.Errorf("%w: %s after %s", errBack, rev, row.Rev)
		case rev != "" && rev == row.Rev:
			step.Rev = rev
			b.c.Metrics.ended.WithLabelValues("unchanged").Inc()
			return b.c.Intake.Replay(visit, step, nil, time.Time{})
		}
		step.Rev = rev
	}
	if row.Kind == store.BackfillRepo {
		b.c.Metrics.ended.WithLabelValues("repo").Inc()
		return b.c.Intake.Replay(visit, step, []store.RecordKey{b.c.Binding}, b.floor())
	}
	repo, err := b.c.Reader.Repo(visit, row.DID, host)
	if errors.Is(err, identity.ErrUnsupported) || errors.Is(err, identity.ErrTooBig) {
		b.c.Log.Info("records are proven one by one", "did", row.DID, "host", host, "why", err)
		return b.list(visit, row, host)
	}
	if err != nil {
		return err
	}
	if err := b.whole(identity.WithRepo(visit, repo), row, repo); err != nil {
		return errors.Join(err, repo.Close())
	}
	b.c.Metrics.ended.WithLabelValues("whole").Inc()
	return repo.Close()
}

// floor is how old what is found may be and still start something.
func (b *Backfill) floor() time.Time {
	at := b.c.Clock.Now().Add(-b.c.LateAge)
	if b.since.After(at) {
		return b.since
	}
	return at
}

// whole applies a verified repo: what it holds, then what is known here and no longer in it.
func (b *Backfill) whole(ctx context.Context, row store.Backfill, repo *identity.Repo) error {
	if repo.Rev() < row.Rev {
		return fmt.Errorf("%w: %s after %s", errBack, repo.Rev(), row.Rev)
	}
	a := &applying{b: b, step: store.BackfillStep{DID: row.DID, Rev: repo.Rev(), Wish: row.Wish}, since: b.floor()}
	if err := repo.Records(b.c.Collections, func(p identity.Proven) error {
		return a.add(ctx, store.RecordKey{Collection: p.Collection, Rkey: p.Rkey}, len(p.CBOR))
	}); err != nil {
		return err
	}
	return a.finish(ctx)
}

// list applies the records that a host lists, each with its own proof. What it leaves out and is known here is asked
// for by name.
func (b *Backfill) list(ctx context.Context, row store.Backfill, host string) error {
	rev, err := b.c.Reader.LatestRev(ctx, row.DID, host)
	if err != nil && !errors.Is(err, identity.ErrUnsupported) {
		return err
	}
	a := &applying{
		b: b, step: store.BackfillStep{DID: row.DID, Rev: rev, Wish: row.Wish}, since: b.floor(), found: map[store.RecordKey]bool{},
	}
	err = b.c.Reader.Each(ctx, row.DID, host, b.c.Collections, func(proven []identity.Proven) error {
		held := identity.WithProofs(ctx, proven)
		for _, p := range proven {
			if err := a.add(held, store.RecordKey{Collection: p.Collection, Rkey: p.Rkey}, len(p.CBOR)); err != nil {
				return err
			}
		}
		return a.flush(held, false)
	})
	if err != nil {
		return err
	}
	b.c.Metrics.ended.WithLabelValues("listed").Inc()
	return a.finish(ctx)
}

// applying gathers the records of one reading into transactions.
type applying struct {
	b     *Backfill
	step  store.BackfillStep
	since time.Time
	keys  []store.RecordKey
	bytes int
	// found, if not nil, gathers what came: a list may have no revision to tell it by.
	found map[store.RecordKey]bool
}

func (a *applying) add(ctx context.Context, k store.RecordKey, size int) error {
	if len(a.keys) >= a.b.c.Batch || a.bytes+size > batchBytes && len(a.keys) > 0 {
		if err := a.flush(ctx, false); err != nil {
			return err
		}
	}
	a.keys, a.bytes = append(a.keys, k), a.bytes+size
	if a.found != nil {
		a.found[k] = true
	}
	return nil
}

func (a *applying) flush(ctx context.Context, done bool) error {
	if len(a.keys) == 0 && !done {
		return nil
	}
	a.step.Done = done
	if err := a.b.c.Intake.Replay(ctx, a.step, a.keys, a.since); err != nil {
		return err
	}
	a.b.c.Metrics.records.Add(float64(len(a.keys)))
	a.keys, a.bytes = a.keys[:0], 0
	return nil
}

// finish applies what is left, and then what is known of the account and was not found: absences of the whole repo,
// or records to be asked for by name. Nothing is known of most accounts, and then this is one transaction.
func (a *applying) finish(ctx context.Context) error {
	after, pending := store.RecordKey{}, map[store.RecordKey]bool{}
	for _, k := range a.keys {
		pending[k] = true
	}
	for {
		rev := a.step.Rev
		if rev == "" {
			rev = "~" // after every revision
		}
		known, err := a.b.c.Store.RecordsBefore(ctx, a.step.DID, rev, after, a.b.c.Batch)
		if err != nil {
			return err
		}
		for _, k := range known {
			after = k
			if pending[k] || a.found[k] || !slices.Contains(a.b.c.Collections, k.Collection) {
				continue
			}
			if err := a.add(ctx, k, 0); err != nil {
				return err
			}
		}
		if len(known) < a.b.c.Batch {
			return a.flush(ctx, true)
		}
	}
}
